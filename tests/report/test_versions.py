"""Cells that were computed with other versions: plugins' code parts them, the packages' versions stand as a warning."""

from __future__ import annotations

import factories
import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.results import load
from fedbench.results.identity import identity
from fedbench.results.merge import merge

BASE = {"fedbench": "0.1.0", "torch": "2.13.0", "timm": "1.0.0", "loralib": "0.1.2", "numpy": "2.1.0"}


@pytest.fixture
def compute(tmp_path, monkeypatch):
    """compute(method, seed, value, versions): a finished cell of a suite."""

    def compute(method, seed, value, versions=BASE, folder="s"):
        monkeypatch.setitem(factories.AS_RUN, "versions", {**BASE, **versions})
        write_cell(tmp_path / folder, method, seed, evaluation=eval_rows({12: {"a": value, "b": value}}))

    return compute


def test_a_release_that_changes_no_number_changes_no_id():
    later = {**BASE, "fedbench": "0.2.0"}
    assert identity({}, {}, later) == identity({}, {}, BASE) != identity({}, {}, {**BASE, "torch": "2.14.1"})


def rows_of(tmp_path):
    return [[(row.label, len(row.runs)) for row in board.rows] for board in leaderboards(load([tmp_path]))]


def test_seeds_of_a_method_whose_code_was_edited_between_them_never_enter_one_mean(tmp_path, compute):
    for seed, code in enumerate(("a", "a", "b")):
        compute("mine", seed, 0.5, {"mine.py": f"sha256:{code}"})
        compute("fedra", seed, 0.5)
    names = ["mine [plugins.mine.py=sha256:a]", "mine [plugins.mine.py=sha256:b]"]
    assert rows_of(tmp_path) == [[(names[0], 2), (names[1], 1), ("fedra", 3)]]


def test_a_plugin_that_all_cells_are_computed_with_parts_leaderboards(tmp_path, compute):
    """Such as a data set's or a partition's: methods on either side of an edit are not compared either."""
    for seed, code in enumerate(("1", "2")):
        for method in ("fedra", "depthfl"):
            compute(method, seed, 0.5, {"their-data": code})
    boards = leaderboards(load([tmp_path]))
    assert [b.place.variant for b in boards] == ["plugins.their-data=1", "plugins.their-data=2"]
    assert [len(b.rows) for b in boards] == [2, 2]


def test_a_package_version_and_an_editable_installation_part_as_files_do(tmp_path, compute):
    for seed, code in enumerate(("1.0", "1.0+sha256:ab", "1.1")):
        compute("mine", seed, 0.5, {"fedbench-mine": code})
        compute("other", seed, 0.5)
    assert [n for _, n in rows_of(tmp_path)[0]] == [1, 1, 1, 3]


@pytest.mark.parametrize("package, form", list(zip(BASE, ["rich", "csv", "json", "markdown", "latex"], strict=True)))
def test_two_versions_of_a_package_stand_as_a_warning_above_every_format(tmp_path, compute, package, form):
    for seed, version in enumerate(("1.1", "2.2")):
        compute("fedra", seed, 0.5, {package: version})
        compute("depthfl", seed, 0.6, {package: version})
    told = fedbench("compare", tmp_path, "--format", form, cwd=tmp_path)
    text = " ".join((told.stderr if form == "csv" else told.stdout).split())
    assert f"Computed in different ways, which may change scores: {package} 1.1 and 2.2" in text
    assert rows_of(tmp_path) == [[("fedra", 2), ("depthfl", 2)]]


@pytest.mark.parametrize("view", [["pairs"], ["costs"], ["summary"], ["pareto", "bytes"], ["reach", "10%"]])
def test_other_views_warn_as_leaderboards_do(tmp_path, compute, view):
    for seed, version in enumerate(("1.1", "2.2")):
        compute("fedra", seed, 0.5, {"torch": version})
        compute("depthfl", seed, 0.6, {"torch": version})
    assert "torch 1.1 and 2.2" in " ".join(fedbench("compare", *view, tmp_path, cwd=tmp_path).stdout.split())


def test_nothing_is_said_where_versions_are_equal_or_an_unfinished_cell_has_others(tmp_path, compute, monkeypatch):
    compute("fedra", 0, 0.5)
    monkeypatch.setitem(factories.AS_RUN, "versions", {**BASE, "torch": "9"})
    write_cell(tmp_path / "s", "depthfl", 0, status="failed", reason="x")
    assert [board.warning for board in leaderboards(load([tmp_path]))] == [""]


def test_engines_and_options_of_the_metric_that_differ_within_a_method_stand_above_too(tmp_path):
    """Other methods may have another engine by nature, and another metric is not shown."""
    for seed, (engine, k) in enumerate((("cohort", 1), ("sequential", 5))):
        metrics = [{"name": "accuracy", "k": k}, {"name": "loss", "of": seed}]
        parts = {"evaluation": eval_rows({12: {"a": 0.5}}), "engine": engine}
        write_cell(tmp_path / "s", "fedra", seed, evaluation__metrics=metrics, **parts)
        write_cell(tmp_path / "s", "depthfl", seed, evaluation=eval_rows({12: {"a": 0.5}}), engine="cohort")
    (board,) = leaderboards(load([tmp_path]))
    told = "Computed in different ways, which may change scores: engine cohort and sequential; metric accuracy(k=1) and"
    assert board.warning == f"{told} accuracy(k=5)."
    (other,) = leaderboards([r for r in load([tmp_path]) if r.entry.method == "depthfl"])
    assert other.warning == ""


def test_merge_warns_of_versions_and_of_plugins_code(tmp_path, compute):
    compute("mine", 0, 0.5, {"mine.py": "sha256:a"}, "one/s")
    compute("mine", 1, 0.5, {"mine.py": "sha256:b", "numpy": "1.0"}, "two/s")
    (merged,) = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
    assert merged.mixed == "numpy 1.0 and 2.1.0; mine.py sha256:a and sha256:b"
    told = fedbench("merge", tmp_path / "one", tmp_path / "two", "--into", tmp_path / "again", cwd=tmp_path)
    assert merged.mixed in told.stderr and told.exit_code == 0


def test_the_page_warns_above_the_table(tmp_path, compute):
    for seed, version in enumerate(("1.1", "2.2")):
        compute("fedra", seed, 0.5, {"timm": version})
    assert fedbench("report", tmp_path, "-o", "page.html", cwd=tmp_path).exit_code == 0
    assert "timm 1.1 and 2.2" in (tmp_path / "page.html").read_text()
