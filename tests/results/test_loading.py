"""Reading what lies under a folder: every cell once, what is torn named with its mend, and one hash of it all."""

from __future__ import annotations

import json
import shutil

import pytest
from command import fedbench
from factories import eval_rows, prefix_rounds, write_cell, write_suite
from samples import VALUES, entry

from fedbench.errors import UserError
from fedbench.results import content_hash, load, load_results, merge_index, read_manifest, write_manifest


def test_root_suite_and_cell_give_the_same_results(tmp_path):
    suite = write_suite(tmp_path / "results" / "quick", seeds=(0, 1))
    everything = load([tmp_path / "results"])
    assert [r.entry for r in load([suite])] == [r.entry for r in everything]
    assert len(load([tmp_path / "results", suite])) == len(everything) == 14
    one = load([everything[0].folder])
    assert [r.entry for r in one] == [everything[0].entry]


def test_two_names_for_one_cell(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES)).name
    merge_index(tmp_path / "s", "s", [entry("fedra_keep", scenario="table5", cell=cell)])
    assert [(r.entry.scenario, r.entry.method) for r in load([tmp_path])] == [
        ("mixed", "fedra"),
        ("table5", "fedra_keep"),
    ]
    assert len(load([tmp_path / "s/cells" / cell])) == 2


def test_cell_moved_out_of_its_suite_is_named_by_its_configuration(tmp_path, monkeypatch):
    cell = write_cell(tmp_path / "s", "fedra", 4, evaluation=eval_rows(VALUES))
    shutil.copytree(cell, tmp_path / "elsewhere" / cell.name)
    monkeypatch.chdir(tmp_path / "elsewhere" / cell.name)
    (result,) = load(["."])
    assert (result.suite, result.entry.method, result.entry.seed) == ("elsewhere", "fedra", 4)
    assert (result.entry.backbone, result.entry.dataset) == ("micro_vit", "strokes6")


def test_suites_of_one_name_are_kept_apart(tmp_path):
    for root in ("mine", "theirs"):
        write_cell(tmp_path / root / "s", "fedra", evaluation=eval_rows(VALUES))
    assert {r.suite for r in load([tmp_path / "mine", tmp_path / "theirs"])} == {
        f"s ({tmp_path / 'mine' / 's'})",
        f"s ({tmp_path / 'theirs' / 's'})",
    }


def test_entry_whose_cell_was_not_started_is_pending(tmp_path):
    merge_index(tmp_path / "s", "s", [entry()])
    assert [r.status for r in load([tmp_path])] == ["pending"]


def test_foreign_files_beside_results_are_ignored(tmp_path):
    write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "s" / "figure.png").write_bytes(b"\x89PNG")
    (tmp_path / "holiday").mkdir()
    assert len(load([tmp_path])) == 1


def test_folder_without_results_says_what_was_looked_for_and_found(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UserError) as caught:
        load([tmp_path])
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: no fedbench results. Looked for index.json here")
    assert "found a.txt, b.txt" in message and "fedbench run SUITE.yaml" in message


def test_cells_without_their_index_are_told(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (cell.parents[1] / "index.json").unlink()
    for place in (tmp_path, tmp_path / "s"):
        with pytest.raises(
            UserError, match=r"1 cell without the index.json that names them.\nRun the whole suite again"
        ):
            load([place])


def test_path_that_is_missing_or_a_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        load([tmp_path / "none"])
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file, not a folder"):
        load([tmp_path / "file"])


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("index.json", "run the whole suite again"),
        ("manifest.json", "run the whole suite again"),
        ("eval.parquet", "run the suite again"),
        ("rounds.parquet", "run the suite again"),
    ],
)
def test_torn_file_is_named_with_its_mend(tmp_path, name, again):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    path = (cell.parents[1] if name == "index.json" else cell) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError) as caught:
        for result in load([tmp_path / "s"]):
            result.eval, result.rounds  # noqa: B018
    assert str(path) in str(caught.value) and again in str(caught.value).lower()


@pytest.mark.parametrize("name", ["index.json", "manifest.json"])
def test_other_version_is_refused(tmp_path, name):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    path = (cell.parents[1] if name == "index.json" else cell) / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"result_version": 7}))
    with pytest.raises(UserError, match="result version 7, but this fedbench reads version 2"):
        load([tmp_path / "s"])


@pytest.mark.parametrize("command", ["compare", "run", "pack", "merge"])
def test_version_1_is_refused_with_the_release_that_converts_it(tmp_path, command):
    write_cell(tmp_path / "r/quickstart", "fedra", evaluation=eval_rows(VALUES))
    path = tmp_path / "r/quickstart/index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"result_version": 1}))
    before = path.read_bytes()
    words = {"run": ("quickstart", "--results", "r"), "merge": ("r", "--into", "new")}.get(command, ("r",))
    done = fedbench(command, *words, cwd=tmp_path)
    assert done.exit_code in (1, 2) and path.read_bytes() == before
    (line,) = [line for line in done.stderr.splitlines() if "result version 1" in line]
    assert "quickstart/index.json: result version 1, which fedbench 0.2.0 is the last to read" in line


def test_finished_cell_without_its_table_is_named(tmp_path):
    cell = write_cell(tmp_path / "s", "fedra", evaluation=eval_rows(VALUES))
    (cell / "eval.parquet").unlink()
    with pytest.raises(UserError, match="eval.parquet: the file is missing though its cell is recorded as finished"):
        load([tmp_path])[0].eval  # noqa: B018


def test_hash_ignores_time_and_machine_and_order_but_no_value(tmp_path):
    def make(root: str, seconds: float, methods=("fedra", "depthfl"), value=0.75) -> str:
        folder = tmp_path / root / "s"
        for method in methods:
            rounds = [row | {"seconds": seconds} for row in prefix_rounds((2, 1), 2)]
            cell = write_cell(folder, method, evaluation=eval_rows({1: {"a": value}}), rounds=rounds)
            changed = {
                "seconds": seconds,
                "machine": {"cpu": str(seconds)},
                "started": str(seconds),
                "git": root,
            }
            write_manifest(cell, read_manifest(cell) | changed)
        return content_hash(folder)

    first = make("one", 0.5)
    assert make("two", 7.5, methods=("depthfl", "fedra")) == first
    assert content_hash(tmp_path / "one") == first
    assert make("three", 0.5, value=0.75000001) != first
    assert make("four", 0.5, methods=("fedra",)) != first


def test_load_results_is_tidy(tmp_path):
    write_cell(tmp_path / "s", "fedra", 1, evaluation=eval_rows(VALUES))
    write_cell(tmp_path / "s", "exclusive", 1, status="not_applicable", reason="nobody")
    frame = load_results(tmp_path)
    assert list(frame.columns) == [
        *("suite", "scenario", "method", "variant", "seed", "backbone", "dataset", "profile"),
        *("round", "split", "domain", "client", "metric", "value", "examples"),
    ]
    assert len(frame) == 4 and set(frame["method"]) == {"fedra"}
    assert frame.query("round == 12")["value"].mean() == pytest.approx(0.625)


def test_load_results_of_nothing_finished_is_an_empty_table(tmp_path):
    write_cell(tmp_path / "s", "fedra", status="failed", reason="boom")
    assert load_results(tmp_path).empty
