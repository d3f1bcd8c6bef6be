"""Every view on terminals of odd widths and encodings: no traceback, no number lost."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from click.testing import CliRunner
from factories import write_suite

from fedbench.cli import main

VIEWS = ([], ["summary"], ["pairs"], ["costs"], ["reach", "10%"])
WIDTHS = ("0", "1", "39", "100000", "wide")
ENCODINGS = ("ascii", "utf-16")
# Each view at one width and each width with the leaderboard; pairs, whose columns of names are folded, at some more.
OFTEN = {
    *((" ".join(view), "39") for view in VIEWS),
    *(("", width) for width in WIDTHS),
    ("pairs", "1"),
    ("pairs", "0"),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return write_suite(tmp_path_factory.mktemp("results") / "süite·[bold]")


def shown(suite, view, columns, charset):
    words = ["compare", *view, str(suite)]
    with patch("sys.argv", ["fedbench", *words]):
        return CliRunner(charset=charset).invoke(main, words, env={"COLUMNS": columns}, catch_exceptions=False)


@pytest.mark.parametrize(
    ("columns", "view"),
    [
        pytest.param(
            columns,
            view,
            id=f"{columns}-{' '.join(view)}",
            marks=() if (" ".join(view), columns) in OFTEN else pytest.mark.slow,
        )
        for columns in WIDTHS
        for view in VIEWS
    ],
)
def test_a_view_of_any_width_has_all_methods(suite, view, columns):
    done = shown(suite, view, columns, "utf-8")
    letters = "".join(done.output.split())
    assert done.exit_code == 0 and "fedra" in letters
    assert "inclusivefl" in letters or view == ["pairs"] and int(columns) < 30, "where two columns of names are folded"


@pytest.mark.parametrize("view", [[], ["pairs"]], ids=" ".join)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_view_in_any_encoding_has_all_methods(suite, view, encoding):
    done = shown(suite, view, "100", encoding)
    assert done.exit_code == 0 and "inclusivefl" in done.output
