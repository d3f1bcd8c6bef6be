"""One browser for all tests of the page, and one page of reference and of made-up results."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import browser_there
from reports import SHOWN, hostile_report, report


@pytest.fixture(scope="session")
def browser():
    path = browser_there()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def page(tmp_path_factory) -> Path:
    """Of two leaderboards with three seeds each."""
    return report(tmp_path_factory.mktemp("page") / "report.html", *SHOWN)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory) -> Path:
    return hostile_report(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def many(tmp_path_factory) -> Path:
    """Of several suites, many leaderboards of which are long."""
    suites = (f"results/reference/{name}" for name in ("extreme_hetero", "feature_skew", "devices", "skippable"))
    return report(tmp_path_factory.mktemp("many") / "report.html", *suites, "--method", "fedra", "--method", "allsmall")
