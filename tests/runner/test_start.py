"""How a run begins: from a script, with a tracker that breaks, with data that cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import TINY, cell_of, environment, fedbench, loosen, run, write_suite, written

from fedbench.results import content_hash, read_manifest, write_manifest


def test_a_papers_numbers_lie_beside_the_index_as_the_suite_now_has_them(tmp_path):
    path = tmp_path / "r/tiny/index.json"
    senseless = "{name: senseless, extends: odd, how: not_applicable}"
    write_suite(tmp_path, senseless)
    done = run(cwd=tmp_path)
    assert done.exit_code == 0 and "n/a" in done.stdout, "what is not applicable is no failure"
    assert json.loads(path.read_text())["expected"] == []
    for value in (86.48, 12.5):
        row = f"{{dataset: nicopp, backbone: vit, method: senseless, metric: average, value_percent: {value}}}"
        write_suite(tmp_path, senseless, {"suite: tiny": f"suite: tiny\nexpected: [{row}]"})
        assert json.loads(run("--json", cwd=tmp_path).stdout)["ran"] == 0
        (found,) = json.loads(path.read_text())["expected"]
        assert (found["scenario"], found["value_percent"]) == ("small", value)
    assert "fedbench compare paper r/tiny" in run(cwd=tmp_path).stdout


def test_a_broken_tracker_is_named_and_spoils_no_result(tmp_path):
    (tmp_path / "tracker.py").write_text(
        "from fedbench import hookimpl\n\n"
        "@hookimpl\ndef fedbench_suite_started(suite):\n    raise OSError('no server')\n\n"
        "@hookimpl\ndef fedbench_cell_finished(manifest):\n    raise OSError('none here')\n"
    )
    write_suite(tmp_path, "allsmall")
    done = run("--plugin", "tracker.py", cwd=tmp_path)
    assert done.exit_code == 0
    assert "fedbench_suite_started broke: OSError: no server" in done.stderr
    assert "1 finished cell printed something: r/tiny/cells/*/output.txt" in done.stdout
    printed = (cell_of(tmp_path / "r", "allsmall") / "output.txt").read_text()  # by the worker
    assert "fedbench_cell_finished broke: OSError: none here" in printed


@pytest.mark.slow
def test_a_script_without_a_main_guard_can_call_run(tmp_path):
    write_suite(tmp_path, "allsmall")
    (tmp_path / "script.py").write_text(
        f"import fedbench\nprint(fedbench.run('tiny.yaml', plugins=[{str(TINY)!r}], results='r').outcome.counts)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "Counter({'finished': 1})", done.stderr


def test_data_faults_end_the_run_before_the_first_cell(tmp_path):
    _image_tree(tmp_path / "pictures")
    (tmp_path / "pictures/one/a/0.png").write_bytes(b"no image")
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: image_folder, root: pictures, unreadable: fail}"})
    done = run(cwd=tmp_path)
    assert done.exit_code == 2
    assert "pictures/one/a/0.png: not an image" in done.stderr
    assert not (tmp_path / "r").exists()


def test_images_that_are_left_out_are_told_counted_and_kept(tmp_path):
    _image_tree(tmp_path / "pictures")
    data = "data: {name: image_folder, root: pictures, unreadable: skip}"
    write_suite(tmp_path, "allsmall", {"data: dots": data})
    (tmp_path / "pictures/one/a/0.png").write_bytes(b"no image")
    (tmp_path / "pictures/two/b/3.png").unlink()
    (tmp_path / "pictures/two/b/3.png").symlink_to("../../../.git/annex/objects/3.png")
    ran = run(cwd=tmp_path).stdout
    (manifest,) = written(tmp_path / "r")
    assert manifest["left_out"] == {"images": 2, "of": 16}
    for said in (ran, fedbench("compare", "r", cwd=tmp_path).stdout):
        shown = " ".join(said.split())
        assert "2 of 16 images of the data set cannot be read and were left out (`unreadable: skip`)" in shown
    hashed = content_hash(tmp_path / "r")
    loosen(tmp_path / "r/tiny")
    path = cell_of(tmp_path / "r", "allsmall") / "manifest.json"
    manifest = read_manifest(path.parent)
    counted = manifest.pop("left_out")
    write_manifest(path.parent, {**manifest, "not_said": counted})
    assert content_hash(tmp_path / "r") != hashed  # any other word would be part of it
    write_manifest(path.parent, manifest)
    assert content_hash(tmp_path / "r") == hashed  # a cell of an older fedbench, which did not count


def _image_tree(root: Path) -> None:
    from PIL import Image

    for i, place in enumerate(f"{d}/{c}" for d in ("one", "two") for c in "ab"):
        (root / place).mkdir(parents=True)
        for k in range(4):
            Image.new("RGB", (8, 8), (40 * i, 60 * k, 0)).save(root / place / f"{k}.png")


def test_too_few_capacities_for_the_clients_a_partition_makes(tmp_path):
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: dots, partition: halves}"})
    done = run(cwd=tmp_path)
    assert done.exit_code == 2, done.output
    assert "2 values for 4 clients" in done.stderr
    assert not os.path.exists(tmp_path / "r")
