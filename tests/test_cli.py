"""The command line: its help, what it prints, and how fast it is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command import MAIN, fedbench, run, write_suite

from fedbench import api
from fedbench.cli import main
from fedbench.commands import COMMANDS
from fedbench.errors import UserError

ROOT = Path(__file__).parents[1]


def commands(group=main, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


GROUPS = sorted({words[:-1] for words in commands()})


@pytest.mark.parametrize("words", [*commands(), *GROUPS], ids=" ".join)
def test_help_fits_a_terminal_shows_an_example_and_says_what_every_option_is_for(tmp_path, words):
    done = fedbench(*words, "--help", cwd=tmp_path, columns=80)
    assert done.exit_code == 0
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert "  " + " ".join(["fedbench", *words]) in done.stdout.split("Usage:")[1].split("\n", 1)[1]
    command, context = main, click.Context(main)
    for word in words:
        command = command.get_command(context, word)
    shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert [option.name for option in shown if not option.help] == []


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(tmp_path, words):
    listed = fedbench(*words, "--help", cwd=tmp_path, columns=80).stdout.partition("Commands:")[2]
    assert listed and "..." not in listed


def test_the_help_of_run_names_every_exit_code(tmp_path):
    told = " ".join(fedbench("run", "--help", cwd=tmp_path).stdout.split())
    for code in (
        "0 if all is fine",
        "1 if some cells failed or are left",
        "2 if the input",
        "130 ",
        "143 after",
        "129 after",
    ):
        assert code in told.partition("Exit code:")[2]


def test_the_first_help_names_every_command(tmp_path):
    done = fedbench("--help", cwd=tmp_path)
    assert all(f"\n  {name}" in done.stdout for name in COMMANDS)
    assert len(done.stdout.splitlines()) <= 16 + len(COMMANDS) + 1  # a line for each, that of the plugin's too


OF_FEDBENCH = """\
suite: own
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 2, train_per_class: 4, test_per_class: 2}
  capacities: [6, 6, 6, 6, 6, 6]
  train: {rounds: 1, max_steps: 1, batch_size: 2}
scenarios: {small: {}}
methods: [fedra]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("finished")
    write_suite(folder)
    assert run("--quiet", cwd=folder).exit_code == 0
    (folder / "own.yaml").write_text(OF_FEDBENCH)
    assert fedbench("plan", "own.yaml", cwd=folder).exit_code == 0  # costs are known from now on
    return folder


QUICK = [["--help"], ["run", "--help"], ["plugins", "list"], ["plan", "own.yaml"]]
OF_ONE_SEED = [["compare", "r"], ["compare", "r", "--format", "csv"]]
TESTED = [["compare", *view, str(ROOT / "results/reference/devices")] for view in ([], ["pairs"], ["costs"])]


def test_commands_import_what_they_need_alone(finished):
    """Tables are frames of pandas, and where there are intervals scipy has Student's t; nothing here needs torch."""
    script = (
        "import sys\n"
        "from fedbench.cli import main\n"
        f"for words in {[*QUICK, *OF_ONE_SEED, *TESTED]!r}:\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as end:\n        assert not end.code, words\n"
        "    heavy = {'torch', 'pandas', 'scipy', 'timm', 'ruamel.yaml'} & set(sys.modules)\n"
        "    print(words, sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=finished, capture_output=True, text=True, check=True)
    told = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert told == [
        *(f"{words} []" for words in QUICK[:-1]),
        *(f"{words} ['pandas', 'ruamel.yaml']" for words in [QUICK[-1], *OF_ONE_SEED]),
        *(f"{words} ['pandas', 'ruamel.yaml', 'scipy']" for words in TESTED),
    ]


def test_the_command_line_begins_without_results_and_tables():
    asked = "import sys, fedbench.cli; print({'rich.console', 'fedbench.results'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", asked], text=True) == "set()\n"


def test_what_a_terminal_cannot_print_ends_no_command(finished):
    """A folder whose name is no text, and a terminal that knows neither lines nor Greek letters."""
    odd = os.fsencode(finished) + b"/\xff"
    os.symlink("r", odd)
    done = subprocess.run(
        [*map(os.fsencode, MAIN), b"compare", odd], cwd=finished, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0 and b"fedra" in done.stdout, done.stderr.decode(errors="replace")


def test_a_component_is_listed_with_its_whole_sentence(tmp_path):
    listed = fedbench("plugins", "list", "--components", "--kind", "allocation", cwd=tmp_path, columns=200).stdout
    assert "FedRA's draw conditioned on full columns, sum_n M_nj > 0 (v1, Eq. 4)" in listed


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
        "Does not depend on capacities, ranks, widths, adapter.",
    ):
        assert words in told
    assert "personal_epochs   null" in options
    listed = fedbench("plugins", "list", "--kind", "method", cwd=tmp_path).output
    assert "lam: lambda" not in " ".join(listed.split())


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_an_error_has_a_colour_unless_none_is_wanted(value, coloured, monkeypatch):
    monkeypatch.setenv("NO_COLOR", value)
    done = CliRunner().invoke(main, ["compare", "nowhere"], color=True)
    assert done.exit_code == 2 and ("\x1b[" in done.stderr) == coloured and "Error:" in done.stderr


@pytest.mark.parametrize("words", [("run", "quickstart"), ("--help",), ("compare",)])
def test_on_windows_one_line_names_wsl(tmp_path, monkeypatch, words):
    monkeypatch.setattr(sys, "platform", "win32")
    done = fedbench(*words, cwd=tmp_path)
    assert done.exit_code == 2 and done.output.count("\n") == 1
    assert done.output.startswith("Error: fedbench does not run on Windows itself. Install WSL 2 (`wsl --install`")


def test_python_on_windows_is_told_the_same(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    for call in (lambda: api.run("quickstart"), lambda: api.load("results")):
        with pytest.raises(UserError, match="WSL 2"):
            call()


def test_what_reads_results_is_imported_where_there_is_no_fcntl():
    """As on Windows, whose Python has neither fcntl nor resource: the one line above is all that people see."""
    others = "click, filelock, numpy, pandas, psutil, pyarrow, pydantic, rich, ruamel.yaml, subprocess, sys"
    hidden = f"import {others}; sys.platform = 'win32'; sys.modules.update(fcntl=None, resource=None, pwd=None)"
    code = f"{hidden}; from fedbench.cli import main; import fedbench; fedbench.load; main(['run', 'quickstart'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "WSL 2" in done.stderr and "Traceback" not in done.stderr
