"""The command line: help, speed, and one screen of message with exit code 2 for whatever the user got wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from command import MAIN, TINY, fedbench, run, write_suite
from PIL import Image

from fedbench.cli import COMMANDS, main

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


def damage_class(root):
    pictures(root, skip="two/b")


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
        (damage_class, ("domain 'two' lacks class 'b', which domain 'one' has",)),
        (damage_image, ("pictures/one/a/1.png", "unreadable: skip")),
        (damage_nothing_there, ("pictures does not exist",)),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_is_wrong_with_images_is_told_before_anything_runs(tmp_path, damage, told, command):
    damage(tmp_path / "pictures")
    write_suite(tmp_path, "fedra", {"data: dots": "data: {name: image_folder, root: pictures}"})
    refused(fedbench(command, "tiny.yaml", "--plugin", TINY, "--results", "r", cwd=tmp_path), *told)
    assert not (tmp_path / "r").exists()


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
        (("--executor", "{name: ray, attempts: many}"), ("--executor", "attempts", "a whole number")),
        (("--executor", "{name: local, workers: 3}"), ("--executor", "workers")),
        (("--executor", "{name: ray"), ("--executor", "not a YAML value")),
        (("--gpu-fraction", "2"), ("--gpu-fraction",)),
        (("--plugin", "absent.py"), ("absent.py", "no such file")),
        (("--methods", "fedra"), ("--methods", "--method")),
    ],
)
def test_what_is_wrong_on_the_command_line(tmp_path, words, told):
    write_suite(tmp_path)
    refused(run(*words, cwd=tmp_path), *told)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_suite_that_is_not_there_or_no_file(tmp_path, command):
    refused(fedbench(command, "tiny.yaml", cwd=tmp_path), "tiny.yaml")
    (tmp_path / "tiny.yaml").mkdir()
    refused(fedbench(command, "tiny.yaml", cwd=tmp_path), "tiny.yaml")
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    refused(fedbench(command, "binary.yaml", cwd=tmp_path), "binary.yaml")


def test_an_unknown_command_gets_the_nearest(tmp_path):
    refused(fedbench("comparre", cwd=tmp_path), "did you mean 'compare'?")
    refused(fedbench("xyz", cwd=tmp_path), "run, plan, compare")


def test_compare_without_results(tmp_path):
    refused(fedbench("compare", "nowhere", cwd=tmp_path), "nowhere: no such folder", "fedbench run")


LONG = "x" * 300  # longer than the name of a file may be


@pytest.mark.parametrize(
    "words",
    [
        ("compare", LONG), ("compare", LONG, "--hash"), ("plot", "curves", LONG), ("invert", LONG),
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
    assert "xxx" in said and ("name too long" in said or "there is no such file" in said)


def test_what_a_terminal_cannot_print_ends_no_command(finished):
    """A folder whose name is no text, and a terminal that knows neither lines nor Greek letters."""
    odd = os.fsencode(finished) + b"/\xff"
    os.symlink("r", odd)
    for encoding, path in (("utf-8:strict", odd), ("ascii", b"r")):
        done = subprocess.run(
            [*map(os.fsencode, MAIN), b"compare", path], cwd=finished, capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0 and b"fedra" in done.stdout, done.stderr.decode(errors="replace")


def test_a_component_is_listed_with_its_whole_sentence(tmp_path):
    listed = fedbench("plugins", "list", "--components", "--kind", "allocation", cwd=tmp_path, columns=200).stdout
    assert "FedRA's draw conditioned on full columns, sum_n M_nj > 0 (v1, Eq. 4)" in listed


def test_an_unknown_component_or_kind(tmp_path):
    refused(fedbench("plugins", "show", "fedar", cwd=tmp_path), "did you mean 'fedra'?")
    refused(fedbench("plugins", "list", "--kind", "methods", cwd=tmp_path), "kinds are", "method")


def commands(group=main, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


GROUPS = sorted({words[:-1] for words in commands()})


@pytest.mark.parametrize("words", [*commands(), *GROUPS], ids=" ".join)
def test_help_shows_an_example(tmp_path, words):
    done = fedbench(*words, "--help", cwd=tmp_path)
    assert done.exit_code == 0
    assert "  " + " ".join(["fedbench", *words]) in done.stdout.split("Usage:")[1].split("\n", 1)[1]


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(tmp_path, words):
    listed = fedbench(*words, "--help", cwd=tmp_path, columns=80).stdout.partition("Commands:")[2]
    assert listed and "..." not in listed


@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_help_fits_a_terminal_and_says_what_every_option_is_for(tmp_path, words):
    done = fedbench(*words, "--help", cwd=tmp_path, columns=80)
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    command, context = main, click.Context(main)
    for word in words:
        command = command.get_command(context, word)
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []


def test_the_help_of_run_names_every_exit_code(tmp_path):
    told = " ".join(fedbench("run", "--help", cwd=tmp_path).stdout.split())
    for code in ("0 all fine", "1 some cells failed or are left over", "2 the input", "130 ", "143 by", "129 by"):
        assert code in told.partition("Exit code:")[2]


def test_the_first_help_names_every_command(tmp_path):
    done = fedbench("--help", cwd=tmp_path)
    assert all(f"\n  {name}" in done.stdout for name in COMMANDS)
    assert len(done.stdout.splitlines()) <= SCREEN + 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("finished")
    write_suite(folder)
    assert run("--quiet", cwd=folder).exit_code == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [("--help",), ("run", "--help"), ("plugins", "list"), ("compare", "r"), ("compare", "r", "--format", "csv")],
    ids=" ".join,
)
def test_quick_commands_import_neither_torch_nor_pandas_nor_scipy(finished, words):
    script = (
        "import sys\n"
        "from fedbench.cli import main\n"
        f"try:\n    main({list(words)!r})\n"
        "finally:\n    print(sorted({'torch', 'pandas', 'scipy', 'timm'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=finished, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_component_is_shown_with_what_its_options_mean(tmp_path):
    """Every paragraph, indented, within the terminal; the list has its first sentence alone."""
    shown = fedbench("plugins", "show", "ditto", cwd=tmp_path).output
    text, _, options = shown.partition(" option ")
    head, *lines = [line.rstrip() for line in text.splitlines()]
    assert head == "ditto, method of fedbench (plugin ditto)"
    assert not [line for line in lines if line and not line.startswith("  ")]
    assert 80 < max(map(len, lines)) <= 100  # what the tests' terminal has
    told = " ".join(" ".join(lines).split())
    for words in (
        "every client keeps a model v_k of its own",
        "lam: lambda, 0.75",
        "personal_epochs: passes over its images",
    ):
        assert words in told
    assert "personal_epochs   null" in options
    listed = fedbench("plugins", "list", "--kind", "method", cwd=tmp_path).output
    assert "lam: lambda" not in " ".join(listed.split())
