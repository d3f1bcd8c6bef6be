"""fedbench/report/views.py: which options say something to which view, and what is said to those that do not."""

from __future__ import annotations

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.commands.compare import VIEWS
from fedbench.errors import UserError
from fedbench.report.views import TAKES, USUAL, WHY, refuse

GIVEN = {"metric": "loss", "at": "best", "baseline": "fedra", "equivalent": 2.0}


@pytest.mark.parametrize("option", USUAL)
@pytest.mark.parametrize("kind", ["", *(f"--{name}" for name in VIEWS)])
def test_every_option_is_taken_or_refused(kind, option):
    asked = {**USUAL, option: GIVEN[option]}
    if option in TAKES[kind]:
        refuse(kind, asked)
    else:
        with pytest.raises(UserError, match=f"^{kind} .*: leave out --{option}"):
            refuse(kind, asked)


def test_views_and_reasons_are_those_that_there_are():
    assert set(TAKES) == {"", *(f"--{name}" for name in VIEWS)} and set(USUAL) == set(GIVEN)
    assert {told.rpartition(" ")[2] for told in WHY} == set(USUAL)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tuning", "--baseline", "nosuch"), "--tuning has no gaps to a baseline: leave out --baseline"),
        (("--tuning", "--metric", "nosuch"), "leave out --metric"),
        (("--ranks", "--baseline", "fedra"), "leave out --baseline"),
        (("--summary", "--baseline", "fedra"), "leave out --baseline, or say --boards or --pairs"),
        (("--hash", "--pairs", "--metric", "nosuch"), "leave out --metric"),
        (("--hash", "--where", "average > 3"), "leave out --where"),
        (("s", "--changes", "--baseline", "fedra"), "no baseline but the first PATH"),
    ],
)
def test_what_means_nothing_is_never_passed_over(tmp_path, words, told):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    done = fedbench("compare", "s", *words, cwd=tmp_path)
    assert done.exit_code == 2 and told in " ".join(done.stderr.split())
    assert fedbench("compare", "s", "--hash", cwd=tmp_path).exit_code == 0
