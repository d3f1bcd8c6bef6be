"""Origin of a page's numbers: its cells with identity and settings, written into the page and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results import Result
from fedbench.results.diff import CellSummary, ScoreDigest, score_digest
from fedbench.results.documents import parsed
from fedbench.results.identity import identity_of
from fedbench.results.schema_checks import check, check_all, check_manifest
from fedbench.results.tables import RESULT_VERSION

CELL = (
    "suite", "scenario", "variant", "method", "seed", "status", "reason", "cell", "id", "seconds", "origin", "config",
    "said",
)  # fmt: skip
NEEDED = ("versions", "fingerprints", "machine", "git")
WHERE = (*NEEDED, "result_version", "ignored")
TEXTS = ("suite", "scenario", "variant", "method", "id")
BEGIN, END = b'<script type="application/json" id="data">', b"</script>"  # around the data of a page
MOST_BYTES = 2**26  # of a page, of which those of the reference results have four million
MOST_CELLS = 20_000
DIGEST = re.compile(r"[0-9a-f]{16}")
MEND = "Write the page again with `fedbench report`, or give the results folder itself."


class Interned:
    """Values that many cells share, each kept once; a cell has its place."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def origin(results: Sequence[Result]) -> dict[str, Any]:
    """{cells: {fields, rows}, configs, origins}: all that is needed to run the cells again, and to judge whether they
    are those.

    configs: by part of a configuration (`train`, `method`), its values; a cell's `config` has their places by the order
    of parts, null for a part that it lacks. origins: versions, fingerprints, machine and git revision that cells share.
    `said`: of a finished cell, what `fedbench.results.diff.score_digest` has, for `fedbench reproduce` to compare with.
    """
    parts = dict.fromkeys(name for r in results for name in r.manifest.get("config", {}))
    configs = {name: Interned() for name in parts}
    origins = Interned()
    rows = []
    for r in results:
        config, e = r.manifest.get("config", {}), r.entry
        rows.append(
            (
                r.suite,
                e.scenario,
                e.variant,
                e.method,
                e.seed,
                r.status,
                _reason(r),
                e.cell,
                r.manifest.get("id"),
                None if "computed_as" in r.manifest else r.manifest.get("seconds"),  # which is another's
                origins.place(_where(r)) if r.manifest else None,
                [configs[name].place(config[name]) if name in config else None for name in parts] if config else None,
                _said(r),
            )
        )
    return {
        "cells": {"fields": CELL, "rows": rows},
        "configs": {name: found.values for name, found in configs.items()},
        "origins": origins.values,
        "started": _span(results),
    }


def _where(result: Result) -> dict[str, Any]:
    return {name: result.manifest.get(name) for name in WHERE}


def _said(result: Result) -> dict[str, Any] | None:
    return asdict(score_digest(result)) if result.status == "finished" else None


def _reason(result: Result) -> str:
    return (result.fault or result.manifest.get("reason") or "").strip().partition("\n")[0]


def _span(results: Sequence[Result]) -> list[str]:
    """When the first and the last of the cells was started."""
    times = sorted(time for r in results if (time := r.manifest.get("started")))
    return [times[0], times[-1]] if times else []


def read_page(path: Path) -> list[CellSummary]:
    """The finished cells of a page, which may be anybody's file: it is parsed and checked, and nothing in it runs.

    Raises:
        UserError: It is no page of `fedbench report`, or not of this version.
    """
    with open(path, "rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise UserError(f"{path}: larger than {MOST_BYTES // 2**20} MiB, which no page of `fedbench report` is.")
    _, begin, rest = text.partition(BEGIN)
    data, end, _ = rest.partition(END)
    if not begin or not end:
        raise UserError(f"{path}: neither a page of `fedbench report` nor a results folder.")
    try:
        origin = _part(parsed(data.decode()), "origin", dict)
        return list(_cells(origin))
    except (ValueError, RecursionError, TypeError, KeyError, IndexError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UserError(f"{path}: its data are not those of a page of `fedbench report` ({reason}).\n{MEND}") from error


def _cells(origin: Mapping[str, Any]) -> Iterator[CellSummary]:
    """Raises: TypeError, KeyError, IndexError, UserError for what `origin` did not write."""
    cells, configs = _part(origin, "cells", dict), _part(origin, "configs", dict)
    fields, rows = _part(cells, "fields", list), _part(cells, "rows", list)
    if "said" not in fields:
        raise UserError(f"an older fedbench wrote this page, without the scores of its cells.\n{MEND}")
    if len(rows) > MOST_CELLS:
        raise TypeError(f"{len(rows):,} cells, of which at most {MOST_CELLS:,} are taken")
    for row in rows:
        check("a row", row, list)
        if len(row) != len(fields):
            raise TypeError(f"a row has {len(row)} fields of {len(fields)}")
        cell = dict(zip(fields, row, strict=True))
        if cell["status"] == "finished":
            yield _cell(cell, configs, _part(origin, "origins", list))


def _cell(cell: Mapping[str, Any], configs: Mapping[str, Any], origins: Sequence[Any]) -> CellSummary:
    check_all(cell, {**dict.fromkeys(TEXTS, str), "seed": int, "config": list, "origin": int, "said": dict})
    places = zip(configs.items(), cell["config"], strict=True)
    config = {part: _at(values, place) for (part, values), place in places if place is not None}
    origin = _at(origins, cell["origin"])
    check("an origin", origin, dict)
    if origin.get("result_version") != RESULT_VERSION:
        raise TypeError(
            f"result version {origin.get('result_version')!r:.20}, and this fedbench reads {RESULT_VERSION}"
        )
    manifest = {"status": "finished", "id": cell["id"], "config": config, **{name: origin[name] for name in NEEDED}}
    manifest["ignored"] = origin.get("ignored") or []
    check_manifest(manifest)
    for name in ("method", "profile", "evaluation", "data", "backbone", "train"):
        config[name]  # a KeyError tells which is missing
    if config["seed"] != cell["seed"] or identity_of(manifest) != cell["id"]:
        raise TypeError(f"the cell {cell['id']:.80} has another id than its configuration")
    names = {name: cell[name] for name in TEXTS}
    return CellSummary(
        **names, seed=cell["seed"], status="finished", manifest=manifest, given=_read_scores(cell["said"])
    )


def _read_scores(given: Mapping[str, Any]) -> ScoreDigest:
    check_all(given, {"digest": str, "scores": dict, "bytes": int, "flops": int})
    if not DIGEST.fullmatch(given["digest"]):
        raise TypeError(f"digest is {given['digest']!r:.80}")
    for name, value in given["scores"].items():
        check(f"scores.{name}", value, float | int)
    return ScoreDigest(given["digest"], given["scores"], given["bytes"], given["flops"])


def _part(value: Any, name: str, wanted: type) -> Any:
    check(name, value[name], wanted)
    return value[name]


def _at(values: Any, place: Any) -> Any:
    """Raises: TypeError, IndexError for a place that is none."""
    check("a place", place, int)
    check("values", values, list)
    if place < 0:
        raise IndexError(f"place {place}")
    return values[place]
