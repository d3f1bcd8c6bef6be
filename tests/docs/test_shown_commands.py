"""Every command of the pages and of `--help` that reads results runs, where the repository keeps those results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command import fedbench
from test_pages import command_lines, examples_of_help

REFERENCE = Path(__file__).parents[2] / "results/reference"


@pytest.fixture
def here(tmp_path):
    """A folder in which results/ has the reference results, as if all of them had been run there."""
    folder = tmp_path / "results"
    folder.mkdir()
    for kept in (REFERENCE, *filter(Path.is_dir, REFERENCE.iterdir())):
        (folder / kept.name).symlink_to(kept)
    return tmp_path


def shown(*commands: str) -> list[str]:
    """The command lines that begin so and name results that are there."""
    lines = {re.split(r"\s#\s| > ", line)[0].strip() for _, line, _ in [*command_lines(), *examples_of_help()]}
    found = []
    for line in sorted(lines):
        places = re.findall(r"(?<=\s)(?:results/)+(?:reference/)?([\w.-]+)", line)
        if (
            line.startswith(commands)
            and places
            and line != "compare paper results/quickstart"
            and "reproduced" not in line
            and all((REFERENCE / place).is_dir() for place in places)
        ):
            found.append(line)
    return found


def failing(lines: list[str], here: Path) -> list[str]:
    wrong = []
    for line in lines:
        done = fedbench(*shlex.split(line), cwd=here)
        if done.exit_code != 0:
            wrong.append(f"fedbench {line}: exit code {done.exit_code}: {done.output[-300:]}")
    return wrong


@pytest.mark.slow
def test_every_view_that_is_shown_can_be_printed(here):
    lines = shown("compare")
    wrong = failing(lines, here)
    assert len(lines) > 30 and not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_every_picture_and_page_that_is_shown_can_be_made(here):
    lines = [line for line in shown("plot", "report") if "tsne" not in line]  # which takes the models, not kept here
    wrong = failing(lines, here)
    assert len(lines) > 12 and not wrong, "\n".join(wrong)
