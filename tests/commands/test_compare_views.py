"""`fedbench compare VIEW`: what each view takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.commands.compare import OPTIONS, VIEWS, compare
from fedbench.results import content_hash

REFERENCE = Path(__file__).parents[2] / "results/reference"
GIVEN = {"metric": "loss", "at": "best", "baseline": "fedra", "equivalent": "2"}
OWN = {"reach": ["80%"], "pareto": ["bytes"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    for method, score in (("fedra", 0.5), ("depthfl", 0.4)):
        write_cell(folder / "s", method, evaluation=eval_rows({1: {"a": score}}))
    return folder


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_every_option_is_taken_or_refused(folder, view, option):
    words = (view, *OWN.get(view, ()), "s", f"--{option}", GIVEN[option])
    told = fedbench("compare", *words, cwd=folder).output
    assert ("No such option" in told) == (option not in VIEWS[view].takes)


@pytest.mark.parametrize("view", ["boards", "summary", "costs", "ranks", "reach", "pareto"])
def test_a_view_prints_and_is_no_option(folder, view):
    own = OWN.get(view, ())
    assert fedbench("compare", view, *own, "s", cwd=folder).exit_code == 0
    refused = fedbench("compare", "s", f"--{view}", *own, cwd=folder)
    assert refused.exit_code == 2 and "No such option" in refused.output


def test_the_first_word_may_be_a_folder_and_views_are_listed(folder):
    assert "fedra" in fedbench("compare", "s", cwd=folder).output
    assert fedbench("compare", "hash", "s", cwd=folder).output == f"{content_hash(folder / 's')}  s\n"
    told = fedbench("compare", "--help", cwd=folder).output
    assert all(f"  {name} " in told for name in VIEWS) and "--baseline METHOD" in told
    assert "leaderboards " not in told.partition("Commands:")[2]
    assert set(compare.commands) == {*VIEWS, "hash", "leaderboards"}
    write_cell(folder / "pairs", "fedra", evaluation=eval_rows({1: {"a": 0.5}}))
    assert "fedra" in fedbench("compare", "./pairs", cwd=folder).output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare", "images", "fedra", "depthfl", "s"), "compare images is gone: `compare pairs`"),
        (("compare", "s", "--where", "accuracy > 80"), "--where is gone"),
        (("compare", "changes", "s", "s", "--fail-on", "worse"), "--fail-on is gone"),
        (("compare", "s", "--where"), "--where is gone"),
        (("plan", "s.yaml", "--json"), "--json is gone: --format json prints the same"),
        (("schema", "--install"), "--install is gone"),
        (("run", "s.yaml", "--rounds"), "--rounds ...: there is no such option; say --set train.rounds=..."),
        (("tune", "s.yaml"), "tune is gone: `fedbench compare tuning"),
    ],
)
def test_what_is_gone_says_what_replaces_it(folder, words, told):
    done = fedbench(*words, cwd=folder)
    assert done.exit_code == 2 and told in done.stderr


def test_a_name_is_looked_up_under_results_and_then_as_a_path(tmp_path, monkeypatch):
    """`compare`, `report`, `plot` and `export` take the name of a suite, its file, or a path."""
    monkeypatch.chdir(tmp_path)
    Path("results").symlink_to(REFERENCE)
    Path("elsewhere").symlink_to(REFERENCE)
    board = fedbench("compare", "results/quickstart", cwd=tmp_path).output
    for words in (
        ("quickstart",),
        ("suites/quickstart.yaml",),
        ("quickstart", "--results", "elsewhere"),
        ("--results", "elsewhere", "quickstart"),
        ("elsewhere/quickstart",),
    ):
        done = fedbench("compare", *words, cwd=tmp_path)
        assert done.exit_code == 0, done.output
        assert "fedra" in done.output and done.output.splitlines()[3:] == board.splitlines()[3:]
    Path("elsewhere").unlink()
    Path("quickstart").mkdir()  # which `init` makes for a study of that name
    assert (
        fedbench("compare", "hash", "quickstart", cwd=tmp_path).output.split()[0]
        == fedbench("compare", "hash", "results/quickstart", cwd=tmp_path).output.split()[0]
    )
    assert fedbench("compare", "hash", "tuned/extreme_hetero", cwd=tmp_path).output.endswith(
        "results/extreme_hetero_tuned\n"
    )
    done = fedbench("export", "quickstart", "fedra", "--format", "peft", cwd=tmp_path)
    assert "results/quickstart" in done.output, "the results of the suite, and not the folder of the study"


@pytest.mark.parametrize("word", ["pair", "cost", "rank"])
def test_a_view_that_is_nearly_named_is_meant(word, tmp_path):
    done = fedbench("compare", word, cwd=tmp_path)
    assert done.exit_code == 2 and f"no view of that name; did you mean {word}s?" in done.output
