"""README.md and AGENTS.md: their commands, example, tables, citation and map."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from sitemaking.components import own
from sitemaking.quoted import families, methods, pairs, repository

README = Path("README.md").read_text(encoding="utf-8")
CONTRIBUTING = Path("CONTRIBUTING.md").read_text(encoding="utf-8")


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_ci_runs_the_readmes_test_command():
    (command,) = [block.strip() for block in fenced("sh") if "pytest" in block and "venv" in block]
    assert command in Path(".ci/run").read_text(encoding="utf-8") and command in CONTRIBUTING


def test_the_example_method_has_fifteen_lines_and_keeps_its_promise(tmp_path):
    (example,) = [block for block in fenced("python") if "fedbench_register_methods" in block]
    assert len(example.strip().splitlines()) <= 15
    file = tmp_path / "anchored.py"
    file.write_text(example)
    registry = Registry([str(file)])
    method = registry.make("method", {"name": "anchored"}, setup=setup_of(registry, tiny_vit(), [4, 3, 2, 1]))
    state, held = method.init(generator(0)), []
    for t in range(12):
        state, report = method.round(state, t, cohort_of([4, 3, 2, 1]), generator(0, t))
        assert report.plan.M.sum(dim=1).tolist() == [4, 3, 2, 1]
        assert report.plan.M[:, 0].all(), "everybody holds the first layer"
        held.append(report.plan.M[1:3, 1:])
    assert torch.stack(held).any(dim=0).all(), "the others are drawn again in each round"


def newcomers_path() -> tuple[list[str], list[str]]:
    """The commands that install, and those from there to a leaderboard with a method of one's own."""
    (first,) = [block for block in fenced("sh") if "pip install" in block and "fedbench run" in block]
    (own,) = re.findall(r"`(fedbench run [^`]*anchored.py[^`]*)`", README)
    install = [part for part in first.replace("\n", " && ").split(" && ") if part and "fedbench run" not in part]
    return install, [own]


def test_a_method_of_ones_own_is_six_commands_away():
    install, own = newcomers_path()
    clone, _, venv, _, pip = install
    assert clone == f"git clone {repository()}" and "venv" in venv and "pip install" in pip
    assert len(install) + len(own) <= 6


@pytest.mark.slow
def test_the_newcomers_commands_end_with_a_leaderboard(tmp_path):
    program = tmp_path / "bin/fedbench"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom fedbench.cli import main\nmain()\n")
    program.chmod(0o755)
    path = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    (example,) = [block for block in fenced("python") if "fedbench_register_methods" in block]
    (tmp_path / "anchored.py").write_text(example)
    script = "\n".join(f"{command} --set train.rounds=1" for command in newcomers_path()[1])
    done = subprocess.run(
        ["sh", "-e"], input=script, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^anchored +\d", done.stdout, flags=re.MULTILINE), "it has a row of its own"


@pytest.mark.parametrize("page", ["README.md", "docs/findings.md", "docs/findings_tables.md", "docs/leaderboard.md"])
def test_every_figure_of_a_table_is_in_the_reference_results(page):
    """Tables under `<!-- fedbench compare ... -->` are what that command prints from the committed results."""
    from click.testing import CliRunner

    from fedbench.cli import main

    text = Path(page).read_text("utf-8")
    quoted = re.findall(r"<!-- fedbench (compare .*?) -->\n```\n(.*?)\n```", text, flags=re.DOTALL)
    assert quoted
    for command, table in quoted:
        printed = CliRunner(env={"COLUMNS": None}).invoke(main, shlex.split(command)).output
        assert unpadded(table) in unpadded(printed), command


def unpadded(table: str) -> str:
    """A table without the width of its columns, which older versions of rich make a blank wider."""
    return re.sub(r"─+", "─", "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in table.splitlines()))


def test_tables_of_differences_are_those_of_the_reference_results():
    text = "".join(Path("docs", page).read_text("utf-8") for page in ("findings.md", "findings_tables.md"))
    quoted = re.findall(r"<!-- pairs (\S+) (\w+)((?: \w+)*) -->\n(.*?)\n\n", text + "\n", flags=re.DOTALL)
    assert quoted
    for folder, method, others, table in quoted:
        assert table == pairs(folder, method, others.split()), (folder, method)


def test_pages_that_are_read_first_are_short():
    assert len(README.splitlines()) <= 110
    assert len(Path("AGENTS.md").read_text("utf-8").splitlines()) <= 40


def test_the_table_of_methods_is_that_of_the_catalogue():
    assert f"<!-- methods -->\n{methods()}\n\n" in README
    names = {name for name, component in own().components["method"].items()}
    assert {method.name for _, here in families().values() for method in here} == names


def test_it_is_cited_as_the_citation_file_has_it():
    citation = YAML(typ="safe").load(Path("CITATION.cff").read_text("utf-8"))
    (bibtex,) = fenced("bibtex")
    for key in ("title", "version", "license"):
        assert f"{{{citation[key]}}}" in bibtex
    assert citation["authors"][0]["name"] in bibtex


def test_the_map_names_every_folder_and_no_other():
    (tree,) = re.findall(r"^```\n(fedbench/ .*?)```", Path("AGENTS.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    tops = ("fedbench", "plugins", "suites", "results", "tests", "docs", "benchmarks")
    rooms = [path for top in ("fedbench", "plugins") for path in Path(top).iterdir() if list(path.glob("*.py"))]
    assert sorted(re.findall(r"(\w+)/", tree)) == sorted([*tops, *(room.name for room in rooms)])
    assert len(tree.splitlines()) <= 10
