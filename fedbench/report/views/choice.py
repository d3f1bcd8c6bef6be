"""Which method for which device: a matrix of what fits, what it costs and how good it is, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import Format, frame, number, page
from fedbench.report.grouping import draws_of
from fedbench.report.significance import conclusion, margin_of, too_few
from fedbench.report.statistics.pairs import Draws, by_draw, verdicts
from fedbench.report.views.devices import Outlooks
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
    *("method", "role", "device", "clients", "size", "capacity", "rank", "width", "memory_bytes", "micro_batch"),
    *("seconds", "bytes", METRIC),
)
OF_CEILINGS = "ceiling: nothing limits it, so it may take more than a device has."
ROLES = ("method", "control", "ceiling")  # in the order of the matrix; only methods are recommended
Rows = Sequence[Mapping[str, Any]]  # of one method, one for each device


@dataclass(frozen=True)
class Accuracies:
    """How good each method's model is at each of its sizes.

    Attributes:
        backbones: What the results were made with.
        scores: By method, size and seed; of the whole model under None.
        draws: By seed, the draw it belongs to.
    """

    backbones: Sequence[str] = ()
    scores: Mapping[str, Mapping[Size | None, Mapping[int, float]]] = field(default_factory=dict)
    draws: Draws = field(default_factory=dict)

    def at(self, method: str, size: Size, only: bool) -> dict[int, float]:
        """By seed, the accuracy at a size; the whole model's where there is but one size."""
        own = self.scores.get(method, {})
        return dict(own.get(size, own.get(None, {}) if only else {}))


def accuracies(results: Iterable[Result], scenario: str | None = None, variant: str | None = None) -> Accuracies:
    """Return how good each method's model is at each of its sizes.

    Args:
        results: Of one suite, scenario and variant, or of several.
        scenario: Which one.
        variant: Which one.

    Raises:
        UserError: where they are of several and none of these is named.
    """
    used = [result for result in results if result.status == "finished"]
    for option, wanted, of in (
        ("--scenario", scenario, lambda result: result.entry.scenario),
        ("--variant", variant, lambda result: result.entry.variant),
    ):
        there = list(dict.fromkeys(map(of, used)))
        if wanted is None and len(there) > 1:
            names = ", ".join(f"'{one}'" for one in there)
            raise UserError(f"--accuracy: results of {names}; say which with {option} '{there[0]}'")
        if wanted is not None and wanted not in there:
            raise UserError(f"{option} {wanted}: no such results{suggestion(wanted, there, 'there are')}")
        used = [result for result in used if wanted in (None, of(result))]
    boards = list(dict.fromkeys(f"{r.suite} on {r.entry.backbone} and {r.entry.dataset}" for r in used))
    if len(boards) > 1:
        raise UserError(f"--accuracy: results of {'; '.join(boards)}; give those of one, by its folder")
    found: dict[str, dict[Size | None, dict[int, float]]] = {}
    for result in used:
        for size, value in _of_sizes(result).items():
            found.setdefault(result.entry.method, {}).setdefault(size, {})[result.entry.seed] = value
    draws = draws_of((result.entry.seed, result.manifest["config"]) for result in used if result.manifest)
    return Accuracies(sorted({result.entry.backbone for result in used}), found, draws)


def _of_sizes(result: Result) -> dict[Size | None, float]:
    """A model's accuracy at every size that it was scored at, and of the whole after its last round."""
    found: dict[Size | None, float] = {size: score for size, (score, *_) in scored_sizes(result, METRIC).items()}
    if tested := result.scores(METRIC):
        found[None] = average(tested[max(tested)])
    return found


def choice(
    backbone: str,
    found: Outlooks,
    roles: Mapping[str, str],
    scored: Accuracies | None,
    rules: tuple[str, str],
    notes: Sequence[str] = (),
    clients: Mapping[str, int] | None = None,
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the matrix of methods and devices for people, and its cells as rows for programs.

    Args:
        backbone: Its name.
        found: By the labels of methods, what fits each device.
        roles: Of methods.
        scored: See `accuracies`; None where no results were given.
        rules: What sizes must fit into, and a sentence on how clients train.
        notes: What else is to be known.
        clients: How many have each device; one if not given.
    """
    weights = clients or {}
    by_method = {
        method: [_cell(method, roles.get(method, "method"), one, scored, weights) for one in own]
        for method, own in found.items()
    }
    rows = [row for own in by_method.values() for row in own]
    ordered = sorted(by_method, key=lambda method: _order(by_method[method]))
    ceilings = [OF_CEILINGS] if any(row["role"] == "ceiling" for row in rows) else []
    devices = list(dict.fromkeys(row["device"] for row in rows))
    caption = f"Which method for which device, with {backbone}"
    legend = [
        f"size: the largest that fits into {rules[0]}; then what it needs, the time of a round, its bytes down and up"
        + (", and the accuracy at that size." if scored else "."),
        *ceilings,
        rules[1],
        recommendation(backbone, by_method, scored),
    ]
    shown = [
        {
            "method": method,
            "role": role if (role := by_method[method][0]["role"]) != "method" else "",
            **{row["device"]: _text(row, scored is not None) for row in by_method[method]},
        }
        for method in ordered
    ]
    titles = {one: one if weights.get(one, 1) == 1 else f"{weights[one]} × {one}" for one in devices}
    formats = {
        "method": Format(part="name"),
        "role": Format(left=True),
        **{device: Format(title, part=title, left=True) for device, title in titles.items()},
    }
    pages = [page((), title=caption, notes=list(notes))]
    columns = ("method", "role", *devices)
    matrix = frame(shown, columns, caption=caption, by=(), pages=pages, formats=formats, legend=legend, dashes=True)
    cells = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return matrix, frame(cells, COLUMNS, caption=caption, by=(), pages=pages, legend=legend)


def _cell(
    method: str, role: str, one: Outlook, scored: Accuracies | None, clients: Mapping[str, int]
) -> dict[str, Any]:
    """One method on one device: the columns of COLUMNS, and `by_seed`, its accuracy there."""
    name, size = one.device.name, one.size
    found = {"method": method, "role": role, "device": name, "clients": clients.get(name, 1), "size": None}
    if size is None or one.seconds is None or one.moved is None:
        return {**found, METRIC: None, "by_seed": {}}
    by_seed = scored.at(method, size, one.only) if scored else {}
    return {
        **found,
        "size": one.label,
        "capacity": size.capacity,
        "rank": size.rank,
        "width": size.width,
        "memory_bytes": one.needed,
        "micro_batch": one.batch or None,
        "seconds": one.seconds.total,
        "bytes": sum(one.moved),
        METRIC: fmean(by_seed.values()) if by_seed else None,
        "by_seed": by_seed,
    }


def _text(row: Mapping[str, Any], with_accuracy: bool) -> str:
    if row["size"] is None:
        return NONE
    parts = [row["size"], human_bytes(row["memory_bytes"]), roughly(row["seconds"]), human_bytes(row["bytes"])]
    if with_accuracy:
        parts.append(NONE if row[METRIC] is None else f"{number(row[METRIC], METRIC)} %")
    return " · ".join(parts)


def _order(rows: Rows) -> tuple[int, int, float, float]:
    """By role; then those that fit most devices, of these the best, or the quickest on their slowest device."""
    there = [row for row in rows if row["size"] is not None]
    scores = _over_devices(there)
    role = ROLES.index(rows[0]["role"]) if rows[0]["role"] in ROLES else len(ROLES)
    best = fmean(scores.values()) if scores else -1.0
    return role, -len(there), -best, max((row["seconds"] for row in there), default=0.0)


def _over_devices(rows: Rows) -> dict[int, float]:
    """By seed that every device has, the mean accuracy over clients."""
    seeds = set.intersection(*(set(row["by_seed"]) for row in rows)) if rows else set()
    weights = [row["clients"] for row in rows]
    return {seed: fmean((row["by_seed"][seed] for row in rows), weights) for seed in sorted(seeds)}


def recommendation(backbone: str, by_method: Mapping[str, Rows], scored: Accuracies | None) -> str:
    """Return a sentence on which method to take, by the rules of a leaderboard, or why none is recommended.

    Bounds and controls never are, nor what costs little but is of unknown accuracy.

    Args:
        backbone: What is to be fine-tuned.
        by_method: The cells of each method, one for each device.
        scored: The accuracies of given results, if any were given.
    """
    own = {method: rows for method, rows in by_method.items() if rows[0]["role"] == "method"}
    fits = {method: [row for row in rows if row["size"] is not None] for method, rows in own.items()}
    most = max(map(len, fits.values()), default=0)
    if not most:
        return "No recommendation: no method fits any of these devices."
    if scored is None:
        return (
            "No recommendation: what fits says nothing of accuracy. --accuracy RESULTS adds that of results whose "
            "suite has `evaluation: {sizes: true}`."
        )
    if other := [name for name in scored.backbones if name != backbone]:
        return f"No recommendation: the accuracies are those of {', '.join(other)}, not of {backbone}."
    devices = len(next(iter(own.values())))
    where = "every device" if most == devices else f"{most} of {counted(devices, 'device')}"
    there = [method for method, rows in fits.items() if len(rows) == most]
    scores = {method: found for method in there if (found := _over_devices(fits[method]))}
    of_all = f"{counted(len(there), 'method')} that fit{'s' * (len(there) == 1)} {where}"
    if len(scores) < 2:
        return (
            f"No recommendation: of {of_all}, {len(scores) or 'none'} was scored at the sizes that fit, and it takes "
            f"two to compare. A suite with `evaluation: {{sizes: true}}` scores them."
        )
    means = {method: by_draw(found, scored.draws) for method, found in scores.items()}
    ranked = dict(sorted(means.items(), key=lambda one: -fmean(one[1].values())))
    replicate = "draw" if any(seed != draw for seed, draw in scored.draws.items()) else "seed"
    said = conclusion(ranked, verdicts(scores, True, margin_of(METRIC, None), scored.draws), replicate)
    if said == too_few(ranked, replicate):
        return f"No recommendation: {said}"
    return f"By accuracy over these devices, comparing {len(scores)} of {of_all}: {said}"
