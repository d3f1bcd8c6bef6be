"""What is to be reproduced: a page that somebody sent, or results folders. Nothing in them is executed or believed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.reproduction.told import Told
from fedbench.results import examine
from fedbench.results.documents import parsed
from fedbench.results.identity import identity
from fedbench.results.manifest import HASHED, check_manifest
from fedbench.results.said import Said
from fedbench.results.tables import RESULT_VERSION
from fedbench.results.untrusted import check, check_all

MOST_BYTES = 2**26  # of a page, of which those of the reference results have two million
MOST_CELLS = 20_000
BEGIN, END = b'<script type="application/json" id="data">', b"</script>"
ORIGIN = ("versions", "fingerprints", "machine", "git")
TEXTS = ("suite", "scenario", "variant", "method", "id")
DIGEST = re.compile(r"[0-9a-f]{16}")
MEND = "Write the page anew with `fedbench report`, or give the results folder itself."


def told(paths: Sequence[str]) -> list[Told]:
    """Every finished cell that a page, or results folders, tell of, by name. Raises: UserError for what is neither, and
    where anything is not as it was written."""
    if len(paths) == 1 and Path(paths[0]).is_file():
        return list(_of_page(Path(paths[0])))
    if missing := [path for path in paths if not Path(path).exists()]:
        raise UserError(f"{missing[0]}: not there. Wanted: a page of `fedbench report`, or results folders.")
    found = examine(paths).read(("eval", "rounds"))
    if found.wrong:
        lines = "\n  ".join(found.wrong[:20])
        raise UserError(f"not as it was written, so that there is nothing to compare with:\n  {lines}")
    return [
        Told(
            suite=r.suite,
            scenario=r.entry.scenario,
            variant=r.entry.variant,
            method=r.entry.method,
            seed=r.entry.seed,
            id=r.manifest["id"],
            config=r.manifest["config"],
            origin={name: r.manifest.get(name) for name in ORIGIN},
            said=r.digest.said,
            root=r.manifest.get("root", ""),
        )
        for r in found.results
        if r.status == "finished"
    ]


def _of_page(path: Path) -> Iterator[Told]:
    """The finished cells of a page. Raises: UserError."""
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
        yield from _cells(origin)
    except (ValueError, RecursionError, TypeError, KeyError, IndexError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UserError(f"{path}: its data are not those of a page of `fedbench report` ({reason}).\n{MEND}") from error


def _cells(origin: Mapping[str, Any]) -> Iterator[Told]:
    """Raises: TypeError, KeyError, IndexError, UserError for what `fedbench.report.html.origin` did not write."""
    cells, configs = _part(origin, "cells", dict), _part(origin, "configs", dict)
    fields, rows = _part(cells, "fields", list), _part(cells, "rows", list)
    if "said" not in fields:
        raise UserError(f"this page does not say what its cells came to, for an older fedbench wrote it.\n{MEND}")
    if len(rows) > MOST_CELLS:
        raise TypeError(f"{len(rows):,} cells, of which at most {MOST_CELLS:,} are taken")
    for row in rows:
        check("a row", row, list)
        if len(row) != len(fields):
            raise TypeError(f"a row has {len(row)} fields of {len(fields)}")
        cell = dict(zip(fields, row, strict=True))
        if cell["status"] == "finished":
            yield _cell(cell, configs, _part(origin, "origins", list))


def _cell(cell: Mapping[str, Any], configs: Mapping[str, Any], origins: Sequence[Any]) -> Told:
    check_all(cell, {**dict.fromkeys(TEXTS, str), "seed": int, "config": list, "origin": int, "said": dict})
    places = zip(configs.items(), cell["config"], strict=True)
    config = {part: _at(values, place) for (part, values), place in places if place is not None}
    origin = _at(origins, cell["origin"])
    check("an origin", origin, dict)
    if origin.get("result_version") != RESULT_VERSION:
        raise TypeError(
            f"result version {origin.get('result_version')!r:.20}, and this fedbench reads {RESULT_VERSION}"
        )
    manifest = {"status": "finished", "id": cell["id"], "config": config, **{name: origin[name] for name in ORIGIN}}
    check_manifest(manifest)
    for name in ("method", "profile", "evaluation", "data", "backbone", "train"):
        config[name]  # a KeyError tells which is missing
    if config["seed"] != cell["seed"] or identity(*(manifest[part] for part in HASHED)) != cell["id"]:
        raise TypeError(f"the cell {cell['id']:.80} has another id than its configuration")
    names = {name: cell[name] for name in TEXTS}
    where = {name: origin[name] for name in ORIGIN}
    return Told(**names, seed=cell["seed"], config=config, origin=where, said=_said(cell["said"]))


def _said(given: Mapping[str, Any]) -> Said:
    check_all(given, {"digest": str, "scores": dict, "bytes": int, "flops": int})
    if not DIGEST.fullmatch(given["digest"]):
        raise TypeError(f"digest is {given['digest']!r:.80}")
    for name, value in given["scores"].items():
        check(f"scores.{name}", value, float | int)
    return Said(given["digest"], given["scores"], given["bytes"], given["flops"])


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
