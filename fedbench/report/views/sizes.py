"""Deployable models: what clients can run of each method's model, and how good that is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.errors import UserError
from fedbench.report.frames import PLACE, Format, frame
from fedbench.report.leaderboards import Leaderboard, Row, concluded
from fedbench.report.run_scores import RunScores, score
from fedbench.report.significance import legend_of_groups
from fedbench.report.views.leaderboard import about, page_of, score_columns, subtitle, unranked
from fedbench.results import Result
from fedbench.results.scores import average, higher_is_better, is_fraction
from fedbench.types import Size

if TYPE_CHECKING:
    import pandas

NOT_SCORED = "not scored at sizes: its suite has no `evaluation: {sizes: true}`"
NONE_SCORED = "no model here was scored at sizes.\nSay `evaluation: {sizes: true}` in the suite and run it again."
KINDS = {"layers": "capacity", "rank": "rank", "width": "width"}  # by what sizes differ, and the name of that in `Size`
PARTS = {
    "score": "",
    "device": "mean over the clients of each device",
    **{f"by {kind}": f"by {kind}" for kind in KINDS},
    **{f"by {kind}: memory": f"by {kind}: memory to answer one image" for kind in KINDS},
    "memory": "",
}
LEGEND = (
    "deployable: mean over clients of the largest size that each can run, by the method's own rule, on the test "
    "examples of its domain, or its own where clients are tested; a client that can run nothing counts 0. worst: its "
    "worst client.",
    "run any, run largest: the share of clients that can run a size at all, and the largest, which is the model that "
    "other tables score (model).",
    "By size: on all test examples, and the memory to answer one.",
)


def deployable(boards: Sequence[Leaderboard], equivalent: float | None = None) -> pandas.DataFrame:
    """A row for each method: the mean over clients of what each can run, by device and by size.

    Columns: as of a leaderboard, where mean is that of what is deployable; worst, run_any, run_largest (shares of the
    clients), model (the score of the whole model), `on DEVICE`, and for each size such as `layers 4` the score, with
    `memory` and `clients` (how many run it) after its name.

    Raises:
        UserError: where no result was scored at sizes.
    """
    found = [concluded(_deployed(board), equivalent) for board in boards]
    if not any(row.runs for board in found for row in board.rows):
        raise UserError(NONE_SCORED)
    rows, formats, pages = [], dict[str, Format](), []
    for board, before in zip(found, boards, strict=True):
        whole = {row.label: row.average for row in before.rows}
        helped = []
        for row in board.shown:
            sizes = by_size(row)
            model = whole[row.label]
            rows.append(_columns(board, row, sizes, formats) | {"model": model.mean if model else None})
            helped += [row.label] if len(sizes) and not sizes["alone"].any() else []
        facts = page_of(board, f"deployable · {subtitle(board)}")
        helped = [row.label for row in board.rows if row.label in helped]
        facts["notes"] += [f"{', '.join(helped)}: no client can answer without the server"] if helped else []
        pages.append(facts)
    grouped = any(row.group for board in found for row in board.rows)
    names = ("mean", "std", "group", "ci_low", "ci_high", "n_seeds", "worst", "run_any", "run_largest", "model")
    order = sorted(formats, key=lambda name: _place(formats[name]))
    return frame(
        rows,
        (*PLACE, "method", "role", "status", *names, *order),
        caption="What clients can run of each method's model",
        pages=pages,
        formats={
            "mean": Format("deployable", "score", "metric"),
            "run_any": Format("run any", "share", "high"),
            "run_largest": Format("run largest", "share", "high"),
            "model": Format("model", "score", "metric"),
            "role": Format(part=""),
            **formats,
        },
        legend=[*LEGEND, *([legend_of_groups(unranked(found))] if grouped else [])],
        parts=PARTS,
        **about(found),
    )


def _place(column: Format) -> tuple[int, float]:
    """Where a column of a device or a size stands: by its part, and there by the size."""
    part = column.part or "memory"
    return list(PARTS).index(part), float(column.title) if part.startswith("by ") else 0.0


def _deployed(board: Leaderboard) -> Leaderboard:
    """The same leaderboard with what is deployable in place of what the one model scores."""
    rows = []
    for row in board.rows:
        runs = _runs(by_client(row.finished.values(), row.metric), row.metric)
        average, worst = (
            score({run.seed: getattr(run, name) for run in runs}, row.draws, is_fraction(row.metric)) if runs else None
            for name in ("average", "worst")
        )
        rows.append(replace(row, runs=runs, domains={}, spread=None, worst_clients=None, average=average, worst=worst))
    without = [row.label for row, before in zip(rows, board.rows, strict=True) if before.runs and not row.runs]
    notes = [*board.notes, *([f"{', '.join(without)}: {NOT_SCORED}"] if without else [])]
    return replace(board, rows=rows, notes=notes, baseline=None)


def by_client(results: Iterable[Result], metric: str) -> pandas.DataFrame:
    """What every client can run, as far as it has test images.

    Returns:
        By row: seed, round, domain, client, device, size (None for nothing) and value, 0 for nothing.
    """
    import pandas  # which takes a while, and other views go without

    columns = ["seed", "round", "domain", "client", "device", "size", "value"]
    rows = [
        (result.entry.seed, *(row[name] for name in columns[1:5]), size, row["value"] if size else 0.0)
        for result in results
        for row in _rows_of(result, "deployed", metric)
        for size in [None if row["capacity"] is None else Size(row["capacity"], row["rank"], row["width"])]
    ]
    return pandas.DataFrame(rows, columns=columns)


def _rows_of(result: Result, kind: str, metric: str) -> list[dict[str, Any]]:
    """The rows of one metric in one of a result's tables."""
    return [row for row in result.table(kind).to_pylist() if row["metric"] == metric]


def scored_sizes(result: Result, metric: str) -> dict[Size, tuple[float, int | None, bool]]:
    """Of every size that a result was scored at: the average, the bytes to answer one image, None where they are
    unknown, and whether a device can answer with it without the server."""
    values: dict[Size, dict[tuple[str, int], float]] = {}
    facts: dict[Size, tuple[int | None, bool]] = {}
    for one in _rows_of(result, "sizes", metric):
        size = Size(one["capacity"], one["rank"], one["width"])
        values.setdefault(size, {})[one["domain"], one["client"]] = one["value"]
        facts[size] = one["memory_bytes"], one["alone"]
    return {size: (average(own), *facts[size]) for size, own in values.items()}


def _runs(clients: pandas.DataFrame, metric: str) -> tuple[RunScores, ...]:
    """A run for each seed, but of a loss, whose best is 0, none where a client can run nothing."""
    higher, runs = higher_is_better(metric), []
    for seed, found in clients.groupby("seed", sort=False):
        if higher or found["size"].notna().all():
            keys = zip(found["domain"], found["client"], strict=True)
            values = dict(zip(keys, found["value"].tolist(), strict=True))
            worst = (min if higher else max)(values.values())
            runs.append(
                RunScores(int(str(seed)), int(found["round"].iloc[0]), values, {}, float(found["value"].mean()), worst)
            )
    return tuple(runs)


def by_size(row: Row) -> pandas.DataFrame:
    """A row's model at each size, the smallest first.

    Returns:
        By row: size, mean and std of its score over seeds, memory (bytes to answer one image, the largest of any seed,
        None where it is unknown), alone (whether a device can answer with it without the server), clients (how many run
        it, the mean over seeds).
    """
    import pandas

    seeds: dict[Size, dict[int, tuple[float, int | None, bool]]] = {}
    done = [r for r in row.finished.values() if len(r.table("sizes"))]
    for result in done:
        for size, facts in scored_sizes(result, row.metric).items():
            seeds.setdefault(size, {})[result.entry.seed] = facts
    runs = by_client(done, row.metric)["size"].value_counts()
    rows = []
    for size in sorted(seeds, key=lambda size: size.order):
        scores, memory, alone = zip(*seeds[size].values(), strict=True)
        over = score(dict(zip(seeds[size], scores, strict=True)), row.draws)
        most = max((bytes for bytes in memory if bytes is not None), default=None)
        rows.append((size, over.mean, over.std, most, all(alone), runs.get(size, 0) / len(done)))
    return pandas.DataFrame(rows, columns=["size", "mean", "std", "memory", "alone", "clients"], dtype=object)


def _columns(board: Leaderboard, row: Row, sizes: pandas.DataFrame, formats: dict[str, Format]) -> dict[str, Any]:
    """One row; formats gets those of its devices and sizes."""
    clients = by_client(row.finished.values(), row.metric)
    tested = {r.entry.seed: scored_sizes(r, row.metric) for r in row.finished.values()}
    largest = {seed: max(sizes, key=lambda size: size.order, default=None) for seed, sizes in tested.items()}
    status = "" if row.status == "finished" and not row.runs else row.status
    found: dict[str, Any] = {**board.place._asdict(), "method": row.label, "role": row.role, "status": status}
    found |= {**score_columns(row.average), "group": row.group, "n_seeds": len(row.runs), "ranked": row.ranked}
    found["worst"] = row.worst.mean if row.worst else None
    if len(clients):
        whole = [size == largest[seed] for seed, size in zip(clients["seed"], clients["size"], strict=True)]
        found |= {"run_any": float(clients["size"].notna().mean()), "run_largest": sum(whole) / len(whole)}
    for device, own in clients[clients["device"] != ""].groupby("device"):
        formats[f"on {device}"] = Format(str(device), "score", "metric", "device")
        found[f"on {device}"] = float(own["value"].mean()) if own["size"].notna().any() else None
    for size, mean, _, memory, _, run_by in sizes.itertuples(index=False) if sizes["alone"].any() else ():
        kind = "width" if size.width is not None else "rank" if size.rank is not None else "layers"
        value = f"{getattr(size, KINDS[kind]):g}"
        name = f"{kind} {value}"
        formats[name] = Format(value, "score", "metric", f"by {kind}")
        formats[f"{name} memory"] = Format(value, "bytes", "low", f"by {kind}: memory")
        formats[f"{name} clients"] = Format(f"{name}, clients", "decimal", "high", "")
        found |= {name: mean, f"{name} memory": memory, f"{name} clients": run_by}
    return found
