"""Results folders of strangers: damaged manifests, indexes and tables, and what does not belong there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from factories import DOMAINS, cell_of, eval_rows, layer_row, write_cell

from fedbench.cli import main
from fedbench.errors import UserError
from fedbench.report.leaderboards import leaderboards
from fedbench.results import content_hash, load, load_results, merge_index, read_manifest, refuse_links, write_manifest
from fedbench.results.files import cleared, described
from fedbench.results.index import write_expected
from fedbench.results.merge import merge
from fedbench.runner.estimate import past_rounds
from hostile.mutants import TEXTS, changed, damaged, rewritten
from hostile.watch import SECRET, Leak

SENT = {"round": 1, "what": "features", "bytes_down": 10, "bytes_up": 10}
SERVED = {"round": 1, "flops": 10, "memory_bytes": 10}
FORMATS = ("rich", "csv", "json", "markdown", "latex")


class Folders:
    def __init__(self, shared: Path) -> None:
        self.good = shared / "good"
        values = {t: dict.fromkeys(DOMAINS, 0.5 + 0.01 * t) for t in (6, 12)}
        for method in ("fedra", "alllarge"):
            for seed in (0, 1):
                layers = [layer_row(t, n) for t in (1, 2) for n in range(3)]
                tables = {"exchange": [SENT], "server": [SERVED], "layers": layers}
                write_cell(self.good / "s", method, seed, evaluation=eval_rows(values), **tables)
                if seed:  # of the others' tables the damage is not told by a hash
                    self._describe_files(method, seed)
        write_cell(self.good / "s", "exclusive", status="not_applicable", reason="no client holds all")
        row = {"scenario": "mixed", "variant": "", "dataset": "strokes6", "backbone": "micro_vit", "method": "fedra"}
        rows = [{**row, "metric": metric, "value_percent": 71.5, "source": "Table 1"} for metric in ("average", "dim")]
        write_expected(self.good / "s", "s", rows)
        secret = shared / "elsewhere"
        write_cell(secret, SECRET, label=SECRET, evaluation=eval_rows(values))
        (self.secret,) = (secret / "cells").iterdir()

    def _describe_files(self, method: str, seed: int) -> None:
        cell = cell_of(self.good / "s", method, seed)
        write_manifest(cell, {**(read_manifest(cell) or {}), "files": described(cell)})

    def attack(self, inside: Path, chance: Random) -> None:
        shutil.copytree(self.good, inside, dirs_exist_ok=True, symlinks=True)
        for _ in range(chance.choice([1, 1, 2])):
            self._harm(inside, chance)
        self._read(inside, chance)

    def _harm(self, inside: Path, chance: Random) -> None:
        files = sorted(path for path in inside.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            return
        file = chance.choice(files)
        if chance.random() < 0.5:  # the small JSON files are as many as the tables
            file = chance.choice([f for f in files if f.suffix == ".json"] or files)
        harms: list[Callable[[Path, Random], None]] = [_bytes, _bytes, _bytes, self._odd]
        harms += [self._outward] * 2 if file.name == "index.json" else []
        harms += [_json] * 12 if file.suffix == ".json" else [_foreign] * 3 if file.suffix == ".parquet" else []
        chance.choice(harms)(file, chance)

    def _odd(self, file: Path, chance: Random) -> None:
        """Another kind of thing in place of a file or of a cell's folder."""
        place = file if chance.random() < 0.7 else file.parent
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        how = chance.randrange(5)
        if how == 0:
            place.mkdir()
        elif how == 1:
            place.symlink_to(place)
        elif how == 2:
            place.symlink_to(place.parent.parent)
        elif how == 3:
            place.symlink_to(self.good / place.relative_to(place.parents[1]))
        else:
            place.write_bytes(b"")

    def _outward(self, index: Path, chance: Random) -> None:
        """An entry that points to a cell of another folder."""
        with suppress(ValueError, TypeError, KeyError):  # damaged before
            value = json.loads(index.read_text())
            relative = os.path.relpath(self.secret, index.parent)
            value["entries"][0]["cell"] = chance.choice(
                [str(self.secret), relative, "../s/../" + relative, f"./{relative}"]
            )
            index.write_text(json.dumps(value))

    def _read(self, inside: Path, chance: Random) -> None:
        how = chance.randrange(14)
        if how < 7:
            self._compare(inside, chance)
        elif how == 7:
            content_hash(inside)
        elif how == 8:
            load_results(inside)
        elif how == 9:
            for result in load([inside / "s"]):
                if result.status == "finished":
                    assert result.layers.num_rows >= 0 and result.rounds.num_rows >= 0
        elif how == 10:
            merge_index(inside / "s", "s", [])
            past_rounds(inside, {"cpu": "any"})
        elif how == 11:
            for place in sorted((inside / "s").glob("cells/*/")):
                leaderboards(load([place]))
        elif how == 12:
            merge([inside / "s"], inside / chance.choice(["new", "."]))
        else:
            self._clear(inside)

    def _clear(self, inside: Path) -> None:
        """As a run does where it computes a cell anew."""
        refuse_links(inside / "s")
        for place in sorted((inside / "s").glob("cells/*/")):
            cleared(place, read_manifest(place) or {})

    def _compare(self, inside: Path, chance: Random) -> None:
        view = chance.choice([["paper"], ["paper"], ["costs"], ["clients"], []])
        at = chance.choice(["final", "best", "last4", "bytes", "flops=1e9"])
        words = ["compare", *view, str(inside), "--format", chance.choice(FORMATS), "--at", at]
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        if done.exit_code == 2:
            raise UserError(done.output)
        assert done.exit_code in (0, 1), done.exit_code  # 1: something is left out, and told
        if SECRET in done.output:
            raise Leak("a cell of another folder was shown")


def _bytes(file: Path, chance: Random) -> None:
    file.write_bytes(damaged(file.read_bytes(), chance))


def _json(file: Path, chance: Random) -> None:
    file.write_bytes(rewritten(file.read_bytes(), chance))


def _foreign(file: Path, chance: Random) -> None:
    """A sound Parquet file that is not ours, or ours with values that nobody wrote."""
    try:
        table = pq.read_table(file)
    except Exception:  # damaged before
        return
    how = chance.randrange(6)
    if how == 0:
        table = table.replace_schema_metadata(
            {b"fedbench.result_version": chance.choice(TEXTS).encode("utf-8", "replace")}
        )
    elif how == 1:
        table = table.drop_columns([chance.choice(table.column_names)])
    elif how == 2:
        table = table.append_column("more", pa.array(range(len(table)), pa.int8()))
    elif how == 3:
        table = table.slice(0, chance.choice([0, 1]))
    elif how == 4:
        table = pa.table({"x": [{"a": [1]}]}, metadata=table.schema.metadata)
    else:
        rows = changed(table.to_pylist(), chance)
        optional = pa.schema(
            [field.with_nullable(chance.random() < 0.2) for field in table.schema], table.schema.metadata
        )
        try:
            table = pa.Table.from_pylist(rows, schema=optional)
        except Exception:  # not every value has a place in a table
            return
    with suppress(pa.ArrowInvalid):  # a null where there may be none
        pq.write_table(table, file, compression=chance.choice(["snappy", "none", "gzip"]))
