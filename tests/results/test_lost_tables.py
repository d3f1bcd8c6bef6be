"""A packed folder with a damaged table: what is lost is what the table feeds, and a run computes that again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from factories import eval_rows, layer_row, round_row, write_cell
from pyarrow import parquet

from fedbench.cli import main
from fedbench.disk import hash_of_file
from fedbench.errors import UserError
from fedbench.results import content_hash, examine, load, merge_index, read_index, read_manifest
from fedbench.results.files import damage
from fedbench.results.index import change_index
from fedbench.results.pack import pack
from fedbench.results.packed_tables import packed_tables
from fedbench.results.result import COMPARED

KINDS = ("cells", "eval", "rounds", "exchange", "layers", "server")
HARMS = ("edited", "truncated", "missing", "a pipe")
SENT = {"round": 1, "what": "adapters", "bytes_down": 4, "bytes_up": 2}
VALUES = {"fedra": 0.8, "splitfed": 0.6, "allsmall": 0.5}


def compute(suite: Path, method: str, seed: int) -> None:
    """A cell in a folder; only splitfed has the table of the server."""
    write_cell(
        suite,
        method,
        seed,
        evaluation=eval_rows({2: {"a": VALUES[method] + seed / 100}}),
        rounds=[round_row(1, 0, [0])],
        exchange=[SENT],
        layers=[layer_row(1, 0)],
        server=[{"round": 1, "flops": 3, "memory_bytes": 2}] if method == "splitfed" else None,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    suite = tmp_path_factory.mktemp("lost") / "r" / "s"
    for method in VALUES:
        for seed in (0, 1):
            compute(suite, method, seed)
    pack(suite)
    return suite


@pytest.fixture
def suite(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "r" / "s"))


def harm(suite: Path, kind: str, how: str) -> Path:
    (file,) = suite.glob(f"{kind}-*.parquet")
    whole = file.read_bytes()
    if how == "edited":
        file.write_bytes(whole[:60] + bytes(255 - byte for byte in whole[60:62]) + whole[62:])
    elif how == "truncated":
        file.write_bytes(whole[:-20])
    else:
        file.unlink()
    if how == "a pipe":
        os.mkfifo(file)
    return file


def shown(suite: Path) -> dict[tuple[str, int], float | None]:
    """The score of each name, None where it is damaged."""
    found = examine([suite]).read(COMPARED).results
    return {r.entry.key[1:4:2]: r.scores("accuracy")[2]["a", -1] if r.status == "finished" else None for r in found}


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_named_and_takes_with_it_what_it_feeds(suite, kind, how):
    whole = shown(suite)
    assert all(whole.values())
    file = harm(suite, kind, how)
    found = examine([suite]).read(COMPARED)
    assert len(found.wrong) == 1 and found.wrong[0].startswith(f"{file}: ")
    assert shown(suite) == (dict.fromkeys(whole) if kind in ("cells", "eval") else whole)
    with pytest.raises(UserError, match=file.name):
        content_hash(suite)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_lost_is_computed_and_nothing_else_and_then_all_is_as_before(suite, kind):
    """The status of a cell is what a run goes by."""
    before, hashed, was = shown(suite), content_hash(suite), read_index(suite)
    file = harm(suite, kind, "edited")
    packed_tables(suite).verify()
    concerned = [
        entry
        for entry in was.entries
        if (manifest := read_manifest(suite / "cells" / entry.cell)) is None
        or damage(suite / "cells" / entry.cell, manifest)
    ]
    assert {e.method for e in concerned} == ({"splitfed"} if kind == "server" else {*VALUES})
    first, *others = concerned
    compute(suite, first.method, first.seed)
    with pytest.raises(UserError, match=rf"{file.name}(.|\n)*{len(others)} cell.* must be computed again"):
        pack(suite)
    assert file.is_file() and shown(suite)[first.method, first.seed] == before[first.method, first.seed]
    for entry in others:
        compute(suite, entry.method, entry.seed)
    assert pack(suite) == len(concerned) and packed_tables(suite).damaged == {}
    assert shown(suite) == before and content_hash(suite) == hashed
    assert not list(suite.glob("cells/*")) and not list(suite.glob("cells/*/manifest.json"))


def test_a_cell_that_no_name_has_any_more_does_not_keep_a_damaged_table(suite):
    def without_fedra(index):
        return type(index)(index.suite, [e for e in index.entries if e.method != "fedra"], index.tables)

    change_index(suite, "s", without_fedra)
    harm(suite, "exchange", "missing")
    for method in ("splitfed", "allsmall"):
        for seed in (0, 1):
            compute(suite, method, seed)
    assert pack(suite) == 4 and packed_tables(suite).damaged == {}


@pytest.mark.parametrize("command", [("compare",), ("compare", "costs"), ("compare", "--at", "bytes=1GB"), ("report",)])
@pytest.mark.parametrize("kind", KINDS)
def test_commands_show_the_rest_name_the_file_and_advise_nothing_that_loses(suite, kind, command):
    file = harm(suite, kind, "edited")
    out = ("-o", str(suite.parent / "page.html")) if command == ("report",) else ()
    done = CliRunner().invoke(main, [*command, str(suite), *out], catch_exceptions=False)
    assert done.exit_code == 1, done.output
    assert f"{file}: checksum mismatch" in done.stderr and "keeps the rest" in done.stderr
    assert "elete" not in done.stderr


def test_where_the_index_is_damaged_it_is_not_to_be_deleted(suite):
    index = suite / "index.json"
    index.write_text(index.read_text().replace('"seed": 1', '"seed": 2'))
    done = CliRunner().invoke(main, ["compare", str(suite)], catch_exceptions=False)
    assert done.exit_code == 1 and "index.json must be restored from a copy" in done.stderr


def test_a_cell_whose_table_of_cells_is_lost_is_named_by_its_folder(suite):
    place = suite / "cells" / read_index(suite).entries[0].cell
    harm(suite, "cells", "missing")
    place.mkdir(parents=True)
    with pytest.raises(UserError, match="cells-"):
        load([place])


# Resealed by somebody who knows how: the index has the size and the hash of what they put there.


def reseal(suite: Path, kind: str, change) -> Path:
    """Another table in place of a packed one, or other bytes."""
    (file,) = suite.glob(f"{kind}-*.parquet")
    made = change(parquet.read_table(file))
    if isinstance(made, bytes):
        file.write_bytes(made)
    else:
        parquet.write_table(made, file)
    facts = {"file": file.name, "size": file.stat().st_size, "sha256": hash_of_file(file)}
    tables = read_index(suite).tables
    with_it = {**tables, kind: type(tables[kind])(**facts)}
    change_index(suite, "s", lambda index: type(index)(index.suite, index.entries, with_it))
    return file


def with_column(name, values):
    def change(table):
        made = pa.array(values * len(table) if len(values) == 1 else values)
        named = table.schema.get_field_index(name)
        field = (
            pa.field(name, made.type, table.schema.field(name).nullable) if named >= 0 else pa.field(name, made.type)
        )
        return table.set_column(named, field, made) if named >= 0 else table.append_column(field, made)

    return change


def first_value(name, value):
    """Another value in the first row of a column."""

    def change(table):
        column = table[name].to_pylist()
        field = table.schema.field(name)
        made = pa.array([value, *column[1:]], field.type)
        return table.set_column(table.schema.get_field_index(name), field, made)

    return change


HOSTILE = {
    "broken JSON": ("cells", with_column("config.train", ["{"])),
    "deep JSON": ("cells", with_column("versions", ["[" * 90_000 + "]" * 90_000])),
    "a list column": ("cells", with_column("config.x", [["{}"]])),
    "numbers for JSON": ("cells", with_column("machine", [1])),
    "no cell column": ("cells", lambda table: table.drop_columns(["cell"])),
    "no status column": ("cells", lambda table: table.drop_columns(["status"])),
    "no configuration of the data": ("cells", lambda table: table.drop_columns(["config.data"])),
    "a null for the training": ("cells", first_value("config.train", None)),
    "training without rounds": ("cells", with_column("config.train", ['{"epochs": 1}'])),
    "training of 0 rounds": ("cells", with_column("config.train", ['{"rounds": 0}'])),
    "no metrics": ("cells", with_column("config.evaluation", ['{"metrics": []}'])),
    "metrics as text": ("cells", with_column("config.evaluation", ['{"metrics": "accuracy"}'])),
    "declared metrics as text": ("cells", with_column("metrics", ['{"accuracy": "high"}'])),
    "a cell twice": ("cells", lambda table: pa.concat_tables([table, table])),
    "a cell with another name": ("cells", first_value("cell", "../../evil")),
    "negative rounds": ("eval", first_value("round", -3)),
    "client 2^31-1": ("rounds", first_value("client", 2**31 - 1)),
    "negative client": ("rounds", first_value("client", -1)),
    "negative bytes": ("exchange", first_value("bytes_up", -1)),
    "a negative layer": ("rounds", first_value("layers", [-1])),
    "a null in a list": ("rounds", first_value("trained_layers", [None])),
    "rows of cells in turns": ("eval", lambda table: table.take([0, 2, 1, *range(3, len(table)), 0])),
    "another kind": ("layers", lambda table: table.rename_columns([f"{n}s" for n in table.column_names])),
    "no Parquet": ("server", lambda table: b"PAR1" * 100),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_table_is_found_once_when_it_is_read(suite, what):
    kind, change = HOSTILE[what]
    file = reseal(suite, kind, change)
    found = examine([suite]).read(packed_tables(suite).files)
    assert found.wrong and all(line.startswith(f"{file}: ") for line in found.wrong)
    for command in (("compare",), ("compare", "costs"), ("report", "-o", str(suite.parent / "page.html"))):
        done = CliRunner().invoke(main, [*command, str(suite)], catch_exceptions=False)
        assert done.exit_code == (0 if kind == "layers" else 1), done.output


@pytest.mark.parametrize("kind", ["eval", "rounds"])
def test_a_table_of_more_rows_than_there_is_memory_for_is_refused(suite, kind, monkeypatch):
    reseal(suite, kind, lambda table: table.take([0] * 9 + [*range(1, len(table))]))
    monkeypatch.setattr("fedbench.results.tables.MOST_ROWS", 10)
    (line,) = examine([suite]).read([kind]).wrong
    assert f"{kind}-" in line and "14 rows" in line


def test_a_list_column_of_too_many_values_is_refused(suite, monkeypatch):
    monkeypatch.setattr("fedbench.results.tables.MOST_VALUES", 7)
    reseal(suite, "rounds", first_value("layers", [0, 1, 2]))
    assert "8 values in a column" in examine([suite]).read(["rounds"]).wrong[0]


def test_an_index_with_a_kind_of_table_that_there_is_not_is_refused(suite):
    index = json.loads((suite / "index.json").read_text())
    tables = read_index(suite).tables
    assert index["tables"]["eval"]["file"] == tables["eval"].file
    change_index(suite, "s", lambda one: type(one)(one.suite, one.entries, {**tables, "evil": tables["eval"]}))
    assert "evil" in examine([suite]).wrong[0]


def test_a_hash_is_of_the_tables_and_not_of_what_is_recorded_of_them(suite):
    hashed = content_hash(suite)
    reseal(suite, "eval", lambda table: with_column("value", [v + 50 for v in table["value"].to_pylist()])(table))
    with pytest.raises(UserError, match="are not those that were packed"):
        content_hash(suite)
    reseal(suite, "cells", lambda table: with_column("digest", [None])(table).cast(table.schema))
    assert content_hash(suite) != hashed


def test_names_that_come_to_a_folder_later_change_nothing_of_its_tables(suite):
    tables = read_index(suite).tables
    merge_index(suite, "s", read_index(suite).entries)
    assert read_index(suite).tables == tables
