"""Where benchmarks of a session leave their figures: a table on the terminal, and `--figures FILE`.

The fixtures of the tests, an own cache among them, are those of benchmarks too.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from figures import Figures

TESTS = Path(__file__).parents[1] / "tests"


def pytest_addoption(parser):
    parser.addoption("--figures", type=Path, metavar="FILE", help="write what benchmarks measured to FILE, as JSON")


def pytest_configure(config):
    """Registers `tests/conftest.py` under another name than this file's."""
    spec = importlib.util.spec_from_file_location("conftest_of_tests", TESTS / "conftest.py")
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)
    config.pluginmanager.register(fixtures, spec.name)


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
