"""Malicious files, each opened by the command that would meet it: none of them runs anything."""

from __future__ import annotations

import hashlib
import json
import os
import pickletools
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import TINY, fedbench, manifests, run, write_suite
from factories import eval_rows, layer_row, write_cell

from fedbench.data.cache import ARRAYS, cached, entry_of
from fedbench.errors import UserError
from fedbench.results import read_rows
from fedbench.results.documents import write_json
from fedbench.simulation.state import STRUCTURE, TENSORS, load, save
from fedbench.types import Images, Splits
from hostile.malice import FORMATS, outward_tar, outward_zip, parquet, pickled


@pytest.fixture
def canary(tmp_path):
    """The file that an attack makes where it succeeds."""
    place = tmp_path / "canary"
    yield place
    assert not place.exists(), "the attack ran"


@pytest.fixture
def cell(tmp_path):
    """A finished cell of invented numbers."""
    rows = eval_rows({1: {"a": 0.5, "b": 0.25}})
    return write_cell(tmp_path / "results" / "s", "fedra", evaluation=rows, layers=[layer_row(1, 0)])


def refused(*words: object, cwd: Path) -> str:
    """What a command says that ends with exit code 2, or leaves out what it cannot believe."""
    done = fedbench(*words, cwd=cwd)
    assert done.exit_code == 2 or (done.exit_code == 1 and "the checksum does not match" in done.output), done.output
    return done.output


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_the_attacks_are_attacks(make, tmp_path):
    """Opened without care they do run: else a canary that lives would prove nothing."""
    import io
    import pickle

    import torch

    raw = make(tmp_path / "canary")
    if make is FORMATS["pickle"]:
        assert "Path" in " ".join(str(argument) for _, argument, _ in pickletools.genops(raw))
        pickle.loads(raw)
    elif make is FORMATS["torch"]:
        torch.load(io.BytesIO(raw), weights_only=False)
    else:
        found = np.load(io.BytesIO(raw), allow_pickle=True)
        found["x"] if make is FORMATS["npz"] else found
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("file", ["eval.parquet", "rounds.parquet", "manifest.json"])
def test_a_pickle_in_a_results_folder(make, file, cell, canary):
    (cell / file).write_bytes(make(canary))
    assert file in refused("compare", cell.parents[1], cwd=cell)


@pytest.mark.parametrize("file", ["index.json"])
def test_a_pickle_beside_the_cells(file, cell, canary):
    (cell.parents[1] / file).write_bytes(pickled(canary))
    assert file in refused("compare", "paper", cell.parents[1], cwd=cell)


@pytest.mark.parametrize("kind", ["eval", "rounds", "layers"])
def test_pickles_in_the_metadata_of_a_table(kind, cell, canary):
    file = cell / f"{kind}.parquet"
    rows = read_rows(cell, kind)
    file.write_bytes(parquet(canary, pq.read_table(file)))
    try:
        assert read_rows(cell, kind) == rows
        assert fedbench("compare", cell.parents[1], cwd=cell).exit_code == 0
    except UserError as error:
        assert str(file) in str(error)


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_a_pickle_for_tensors_of_a_state(make, tmp_path, canary):
    save(tmp_path, {"x": np.zeros(0).tolist()})
    (tmp_path / TENSORS).write_bytes(make(canary))
    written = json.loads((tmp_path / STRUCTURE).read_text())
    written["sha256"] = hashlib.sha256(make(canary)).hexdigest()
    (tmp_path / STRUCTURE).write_text(json.dumps(written))
    with pytest.raises(UserError, match="not a state of fedbench"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *(("pickle", "w.safetensors"), ("torch", "w.pt")),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("torch", "w.safetensors"), ("npz", "w.npz"))),
    ],
)
def test_a_pickle_for_the_weights_of_a_backbone(form, name, tmp_path, canary):
    (tmp_path / name).write_bytes(FORMATS[form](canary))
    backbone = f"{{name: vit_tiny_patch16_224, img_size: 32, pretrained: {tmp_path / name}}}"
    write_suite(tmp_path, changes={"backbone: tiny": f"backbone: {backbone}"})
    said = refused("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)
    assert "is no readable .safetensors file" in said


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"])
def test_weights_by_another_option_of_timm(option, tmp_path, canary):
    (tmp_path / "w.pt").write_bytes(FORMATS["torch"](canary))
    value = f"{{file: {tmp_path / 'w.pt'}}}" if option.startswith("pretrained") else str(tmp_path / "w.pt")
    backbone = f"{{name: vit_tiny_patch16_224, img_size: 32, pretrained: false, {option}: {value}}}"
    write_suite(tmp_path, changes={"backbone: tiny": f"backbone: {backbone}"})
    assert f"the option {option} is not for suites" in refused("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("name", [f"{array}.npy" for array in ARRAYS[:2]] + ["index.json"])
def test_a_pickle_in_the_cache_of_images(make, name, tmp_path, canary, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    images = Images(np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, np.int64), np.zeros(2, np.int64))
    cached("x", lambda new_array: Splits(images, images))
    (entry_of("x") / name).write_bytes(make(canary))
    assert cached("x", lambda new_array: Splits(images, images)).train.y.tolist() == [0, 0]


@pytest.mark.parametrize(
    "content",
    ["pickle"]
    + [
        pytest.param(text, marks=pytest.mark.slow)
        for text in ('{"components": [{"name": "os.system"}]}', "[" * 100_000, "9" * 5000)
    ],
)
def test_whatever_lies_in_the_cache_of_facts(content, tmp_path, canary, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    write_suite(tmp_path)
    own = tmp_path / "own.py"  # which no other test has asked about
    own.write_text(f"{Path(TINY).read_text()}\n# {content[:9]}\n")
    words = ("plan", "tiny.yaml", "--plugin", str(own), "--format", "json")
    first = fedbench(*words, cwd=tmp_path)
    kept = list((tmp_path / "cache").rglob("*.json"))
    assert {file.parent.name for file in kept} == {"catalogue", "backbone", "data doubts", "totals"}
    for file in kept:
        file.write_bytes(pickled(canary) if content == "pickle" else content.encode())
    assert fedbench(*words, cwd=tmp_path).stdout == first.stdout


@pytest.mark.parametrize(
    "value",
    ["!!python/object/apply:pathlib.Path.touch [CANARY]", "!!python/name:os.system", "!!python/module:evil"]
    + ["!<tag:yaml.org,2002:python/object/new:subprocess.Popen> [[touch, CANARY]]", "!!binary gASV"],
)
def test_a_tag_of_python_in_a_suite(value, tmp_path, canary):
    text = value.replace("CANARY", str(canary))
    write_suite(tmp_path, changes={"suite: tiny": f"suite: tiny\ndescription: {text}"})
    assert "tags are not used in suites" in refused("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)


ARCHIVES = {
    "zip path": outward_zip("../../canary"),
    "zip absolute": outward_zip("/canary"),
    "zip link": outward_zip("tiny-imagenet-200/up", link=True),
    "tar path": outward_tar("../../canary"),
    "tar link": outward_tar("tiny-imagenet-200/up", tarfile.SYMTYPE),
    "tar hard link": outward_tar("tiny-imagenet-200/up", tarfile.LNKTYPE),
}


@pytest.mark.parametrize("raw", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_that_leads_out(raw, tmp_path, canary):
    root = tmp_path / "data" / "inner"
    root.mkdir(parents=True)
    (root / "tiny-imagenet-200.zip").write_bytes(raw)
    said = refused("data", "prepare", "tiny_imagenet", "--root", root, cwd=tmp_path)
    assert "tiny-imagenet-200.zip" in said.replace("\n", "")
    assert not list(tmp_path.rglob("canary")) and not (root / "tiny-imagenet-200").exists()


JSONS = {
    "deep": "[" * 200_000,
    "deep and whole": '{"result_version": 1, "suite": "s", "status": "finished", "config": '
    + "[" * 900
    + "]" * 900
    + "}",
    "huge integer": '{"result_version": 1, "status": ' + "9" * 100_000 + "}",
    "class": '{"__class__": "os.system", "py/object": "pathlib.Path", "result_version": 1}',
}


@pytest.mark.parametrize("text", JSONS.values(), ids=JSONS)
@pytest.mark.parametrize("file", ["../index.json", "manifest.json"])
def test_json_that_means_harm(text, file, cell, canary):
    (cell / file).write_text(text)
    assert os.path.basename(file) in refused("compare", "paper", cell.parents[1], cwd=cell)


def test_an_entry_that_leads_to_another_folder(cell, tmp_path):
    secret = write_cell(tmp_path / "secret", "of_another", evaluation=eval_rows({1: {"a": 0.987}}))
    index = json.loads((cell.parents[1] / "index.json").read_text())
    for place in (str(secret), os.path.relpath(secret, cell.parents[1])):
        index["entries"][0]["cell"] = place
        write_json(cell.parents[1] / "index.json", index)  # an attacker can seal it too
        said = refused("compare", cell.parents[1], cwd=cell)
        assert "98.7" not in said and "is not the name of a cell" in said


def test_a_run_does_not_write_through_a_link(tmp_path):
    write_suite(tmp_path)
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "r" / "tiny").mkdir(parents=True)
    (tmp_path / "r" / "tiny" / ".index.json.lock").symlink_to(tmp_path / "precious")
    done = run(cwd=tmp_path)
    assert done.exit_code == 2 and ".index.json.lock: a link" in done.output
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("command", ["run", "merge"])
@pytest.mark.parametrize("name", ["", "small-fedra"])
def test_no_command_writes_through_a_link(command, name, cell, tmp_path):
    """A suite's folder that is a link, or one in it, among results that somebody else has packed."""
    write_suite(tmp_path)
    (tmp_path / "elsewhere" / "empty").mkdir(parents=True)
    link = tmp_path / "r" / {"run": "tiny", "merge": "s"}[command] / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    words = {
        "run": ("run", "tiny.yaml", "--plugin", TINY, "--results", "r"),
        "merge": ("merge", "results", "--into", "r"),
    }
    assert f"{link.name}: a link" in refused(*words[command], cwd=tmp_path)
    assert [path.name for path in (tmp_path / "elsewhere").rglob("*")] == ["empty"]


@pytest.mark.parametrize("absolute", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_sets_no_file_of_another_folder_aside(absolute, tmp_path):
    """A manifest that calls a file elsewhere one of its cell's, and damaged."""
    write_suite(tmp_path)
    assert run(cwd=tmp_path).exit_code == 0
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (written,) = manifests(tmp_path / "r").values()
    cell = tmp_path / "r" / "tiny" / "cells" / written["id"]
    cell.mkdir(parents=True, exist_ok=True)  # one that is at work again
    there = str(precious) if absolute else "../../../../precious"
    write_json(cell / "manifest.json", {**written, "files": {there: {"size": 1, "sha256": ""}}})
    run(cwd=tmp_path)
    assert precious.read_text() == "mine"


def test_a_pickle_for_an_image(tmp_path, canary):
    for kind in ("cat", "dog"):
        for name in ("1.png", "2.png"):
            (tmp_path / "set" / "one" / kind).mkdir(parents=True, exist_ok=True)
            (tmp_path / "set" / "one" / kind / name).write_bytes(pickled(canary))
    said = refused("data", "prepare", "image_folder", "--root", tmp_path / "set", cwd=tmp_path)
    assert ".png" in said
