"""Differences between two results: a frame with a row for each name, and what both were computed with."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, ONLY_WITH_ROWS, UNHASHED
from fedbench.results.files import checked_table, digest_of_table, has_table, manifest_content
from fedbench.results.result import Result, first_line
from fedbench.results.scores import measure, without_noise
from fedbench.words import counted

if TYPE_CHECKING:
    import pandas

KEY = ("suite", "scenario", "variant", "method", "seed")  # the name of a cell
SCORE = ("round", "split", "domain", "client", "metric")  # what tells the rows of an evaluation apart

# What became of a name. Both sides have a result: with equal tables; with scores no farther apart than the tolerance;
# or farther. One side has a result, or none has; one of them does not match its checksum; only one side has the name.
EQUAL, CLOSE, DIFFERENT = "equal", "within tolerance", "different"
LOST, GAINED, NEITHER = "lost", "gained", "no result"
DAMAGED, ONLY_BEFORE, ONLY_AFTER = "damaged", "only before", "only after"

PARTS = ("versions", "machine", "git", "fingerprints", "config")  # of a manifest, in the order they are shown
MOST = 3  # pairs of values of one setting that are listed one by one


def name_of(result: Result) -> tuple[str, str, str, str, int]:
    """By KEY."""
    e = result.entry
    return result.suite, e.scenario, e.variant, e.method, e.seed


def differences(
    before: Iterable[Result], after: Iterable[Result], metric: str = "accuracy", tolerance: float = 0.0
) -> pandas.DataFrame:
    """Every name of either side once, in the order of the first side.

    Args:
        before: results.
        after: others.
        metric: of which the columns `before` and `after` are.
        tolerance: how far any score may be from that of the other side, in points where it is a fraction.

    Returns:
        By row: KEY; `change`, EQUAL or one of the other words above; `same_id`, whether both are one cell, None where
        a side lacks the name; `status_before` and `status_after`; `differs_in`, the tables that differ; the metric's
        average on test examples after the last round, `before` and `after`, and their `difference`; `largest`, the
        largest difference of any of its scores; `reason`, why a side has no result, or which other metric differs.
    """
    import pandas

    was, now = ({name_of(one): one for one in side} for side in (before, after))
    known: dict[Any, dict[str, Any]] = {}  # two cells are compared once, however many names they have
    rows = []
    for name in dict.fromkeys((*was, *now)):
        old, new = was.get(name), now.get(name)
        row: dict[str, Any] = {**dict(zip(KEY, name, strict=True)), "change": ONLY_BEFORE if old else ONLY_AFTER}
        if old and new:
            pair = (old.folder, new.folder)
            if pair not in known:
                known[pair] = _change(old, new, metric, tolerance)
            row |= known[pair] | {"same_id": old.entry.cell == new.entry.cell}
        rows.append(row | {"status_before": old and old.status, "status_after": new and new.status})
    names = ("change", "same_id", "status_before", "status_after", "differs_in")
    scores = ("before", "after", "difference", "largest", "reason")
    found = pandas.DataFrame(rows, columns=[*KEY, *names, *scores])
    return found.astype({"same_id": object, "before": float, "after": float, "difference": float, "largest": float})


def _change(old: Result, new: Result, metric: str, tolerance: float) -> dict[str, Any]:
    """What became of a name that both sides have: the columns of `differences`."""
    for one in (old, new):
        if one.fault:
            return {"change": DAMAGED, "reason": one.fault}
    done = [one.status == "finished" for one in (old, new)]
    if not all(done):
        without = old if done[1] else new
        why = (without.manifest.get("reason") or "").strip().partition("\n")[0]
        change = LOST if done[0] else GAINED if done[1] else NEITHER
        return {"change": change, "reason": ": ".join(filter(None, (without.status, why)))}
    try:
        parts = differing(old, new)
        return {"change": CLOSE if parts else EQUAL, "differs_in": " ".join(parts)} | _scores(
            old, new, metric, tolerance, "eval" in parts
        )
    except UserError as error:
        return {"change": DAMAGED, "reason": first_line(error)}


def _scores(old: Result, new: Result, metric: str, tolerance: float, other: bool) -> dict[str, Any]:
    """How far the scores of two finished cells are apart; other: whether they are not equal to the bit."""
    sides = [one.eval.to_pandas() for one in (old, new)]
    last = [_last(side, metric) for side in sides]
    found: dict[str, Any] = {"before": last[0], "after": last[1], "difference": last[1] - last[0], "largest": 0.0}
    if not other:
        return found
    both = sides[0].merge(sides[1], "outer", on=list(SCORE), suffixes=("_before", "_after"), indicator=True)
    if (both["_merge"] != "both").any():
        return found | {"change": DIFFERENT, "reason": "other rounds, domains or metrics were scored"}
    apart = (both["value_after"] - both["value_before"]).abs()
    apart = apart.where(apart.notna() | (both["value_before"].isna() & both["value_after"].isna()), math.inf).fillna(0)
    largest = apart.groupby(both["metric"]).max()
    beyond = [name for name, most in largest.items() if without_noise(most) > without_noise(_limit(name, tolerance))]
    others = [f"{name} differs by up to {largest[name]:.4g}" for name in beyond if name != metric]
    found |= {"change": DIFFERENT if beyond else CLOSE, "reason": "; ".join(others)}
    return found | ({"largest": float(largest[metric])} if metric in largest else {})


def _last(scores: pandas.DataFrame, metric: str) -> float:
    """The average after the last round on test examples; NaN where the metric was not measured."""
    tested = scores[(scores["metric"] == metric) & (scores["split"] == "test")]
    return float(tested["value"][tested["round"] == tested["round"].max()].mean())


def _limit(metric: str, tolerance: float) -> float:
    return tolerance / 100 if measure(metric).unit == "%" else tolerance


def shared(before: Iterable[Result], after: Iterable[Result]) -> bool:
    """Whether two folders have a name in common that means two cells, and not one that both paths lead to."""
    folders = {(r.suite, *r.entry.key): r.folder.resolve() for r in before}
    return any(folders.get((r.suite, *r.entry.key), r.folder.resolve()) != r.folder.resolve() for r in after)


def settings(pairs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> pandas.DataFrame:
    """What cells were computed with, as far as it is not the same on both sides.

    Args:
        pairs: Manifests, before and after.

    Returns:
        A row for each value that differs: `what` (such as `versions.torch`), `before` and `after` as text, None where
        it is missing, and `cells`, in how many pairs. What differs in most of them comes first in its part; a setting
        with many pairs of values has one row that counts them.
    """
    import pandas

    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    for old, new in pairs:
        if old and new:
            was, now = dict(_flat(old)), dict(_flat(new))
            keys = dict.fromkeys((*was, *now))
            counts.update((key, was.get(key), now.get(key)) for key in keys if was.get(key) != now.get(key))
    values: dict[str, list[tuple[str | None, str | None, int]]] = {}
    for (what, old_value, new_value), n in counts.most_common():
        values.setdefault(what, []).append((old_value, new_value, n))
    rows = []
    for what in sorted(values, key=lambda what: PARTS.index(what.partition(".")[0])):
        one = values[what]
        if len(one) > MOST:
            sides = [counted(len({value[side] for value in one}), "value") for side in (0, 1)]
            one = [(sides[0], sides[1], sum(n for *_, n in one))]
        rows += [(what, *value) for value in one]
    return pandas.DataFrame(rows, columns=["what", "before", "after", "cells"], dtype=object)


def _flat(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in PARTS:
        if manifest.get(part) is not None:
            yield from flatten(manifest[part], part)


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """A nested configuration as dotted keys with their values as text."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def differing(one: Result, other: Result) -> tuple[str, ...]:
    """The tables, of two finished cells, that say something else, timings aside; of one id also `manifest`.

    A table that came when results were kept already says nothing where one of them is without it. Raises: UserError
    where one is not as it was written.
    """
    apart = [kind for kind in COLUMNS if _apart(kind, one, other)]
    same = one.manifest.get("id") == other.manifest.get("id")
    if same and manifest_content(one.manifest) != manifest_content(other.manifest):
        apart.insert(0, "manifest")
    return tuple(apart)


def _apart(kind: str, one: Result, other: Result) -> bool:
    there = [has_table(kind, result.folder, result.manifest) for result in (one, other)]
    if not any(there) or (kind in UNHASHED and not all(there)):
        return False
    if not all(there):
        whole = one if there[0] else other
        return kind not in ONLY_WITH_ROWS or checked_table(kind, whole.folder, whole.manifest).num_rows > 0
    tables = (checked_table(kind, result.folder, result.manifest) for result in (one, other))
    return len({digest_of_table(kind, table, one.manifest.get("ignored", ())) for table in tables}) > 1
