"""Where benchmarks of a session leave their figures: a table on the terminal, and `--figures FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest
from figures import Figures


def pytest_addoption(parser):
    parser.addoption("--figures", type=Path, metavar="FILE", help="write what benchmarks measured to FILE, as JSON")


@pytest.fixture(scope="session")
def figures(request):
    return request.config.stash.setdefault(FIGURES, Figures())


FIGURES = pytest.StashKey[Figures]()


def pytest_terminal_summary(terminalreporter, config):
    measured = config.stash.get(FIGURES, None)
    if measured is None or not measured.lines:
        return
    for line in measured.lines:
        terminalreporter.write_line(line)
    path = config.getoption("--figures", None)
    if path:
        measured.write(path)
        terminalreporter.write_line(f"\nwritten to {path}")
