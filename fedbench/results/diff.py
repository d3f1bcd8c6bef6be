"""Differences between two results: which cells came out the same, and what is not as it was."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedbench.errors import UserError
from fedbench.results.columns import COLUMNS, ONLY_WITH_ROWS, UNHASHED
from fedbench.results.content import digest_of_table, manifest_content
from fedbench.results.files import checked_table, has_table
from fedbench.results.result import Result, first_line
from fedbench.results.scores import average
from fedbench.words import counted

if TYPE_CHECKING:
    import pandas

KEY = ("suite", "scenario", "variant", "method", "seed")  # the name of a cell
GROUP = KEY[:-1]

# What became of a name: its result is the same or another one; there was one before, or is one now, or there is none in
# either; one of them is not as it was written; or only one side has the name.
EQUAL, DIFFERENT, LOST, GAINED, NEITHER = "equal", "different", "lost", "gained", "no result"
DAMAGED, ONLY_BEFORE, ONLY_AFTER = "damaged", "only before", "only after"

PARTS = ("versions", "machine", "git", "fingerprints", "config")  # of a manifest, in the order they are shown
MOST = 3  # pairs of values of one setting that are listed one by one


@dataclass(frozen=True)
class CellSummary:
    """A cell under one of its names: what it was computed from, how it ended, and what it scored.

    Attributes:
        manifest: Its `config`, `versions`, `fingerprints`, `machine` and `git`; empty where it was not started.
        reason: Why there is no result, or what is wrong with it.
        result: Its files, which are compared table by table.
    """

    suite: str
    scenario: str
    variant: str
    method: str
    seed: int
    id: str
    status: str
    manifest: Mapping[str, Any] = field(repr=False, compare=False)
    reason: str = ""
    result: Result | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, result: Result) -> CellSummary:
        """Of a result."""
        e, manifest = result.entry, result.manifest
        return cls(
            result.suite,
            e.scenario,
            e.variant,
            e.method,
            e.seed,
            manifest.get("id", e.cell.rpartition("-")[2]),
            result.status,
            manifest,
            result.fault or manifest.get("reason") or "",
            result,
        )

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """By KEY."""
        return self.suite, self.scenario, self.variant, self.method, self.seed

    @cached_property
    def scores(self) -> ScoreDigest:
        """What a finished cell scored and cost in short."""
        assert self.result is not None
        return score_digest(self.result)


def diff(before: Iterable[CellSummary], after: Iterable[CellSummary]) -> pandas.DataFrame:
    """Every name of either side once, in the order of the first side.

    Two cells are compared once, however many names they have.

    Returns:
        By row: KEY; `change`, EQUAL or one of the other words above; `same_id`, whether both are one cell;
        `status_before` and `status_after`; `differs_in`, of DIFFERENT the tables that differ; `fault`, of DAMAGED what
        is wrong; the cells themselves as `old` and `new`. What a side without the name would say is None.
    """
    import pandas

    was, now = ({one.name: one for one in side} for side in (before, after))
    known: dict[Any, tuple[str, tuple[str, ...], str]] = {}
    rows = []
    for name in dict.fromkeys((*was, *now)):
        old, new = was.get(name), now.get(name)
        change: tuple[str, tuple[str, ...], str] = (ONLY_AFTER if old is None else ONLY_BEFORE), (), ""
        if old and new:
            pair = tuple(one.result.folder if one.result else one.name for one in (old, new))
            if pair not in known:
                known[pair] = _change(old, new)
            change = known[pair]
        same, sides = old.id == new.id if old and new else None, [one and one.status for one in (old, new)]
        rows.append((*name, change[0], same, *sides, " ".join(change[1]), change[2], old, new))
    columns = ["change", "same_id", "status_before", "status_after", "differs_in", "fault", "old", "new"]
    return pandas.DataFrame(rows, columns=[*KEY, *columns], dtype=object)


def _change(old: CellSummary, new: CellSummary) -> tuple[str, tuple[str, ...], str]:
    """What became of it, in what it differs, and what is wrong with it."""
    for one in (old, new):
        if one.result and one.result.fault:
            return DAMAGED, (), one.result.fault
    done = [one.status == "finished" for one in (old, new)]
    if not all(done):
        return (LOST if done[0] else GAINED if done[1] else NEITHER), (), ""
    try:
        assert old.result and new.result
        parts = differing(old.result, new.result)
    except UserError as error:
        return DAMAGED, (), first_line(error)
    return (DIFFERENT if parts else EQUAL), parts, ""


def shared(before: Iterable[Result], after: Iterable[Result]) -> bool:
    """Whether two folders have a name in common that means two cells, and not one that both paths lead to."""
    places = {(r.suite, *r.entry.key): r.folder.resolve() for r in before}
    return any(places.get((r.suite, *r.entry.key), r.folder.resolve()) != r.folder.resolve() for r in after)


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


@dataclass(frozen=True)
class ScoreDigest:
    """digest: 16 hex digits over all scores of all evaluated rounds, to the bit; scores: by metric the average on test
    images after the last of them, as in a leaderboard, without what is no number; bytes (down and up) and FLOPs: of all
    clients in all rounds."""

    digest: str
    scores: Mapping[str, float]
    bytes: int
    flops: int


def score_digest(result: Result) -> ScoreDigest:
    """Of a finished cell. Raises: UserError where its tables are not as they were written."""
    hashed, columns = hashlib.sha256(), result.evaluation
    for name in COLUMNS["eval"]:
        values = columns[name]
        hashed.update("\0".join(values).encode() if isinstance(values, list) else values.tobytes())
        hashed.update(b"\0\0")
    scores, last = result.scores, max(columns["round"], default=0)
    tested = [metric for metric in sorted(scores.of_split("test")) if last in scores.tested(metric, "test")]
    averages = {metric: average(scores.after(last, metric, "test")) for metric in tested}
    finite = {metric: value for metric, value in averages.items() if math.isfinite(value)}
    down, up, flops = result.totals.get("sums", (0, 0, 0))
    return ScoreDigest(hashed.hexdigest()[:16], finite, down + up, flops)
