"""Which method for which device: a matrix of what fits, what it costs and how good it is, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import Format, frame, number, page
from fedbench.report.views.devices import Found
from fedbench.report.views.sizes import scored_sizes
from fedbench.results import Result
from fedbench.results.scores import average
from fedbench.types import Size
from fedbench.words import counted, human_bytes, roughly, suggestion

if TYPE_CHECKING:
    from fedbench.devices.feasibility import Outlook

METRIC = "accuracy"
NONE = "–"
COLUMNS = (
    *("method", "role", "device", "size", "capacity", "rank", "width", "memory_bytes", "micro_batch", "seconds"),
    *("bytes", METRIC),
)
Accuracies = Mapping[str, Mapping[Size | None, float]]  # by method and size; of the whole model under None


def accuracies(results: Iterable[Result], scenario: str | None = None) -> Accuracies:
    """Return how good each method's model is at each of its sizes: the mean over seeds.

    Args:
        results: Of one scenario, or of several.
        scenario: Which one.

    Raises:
        UserError: where they are of several and none of these is named.
    """
    done = [result for result in results if result.status == "finished"]
    there = list(dict.fromkeys(result.entry.scenario for result in done))
    if scenario is None and len(there) > 1:
        raise UserError(f"--accuracy: results of {', '.join(there)}; say which with --scenario, e.g. {there[0]}")
    if scenario is not None and scenario not in there:
        raise UserError(f"--scenario {scenario}: no such results{suggestion(scenario, there, 'there are')}")
    seeds: dict[str, dict[Size | None, list[float]]] = {}
    for result in done:
        if scenario in (None, result.entry.scenario):
            for size, value in _of_sizes(result).items():
                seeds.setdefault(result.entry.method, {}).setdefault(size, []).append(value)
    return {method: {size: mean(values) for size, values in own.items()} for method, own in seeds.items()}


def _of_sizes(result: Result) -> dict[Size | None, float]:
    """A model's accuracy at every size that it was scored at, and of the whole after its last round."""
    found: dict[Size | None, float] = {size: score for size, (score, *_) in scored_sizes(result, METRIC).items()}
    if tested := result.scores(METRIC):
        found[None] = average(tested[max(tested)])
    return found


def choice(
    backbone: str, found: Found, roles: Mapping[str, str], scored: Accuracies, how: str, notes: Sequence[str] = ()
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the matrix of methods and devices for people, and its cells as rows for programs.

    Args:
        backbone: Its name.
        found: By the labels of methods, what fits each device.
        roles: Of methods.
        scored: See `accuracies`; empty without results.
        how: A sentence on how clients train.
        notes: What else is to be known.
    """
    rows = [_cell(method, roles.get(method, "method"), one, scored) for method, own in found.items() for one in own]
    by_method: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    ordered = sorted(by_method, key=lambda method: _order(by_method[method]))
    devices = list(dict.fromkeys(row["device"] for row in rows))
    caption = f"Which method for which device, with {backbone}"
    legend = [
        "size: the largest that fits the memory; then what it needs, the seconds of a round, its bytes down and up"
        + (", and the accuracy at that size." if scored else "."),
        how,
        recommendation(by_method),
    ]
    shown = [
        {"method": method, **{row["device"]: _text(row, bool(scored)) for row in by_method[method]}}
        for method in ordered
    ]
    formats = {"method": Format(part="name"), **{device: Format(part=device, left=True) for device in devices}}
    pages = [page((), title=caption, notes=list(notes))]
    matrix = frame(
        shown, ("method", *devices), caption=caption, by=(), pages=pages, formats=formats, legend=legend, dashes=True
    )
    return matrix, frame(rows, COLUMNS, caption=caption, by=(), pages=pages, legend=legend)


def _cell(method: str, role: str, one: Outlook, scored: Accuracies) -> dict[str, Any]:
    own, size = scored.get(method, {}), one.size
    found = {"method": method, "role": role, "device": one.device.name, "size": size and one.label}
    if size is None or one.seconds is None or one.moved is None:
        return found
    return {
        **found,
        "capacity": size.capacity,
        "rank": size.rank,
        "width": size.width,
        "memory_bytes": one.needed,
        "micro_batch": one.batch or None,
        "seconds": one.seconds.total,
        "bytes": sum(one.moved),
        METRIC: own.get(size, own.get(None) if one.only else None),
    }


def _text(row: Mapping[str, Any], with_accuracy: bool) -> str:
    if row["size"] is None:
        return NONE
    parts = [row["size"], human_bytes(row["memory_bytes"]), roughly(row["seconds"]), human_bytes(row["bytes"])]
    if with_accuracy:
        parts.append(NONE if row[METRIC] is None else f"{number(row[METRIC], METRIC)} %")
    return " · ".join(parts)


def _order(rows: Sequence[Mapping[str, Any]]) -> tuple[int, float, float]:
    """First those that fit most devices, of these the best, or the quickest on their slowest device."""
    there = [row for row in rows if row["size"] is not None]
    scores = [row[METRIC] for row in there if row[METRIC] is not None]
    score = mean(scores) if scores and len(scores) == len(there) else -1.0
    return -len(there), -score, max((row["seconds"] for row in there), default=0.0)


def recommendation(by_method: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return a sentence on which method to take: no bound and no control, on all devices if any is."""
    own = {method: rows for method, rows in by_method.items() if rows[0]["role"] == "method"}
    fits = {method: [row for row in rows if row["size"] is not None] for method, rows in own.items()}
    most = max(map(len, fits.values()), default=0)
    if not most:
        return "Recommended: none, since no method fits any of these devices."
    named = [method for method, rows in fits.items() if len(rows) == most]
    devices = len(next(iter(own.values())))
    where = "every device" if most == devices else f"{most} of {counted(devices, 'device')}"
    of_all = f"{counted(len(named), 'method')} that fit{'s' * (len(named) == 1)} {where}"
    scored = [method for method in named if all(row[METRIC] is not None for row in fits[method])]
    if scored:
        best = min(scored, key=lambda method: _order(own[method]))
        value = f"{number(mean(row[METRIC] for row in fits[best]), METRIC)} % over devices"
        return f"Recommended: {best}, with {value} the most accurate of the {len(scored)} scored of {of_all}."
    quick = min(named, key=lambda method: max(row["seconds"] for row in fits[method]))
    slowest = max(fits[quick], key=lambda row: row["seconds"])
    return (
        f"Recommended: {quick}, the quickest of {of_all} (a round takes {roughly(slowest['seconds'])} on "
        f"{slowest['device']}). This says nothing of accuracy; --accuracy RESULTS does."
    )
