"""Whatever the user got wrong: one screen of message with its place, and exit code 2, before anything is written."""

from __future__ import annotations

import os
import re

import pytest
from command import TINY, fedbench, run, write_suite
from PIL import Image

SCREEN = 24


def refused(done, *told: str) -> str:
    """The message of a command that ended with exit code 2 in at most one screen, and says all of `told`."""
    message = done.stderr
    assert done.exit_code == 2, done.output
    assert len(message.splitlines()) <= SCREEN
    assert "Traceback" not in message
    for text in told:
        assert text in message
    return message


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("capacities:", "capacites:", ("tiny.yaml:6:", "capacities")),
        ("rounds: 2", "rounds: two", ("tiny.yaml:7:", "rounds", "two")),
        ("rounds: 2", "rounds: -1", ("tiny.yaml:7:", "rounds")),
        ("capacities: [2, 1]", "capacities: [3, 1]", ("tiny.yaml:6:", "capacity 3 is above the 2 layers of tiny")),
        ("capacities: [2, 1]", "capacities: [2, 1, 1]", ("tiny.yaml:6:", "3 capacities given")),
        ("methods: [fedra]", "methods: [fedar]", ("no method is called", "did you mean", "fedra")),
        ("methods: [fedra]", "methods: []", ("methods",)),
        ("backbone: tiny", "backbone: Tinny", ("no backbone is called 'Tinny'; did you mean tiny",)),
        ("backbone: tiny", "backbone: vit_bse_patch16_224", ("vit_bse_patch16_224", "vit_base_patch16_224")),
        ("data: dots", "data: dotts", ("no dataset is called", "dots")),
        ("data: dots", "data: {name: dots, per_clas: 3}", ("per_clas", "per_class")),
        ("methods: [fedra]", "methods: [fedra", ("tiny.yaml",)),
    ],
)
def test_what_is_wrong_in_a_suite_is_told_with_its_place(tmp_path, old, new, told):
    write_suite(tmp_path, "fedra", {old: new})
    refused(run(cwd=tmp_path), *told)
    assert not (tmp_path / "r").exists()


def pictures(root, skip: str = ""):
    for place in ("one/a", "one/b", "two/a", "two/b"):
        if place != skip:
            (root / place).mkdir(parents=True)
            for k in range(3):
                Image.new("RGB", (8, 8), (80 * k, 0, 0)).save(root / place / f"{k}.png")


def damage_empty(root):
    root.mkdir()


def damage_image(root):
    pictures(root)
    file = root / "one/a/1.png"
    file.write_bytes(file.read_bytes()[:40])


def damage_nothing_there(root):
    pass


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (damage_empty, ("pictures holds no folders",)),
        (damage_image, ("pictures/one/a/1.png", "unreadable: skip")),
        (damage_nothing_there, ("pictures does not exist",)),
    ],
)
def test_what_is_wrong_with_images_is_told_before_anything_runs(tmp_path, damage, told):
    damage(tmp_path / "pictures")
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: image_folder, root: pictures}"})
    refused(run(cwd=tmp_path), *told)
    assert not (tmp_path / "r").exists()


def test_images_that_cannot_be_read_are_told_once_where_the_data_is_named(tmp_path):
    damage_image(tmp_path / "pictures")
    (tmp_path / "pictures/one/a/gone.png").symlink_to("nowhere")
    write_suite(tmp_path, "fedra, allsmall", {"data: dots": "data: {name: image_folder, root: pictures}"})
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)
    refused(done, "tiny.yaml:5:16: 2 of ", "gone.png: a link that leads nowhere", "1.png: ")
    assert done.stderr.count("cannot be read") == 1


def test_a_folder_in_place_of_a_suite(tmp_path):
    (tmp_path / "study").mkdir()
    refused(fedbench("plan", "study", cwd=tmp_path), "study is a folder, and no suite")
    write_suite(tmp_path / "study")
    refused(fedbench("plan", "study", cwd=tmp_path), "study is a folder; did you mean study/tiny.yaml?")


def test_a_data_set_of_one_s_own_without_its_place(tmp_path):
    refused(
        fedbench("data", "check", "text_table", cwd=tmp_path),
        "text_table is data of your own: say where they are with --root",
    )


def test_a_results_folder_below_a_file(tmp_path):
    write_suite(tmp_path)
    (tmp_path / "file").write_text("mine")
    refused(run("--results", "file/r", cwd=tmp_path), "file/r", "cannot be written", "--results")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_results_folder_without_the_right_to_write(tmp_path):
    write_suite(tmp_path)
    (tmp_path / "r").mkdir(mode=0o500)
    refused(run(cwd=tmp_path), "cannot be written", "--results")


def test_a_results_folder_with_foreign_files(tmp_path):
    write_suite(tmp_path)
    (tmp_path / "r" / "tiny").mkdir(parents=True)
    (tmp_path / "r" / "tiny" / "thesis.tex").write_text("mine")
    refused(run(cwd=tmp_path), "thesis.tex", "Nothing was changed")
    assert os.listdir(tmp_path / "r" / "tiny") == ["thesis.tex"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "nonsense"), ("--set nonsense", "dotted.key=value")),
        (("--set", "train.round=3"), ("round", "rounds")),
        (("--set", "train.rounds=many"), ("rounds", "many")),
        (("--jobs", "0"), ("--jobs", "from 1")),
        (("--jobs", "few"), ("--jobs", "few")),
        (("--jobs", "²"), ("--jobs", "²")),
        (("--jobs", "9" * 5000), ("--jobs", "999")),
        (("--shard", "²/³"), ("--shard", "²/³")),
        (("--timeout", "0"), ("--timeout",)),
        (("--timeout", "nan"), ("--timeout", "nan")),
        (("--checkpoint", "inf"), ("--checkpoint", "inf")),
        (("--memory-limit", "4"), ("--memory-limit", "600MB or 4GB", "'4'")),
        (("--memory-limit", "0GB"), ("--memory-limit", "'0GB'")),
        (("--max-failures", "0"), ("--max-failures",)),
        (("--scenario", "smal"), ("no scenario", "small")),
        (("--method", "fedar"), ("no method", "fedra")),
        (("--seed", "-1"), ("seed -1",)),
        (("--seed", "one"), ("--seed",)),
        (("--profile", "book"), ("--profile",)),
        (("--data", "nowhere"), ("--data nowhere",)),
        (("--executor", "loca"), ("no executor", "local")),
        (("--executor", "{name: ray, adress: auto}"), ("--executor", "adress", "address")),
        (("--executor", "{name: ray, cpus_per_cell: many}"), ("--executor", "cpus_per_cell", "a whole number")),
        (("--executor", "{name: local, workers: 3}"), ("--executor", "workers")),
        (("--executor", "{name: ray"), ("--executor", "not a YAML value")),
        (("--gpu-fraction", "2"), ("--gpu-fraction",)),
        (("--plugin", "absent.py"), ("absent.py", "no such file")),
        (("--methods", "fedra"), ("--methods", "--method fedra")),
        (("--set", "defaults.train.rounds=3"), ("settings stand without defaults: train.rounds=VALUE",)),
        (("--rounds", "3"), ("--rounds 3: there is no such option; say --set train.rounds=3",)),
        (("--lr", "0.1"), ("say --set train.optimizer.lr=0.1",)),
        (("--seed", "0", "1", "2"), ("unexpected extra arguments (1 2)", "--seed 0,1,2")),
        (("--seed", "0,one"), ("--seed one: expected a whole number, or several with commas",)),
        (("--method", "fedra,fedar"), ("no method", "did you mean", "fedra")),
        (("--timeout", "5 parsecs"), ("--timeout: '5 parsecs' is not a length of time. Write 1h 30min",)),
    ],
)
def test_what_is_wrong_on_the_command_line(tmp_path, words, told):
    write_suite(tmp_path)
    refused(run(*words, cwd=tmp_path), *told)
    assert not (tmp_path / "r").exists()


def test_compare_is_called_what_people_type(tmp_path):
    told = fedbench("compare", "--bogus", cwd=tmp_path).output
    assert re.search("compare (-h|--help)'", told) and "leaderboards" not in told


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_suite_that_is_not_there_or_no_file(tmp_path, command):
    refused(fedbench(command, "tiny.yaml", cwd=tmp_path), "tiny.yaml")
    (tmp_path / "mine.yaml").touch()
    refused(fedbench(command, "mine.yml", cwd=tmp_path), "mine.yml: there is no such file; did you mean mine.yaml?")
    (tmp_path / "tiny.yaml").mkdir()
    refused(fedbench(command, "tiny.yaml", cwd=tmp_path), "tiny.yaml")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    refused(fedbench(command, "binary.yaml", cwd=tmp_path), "binary.yaml")


def test_an_unknown_command_gets_the_nearest(tmp_path):
    refused(fedbench("comparre", cwd=tmp_path), "did you mean 'compare'?")
    refused(fedbench("xyz", cwd=tmp_path), "run, deploy, plan, compare")


def test_compare_without_results(tmp_path):
    refused(fedbench("compare", "nowhere", cwd=tmp_path), "nowhere: no such folder", "fedbench run")


LONG = "x" * 300  # longer than the name of a file may be


@pytest.mark.parametrize(
    "words",
    [
        ("compare", LONG), ("compare", "hash", LONG), ("plot", "curves", LONG),
        ("export", LONG, "--format", "peft"), ("merge", LONG, "--into", "new"), ("doctor", "--results", LONG),
        ("run", "tiny.yaml", "--plugin", TINY, "--results", LONG), ("run", LONG), ("plugins", "check", f"{LONG}.py"),
        ("data", "check", "image_folder", "--root", LONG), ("schema", "--plugin", f"{LONG}.py"),
    ],
    ids=lambda words: " ".join(map(str, words))[:20],
)  # fmt: skip
def test_a_path_that_the_system_refuses(tmp_path, words):
    write_suite(tmp_path)
    done = fedbench(*words, cwd=tmp_path)
    assert done.exit_code == 2, done.output
    said = done.output.replace("\n", " ")
    assert "xxx" in said and ("name too long" in said or re.search("no (such )?file", said))


def test_an_unknown_component_or_kind(tmp_path):
    refused(fedbench("plugins", "show", "fedar", cwd=tmp_path), "did you mean 'fedra'?")
    refused(fedbench("plugins", "show", "FedRA", cwd=tmp_path), "did you mean 'fedra'?")
    refused(fedbench("plugins", "list", "--kind", "methods", cwd=tmp_path), 'did you mean "method"?; kinds are')
