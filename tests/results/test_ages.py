"""Results of every age are read together: cells of an older fedbench, of a merged shard, and of today."""

from __future__ import annotations

import json

from factories import eval_rows, prefix_rounds, write_cell
from pyarrow import parquet
from samples import VALUES

from fedbench.results import content_hash, load
from fedbench.results.columns import LATER
from fedbench.results.documents import SEAL
from fedbench.results.index import MARK
from fedbench.results.merge import merge
from fedbench.results.tables import RESULT_VERSION


def cell(root, method="fedra", seed=0):
    return write_cell(root / "s", method, seed, evaluation=eval_rows(VALUES), rounds=prefix_rounds(rounds=2))


def aged(folder):
    """A cell as the first fedbench left it: nothing sealed, no files told, none of the columns that came later."""
    table = parquet.read_table(folder / "rounds.parquet")
    parquet.write_table(table.drop_columns(list(LATER["rounds"])), folder / "rounds.parquet")
    manifest, index = folder / "manifest.json", folder.parent / "index.json"
    for file in (manifest, index):
        value = json.loads(file.read_text())
        del value[SEAL]
        for entry in value.get("entries", ()):
            del entry[MARK]
        file.write_text(json.dumps(value))


def test_there_is_one_version_so_far_and_this_file_makes_its_oldest_form():
    assert RESULT_VERSION == 1, "make a cell of the version before here, and read it beside the others"


def test_cells_of_all_ages_are_read_together(tmp_path):
    aged(cell(tmp_path / "old"))
    cell(tmp_path / "shard", seed=1)
    cell(tmp_path / "new", "allsmall")
    merge([tmp_path / "shard"], tmp_path / "merged")
    found = load([tmp_path / name for name in ("old", "merged", "new")])
    assert [(one.entry.method, one.entry.seed) for one in found] == [("fedra", 0), ("fedra", 1), ("allsmall", 0)]
    assert len({tuple(one.rounds.column_names) for one in found}) == 1
    assert found[0].rounds.to_pylist() == found[1].rounds.to_pylist() and found[0].eval == found[1].eval


def test_a_shard_of_an_older_fedbench_is_merged_with_one_of_today(tmp_path):
    aged(cell(tmp_path / "old"))
    cell(tmp_path / "new", seed=1)
    for seed in (0, 1):
        cell(tmp_path / "whole", seed=seed)
    merge([tmp_path / "old", tmp_path / "new"], tmp_path / "merged")
    assert content_hash(tmp_path / "merged") == content_hash(tmp_path / "whole")
    assert [one.rounds.num_rows for one in load([tmp_path / "merged"])] == [12, 12]
