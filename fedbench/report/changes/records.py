"""What differs between two results folders, for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from fedbench.report.changes.found import Changes, Group
from fedbench.report.changes.names import Name
from fedbench.report.records import csv_text, json_text

CSV_COLUMNS = (
    "suite", "scenario", "variant", "method", "seed", "change", "same_id", "status_before", "status_after",
    "differs_in", "measure", "before", "after", "difference", "low", "high", "n_seeds", "p", "q", "verdict",
)  # fmt: skip


def to_csv(found: Changes) -> str:
    """A row for every name, of those that differ one for every measure; then one for every method over seeds, whose
    seed is empty."""
    rows = [*_names(found), *(_over_seeds(found, group) for group in found.groups)]
    return csv_text(CSV_COLUMNS, ([row.get(name) for name in CSV_COLUMNS] for row in rows))


def _names(found: Changes) -> Iterator[dict[str, Any]]:
    for i, name in enumerate(found.names):
        where = _name(name)
        where["differs_in"] = " ".join(name.parts)
        before, after = found.measured.get(i, ({}, {}))
        for key in dict.fromkeys((*before, *after)):
            old, new = before.get(key), after.get(key)
            apart = new - old if old is not None and new is not None else None
            yield {**where, "measure": key, "before": old, "after": new, "difference": apart}
        if not before and not after:
            yield where


def _name(name: Name) -> dict[str, Any]:
    where = {key: getattr(name, key) for key in ("suite", "scenario", "variant", "method", "seed", "change")}
    old, new = (result and result.status for result in (name.before, name.after))
    return {**where, "same_id": name.same_id if old and new else None, "status_before": old, "status_after": new}


def _over_seeds(found: Changes, group: Group) -> dict[str, Any]:
    pair = group.pair
    told = {key: getattr(pair, key) for key in ("low", "high", "p", "q", "verdict")}
    where = {
        key: getattr(group, key) for key in ("suite", "scenario", "variant", "method", "same_id", "before", "after")
    }
    return {
        **where,
        **told,
        "change": "over seeds",
        "measure": found.metric,
        "difference": pair.mean,
        "n_seeds": pair.n,
    }


def to_json(found: Changes) -> str:
    """Settings, names with what was measured in each where they differ, and methods over seeds."""
    names = []
    for i, name in enumerate(found.names):
        before, after = found.measured.get(i, (None, None))
        told = {"differs_in": list(name.parts), "fault": name.fault, "before": before, "after": after}
        names.append(_name(name) | told)
    methods = [
        {key: value for key, value in _over_seeds(found, group).items() if key not in ("change", "measure")}
        | {"times_as_long": group.times}
        for group in found.groups
    ]
    where = {"before": found.before, "after": found.after, "metric": found.metric, "worse": found.worse}
    return json_text({**where, "settings": [asdict(one) for one in found.settings], "names": names, "methods": methods})
