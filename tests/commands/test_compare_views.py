"""`fedbench compare VIEW`: what each view takes, and the options by which views were asked for before."""

from __future__ import annotations

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.commands.compare import OPTIONS, VIEWS, compare

GIVEN = {"metric": "loss", "at": "best", "baseline": "fedra", "equivalent": "2"}
OWN = {"reach": ["80%"], "pareto": ["bytes"], "images": ["fedra", "depthfl"]}


@pytest.fixture
def folder(tmp_path):
    for method, score in (("fedra", 0.5), ("depthfl", 0.4)):
        write_cell(tmp_path / "s", method, evaluation=eval_rows({1: {"a": score}}))
    return tmp_path


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_option_is_taken_or_refused(folder, view, option):
    words = (view, *OWN.get(view, ()), "s", f"--{option}", GIVEN[option])
    told = fedbench("compare", *words, cwd=folder).output
    assert ("No such option" in told) == (option not in VIEWS[view].takes)


@pytest.mark.parametrize("view", ["boards", "summary", "costs", "ranks", "reach", "pareto"])
def test_a_view_prints_what_its_old_option_prints(folder, view):
    own = OWN.get(view, ())
    new = fedbench("compare", view, *own, "s", cwd=folder)
    old = fedbench("compare", "s", f"--{view}", *own, cwd=folder)
    assert (new.exit_code, new.output) == (old.exit_code, old.output) and new.exit_code == 0


def test_the_first_word_may_be_a_folder_and_views_are_listed(folder):
    assert "fedra" in fedbench("compare", "s", cwd=folder).output
    assert fedbench("compare", "hash", "s", cwd=folder).output == fedbench("compare", "s", "--hash", cwd=folder).output
    told = fedbench("compare", "--help", cwd=folder).output
    assert all(f"  {name} " in told for name in VIEWS) and "--baseline METHOD" in told
    assert "leaderboards " not in told.partition("Commands:")[2]
    assert set(compare.commands) == {*VIEWS, "hash", "leaderboards"}
    write_cell(folder / "pairs", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    assert "fedra" in fedbench("compare", "./pairs", cwd=folder).output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tuning", "--baseline", "nosuch"), "compare tuning does not ask for it: leave out --baseline"),
        (("--tuning", "--metric", "nosuch"), "leave out --metric"),
        (("--summary", "--baseline", "fedra"), "leave out --baseline"),
        (("--pairs", "--costs"), "pairs and costs are separate views: choose one"),
        (("--hash", "--pairs", "--metric", "nosuch"), "leave out --metric"),
        (("--hash", "--where", "average > 3"), "leave out --where"),
    ],
)
def test_what_means_nothing_to_an_old_option_is_never_passed_over(folder, words, told):
    done = fedbench("compare", "s", *words, cwd=folder)
    assert done.exit_code == 2 and told in " ".join(done.stderr.split())
