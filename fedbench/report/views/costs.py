"""Costs: what methods pay, who pays well for it (Pareto fronts), and what it took to reach a score."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.budget import MEANING, PAID, check_known, unknown
from fedbench.report.frames import PLACE, Format, frame, page
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.run_scores import curve
from fedbench.report.significance import CONDITIONS
from fedbench.report.statistics.pairs import BETTER, INCONCLUSIVE, Pair, turned
from fedbench.report.views.leaderboard import about, page_of, subtitle
from fedbench.results import Result
from fedbench.results.scores import higher_is_better, is_fraction, mean, reaches, spread, without_noise

# In the order of a round: what is given once, and then what every step exchanges.
KINDS = (
    *("embedding", "backbone", "additions", "adapters", "classifiers", "weights"),
    *("features", "gradients", "scalars", "losses", "counts", "images"),
)
# The tables of `costs`, with their captions.
PARTS = {
    "up": "what leaves the client (up)",
    "down": "what the client is sent (down)",
    "client": "what the client computes",
    "server": "what the server computes for it",
    "simulated": "what it takes on the clients' devices (simulated)",
    "run": "what the run took",
}
LEGEND = (
    "Bytes and FLOPs: of one client in one round, the mean over clients, rounds and seeds. whole run: of all clients "
    "in all rounds.",
    "memory min/med/max: an estimate; of each client's largest, the weakest, the median and the largest client. The "
    "server's is for one client at a time.",
    "storage: what the client with the most has kept by the end, where a suite lets clients keep frozen weights or "
    "features.",
    "Γ*, cover: smallest and mean number of clients that train a layer in a round. seconds: wall time of a cell.",
    "A dash: nothing of the kind. What averaging and testing cost is not counted.",
)
SIMULATED = (
    "simulated: down, compute and up of one client in one round; a round and the whole run as the server waits; idle: "
    "the share of the clients' time in which they neither send nor compute; energy: of all clients in all rounds."
)
FORMATS = {
    "up": Format("all kinds", "crossed", "low", "up"),
    "up_total": Format("whole run", "crossed", "low", "up"),
    "down": Format("all kinds", "crossed", "low", "down"),
    "down_total": Format("whole run", "crossed", "low", "down"),
    "gflops": Format("GFLOPs", "gflops", "low", "client"),
    "total_flops": Format("whole run", "flops", "low", "client"),
    "memory_min": Format("memory min/med/max", "bytes", "low", "client"),
    "memory_median": Format(part=""),
    "memory_max": Format(part=""),
    "storage": Format("storage", "bytes", "low", "client"),
    "server_gflops": Format("GFLOPs", "gflops", "low", "server"),
    "server_total_flops": Format("whole run", "flops", "low", "server"),
    "server_memory": Format("memory", "bytes", "low", "server"),
    "down_seconds": Format("down", "seconds", "low", "simulated"),
    "compute_seconds": Format("compute", "seconds", "low", "simulated"),
    "up_seconds": Format("up", "seconds", "low", "simulated"),
    "server_seconds": Format("server", "seconds", "low", "simulated"),
    "round_seconds": Format("a round", "seconds", "low", "simulated"),
    "simulated": Format("whole run", "seconds", "low", "simulated"),
    "idle": Format("idle", "share", "low", "simulated"),
    "energy": Format("energy", "joules", "low", "simulated"),
    "gamma": Format("Γ*", "int", "high", "run"),
    "coverage": Format("cover", "decimal", "high", "run"),
    "seconds": Format("seconds", "cell seconds", "low", "run"),
}


def costs(boards: Sequence[Leaderboard]) -> pandas.DataFrame:
    """A row for each method: bytes by kind and direction, FLOPs, memory of clients and server, simulated time, Gamma*,
    coverage and wall time, as means over seeds."""
    known = [(board, row, row.cost) for board in boards for row in board.shown if not row.output and row.cost]
    kinds = _kinds([cost["exchange"] for *_, cost in known])
    up = [name for name in kinds if name.startswith("up_")]
    down = [name for name in kinds if name not in up]
    rows = []
    for board, row, cost in known:
        moved = {f"{side}_{k}": b for k, both in cost["exchange"].items() for side, b in zip(SIDES, both, strict=True)}
        by_kind = {name: moved.get(name, 0.0) if moved else None for name in kinds}
        names = {**board.place._asdict(), "method": row.label, "role": row.role, "n_seeds": len(row.runs)}
        rows.append({**names, **by_kind, **{name: cost[name] for name in FORMATS}})
    columns = (*up, "up", "up_total", *down, "down", "down_total", *FORMATS) if rows else ()
    return frame(
        rows,
        (*PLACE, "method", "role", "n_seeds", *columns),
        caption="Costs of clients and server",
        pages=[page(board.place, warning=board.warning, notes=_notes(board)) for board in boards],
        formats={**FORMATS, **kinds, "role": Format(part="")},
        legend=[*LEGEND, *([SIMULATED] if any(cost["simulated"] for *_, cost in known) else [])],
        parts=PARTS,
        dashes=True,
        **about(boards),
    )


SIDES = ("down", "up")


def _kinds(exchanges: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, Format]:
    """The columns `up_KIND` and `down_KIND` for each kind of data that any of these runs moved."""
    found = dict.fromkeys(kind for one in exchanges for kind in one)
    kinds = [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]
    return {
        f"{side}_{kind}": Format(kind, "crossed", "low", side)
        for i, side in enumerate(SIDES)
        for kind in kinds
        if any(one[kind][i] for one in exchanges if kind in one)
    }


def _notes(board: Leaderboard) -> list[str]:
    rows = [row for row in board.rows if not row.output]
    without = [row.label for row in rows if row.cost and not row.cost["exchange"]]
    missing = [row.label for row in rows if not row.cost]
    notes = [f"{', '.join(without)}: computed before fedbench recorded what crosses, by kind"] if without else []
    return [*notes, *([f"{', '.join(missing)}: no costs"] if missing else [])]


ON, BEATEN = "on the front", "beaten"
RESOURCES = (*PAID, "memory")
COSTS = {**MEANING, "memory": "the largest memory of any client"}
TITLES = {
    "rounds": "round",
    "bytes": "bytes",
    "flops": "FLOPs",
    "seconds": "simulated",
    "joules": "energy",
    "memory": "memory",
}


def pareto(boards: Sequence[Leaderboard], what: str) -> pandas.DataFrame:
    """A row for each method of each leaderboard with what it cost and whether it is on the front, the cheapest first.

    `ahead` are those that cost no more and have a better mean, or as good a one for less; on the `front` is a method
    that none is ahead of. Of those, the significantly better ones are `beaten_by`. The verdict is ON for a method that
    is significantly better than all that cost no more, BEATEN where one has beaten it, else INCONCLUSIVE; what is never
    ranked has none and comes last. Second outputs and methods of unknown cost are left out.

    Args:
        boards: leaderboards; the rounds they show count.
        what: one of RESOURCES.

    Raises:
        UserError: where it is known of no result what it has spent.
    """
    results = [r for board in boards for part in board.cells.values() for r in part]
    check_known(results, what)
    rows, pages = [], []
    for board in boards:
        here = [row for row in board.rows if row.runs and not row.output]
        known = [_point(board, row, spent) for row in here if (spent := _spent(row, what)) is not None]
        rows += judged(known, board.pairs, higher_is_better(board.metric))
        without = [row.label for row in here if row.label not in {one["method"] for one in known}]
        one = page_of(board, f"{subtitle(board)} · by {COSTS[what]}")
        one["notes"] += [f"{', '.join(without)}: {unknown(results, what)}"] if without else []
        pages.append(one)
    over = "in the whole run, of all seeds" if what == "memory" else "until the round shown, mean over seeds"
    legend = [
        f"front: nobody costs no more ({COSTS[what]}, {over}) and has a better mean.",
        f"verdict: {ON}: significantly better than everybody who costs no more; {BEATEN}: somebody who costs no more "
        f"is significantly better (paired t-tests, {CONDITIONS}); {INCONCLUSIVE}: neither.",
        "ahead: who costs no more and has a better mean; beaten by: those of them that are significantly better.",
        *["Ceilings are on no front and beat nobody."] * any(not row["ranked"] for row in rows),
    ]
    return frame(
        rows,
        (*PLACE, "method", "role", "mean", "std", "n_seeds", "spent", "front", "verdict", "beaten_by", "ahead"),
        caption=f"Pareto fronts by {COSTS[what]}",
        pages=pages,
        formats={
            "spent": Format(TITLES[what], "bytes" if what == "memory" else what, "low"),
            "front": Format("front", "yes", left=True),
            "verdict": Format(left=True),
            "beaten_by": Format("beaten by", "names"),
            "ahead": Format("ahead", "names"),
            "role": Format(part=""),
        },
        legend=legend,
        resource=what,
        **about(boards),
    )


def _spent(row: Row, what: str) -> float | None:
    """The mean over seeds until the round shown; None where it is not known of all of them."""
    if what == "memory":
        return row.cost["memory_max"] if row.cost else None
    cells = row.finished
    spent = [spending.by(run.round) for run in row.runs if (spending := cells[run.seed].paid(what))]
    return sum(spent) / len(spent) if len(spent) == len(row.runs) else None


def _point(board: Leaderboard, row: Row, spent: float) -> dict[str, Any]:
    assert row.average is not None
    names = {"method": row.label, "role": row.role, "ranked": row.ranked, "n_seeds": len(row.runs)}
    scored = {"mean": row.average.mean, "std": row.average.std, "spent": spent}
    return {**board.place._asdict(), **names, **scored, "front": False, "verdict": "", "beaten_by": [], "ahead": []}


def judged(rows: Sequence[dict[str, Any]], pairs: Sequence[Pair], higher: bool) -> list[dict[str, Any]]:
    """The rows of one leaderboard in order, with front, verdict, beaten_by and ahead.

    Only pairs of ranked methods are tested, as of `compare pairs`; costs are compared as means over seeds.
    """
    better = {(pair.method, pair.other) for pair in (*pairs, *map(turned, pairs)) if pair.verdict == BETTER}

    def worth(row: dict[str, Any]) -> tuple[float, float]:
        """(mean, cost), the larger the better."""
        return (1 if higher else -1) * without_noise(row["mean"]), -without_noise(row["spent"])

    ranked = sorted((row for row in rows if row["ranked"]), key=lambda row: worth(row)[::-1], reverse=True)
    found = []
    for row in ranked:
        name = row["method"]
        rivals = [one for one in ranked if one is not row and worth(one)[1] >= worth(row)[1]]
        ahead = [one["method"] for one in rivals if worth(one) > worth(row)]
        beaten_by = [one for one in ahead if (one, name) in better]
        surely = all((name, one["method"]) in better for one in rivals)
        verdict = BEATEN if beaten_by else ON if surely else INCONCLUSIVE
        found.append({**row, "front": not ahead, "verdict": verdict, "beaten_by": beaten_by, "ahead": ahead})
    return found + [row for row in rows if not row["ranked"]]


NEEDED = ("rounds", "seconds", "bytes", "flops", "joules")  # what it takes to get there, in the order of the table


def time_to_target(boards: Sequence[Leaderboard], target: float | str) -> pandas.DataFrame:
    """A row for each method with the rounds, simulated seconds, bytes, FLOPs and joules it needed to reach a target.

    Args:
        boards: leaderboards.
        target: a score, as a fraction or as text such as `80%`.

    Raises:
        UserError: for a target that is none.
    """
    metric = boards[0].metric if boards else "accuracy"
    value = read_target(str(target), metric)
    more = "more" if higher_is_better(metric) else "less"
    shown = f"{100 * value:.4g} %" if is_fraction(metric) else f"{value:.4g}"
    goal = f"{metric} of {shown} or {more}"
    rows, pages = [], []
    for board in boards:
        rows += [_needed(board, row, value) for row in board.shown]
        finished = [r for part in board.cells.values() for r in part if r.status == "finished"]
        tested = {tuple(sorted(r.scores(board.metric))) for r in finished}
        uneven = ["not all were tested after the same rounds; what is tested more often can arrive earlier"]
        notes = [*board.notes, *(uneven if len(tested) > 1 else [])]
        pages.append(page(board.place, caption=f"what it took to reach {goal}", warning=board.warning, notes=notes))
    formats = {what: Format(TITLES[what], "rank" if what == "rounds" else what, "low") for what in NEEDED}
    formats |= {"rounds_std": Format(part=""), "n_reached": Format("reached", "int", "high")}
    formats |= {"n_seeds": Format("of seeds", "int"), "role": Format(part="")}
    return frame(
        rows,
        (*PLACE, "method", "role", "status", "n_reached", "n_seeds", "rounds", "rounds_std", *NEEDED[1:]),
        caption=f"What it took to reach {goal}",
        pages=pages,
        formats=formats,
        legend=[
            f"reached: in how many seeds there was an {goal} on test examples after any evaluated round.",
            "The other columns: what was needed by the first such round, the mean over these seeds alone; blank: none "
            "got there. Bytes, FLOPs and energy are of all clients; simulated: time as the server waits.",
            "Nothing is chosen by it, but a curve that wavers arrives at its first peak.",
        ],
        target=value,
        **about(boards),
    )


def read_target(text: str, metric: str) -> float:
    """`80%`, `80` and `0.8` of what is shown in percent; of a loss the number itself. Raises: UserError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?(%?)", text.strip(), re.ASCII)
    value = float(found[1]) if found else math.nan
    if not is_fraction(metric):
        wrong, right = not found or bool(found[2]), "a number such as 0.5"
    else:
        value = value / 100 if value > 1 or (found and found[2]) else value
        wrong, right = not 0 < value <= 1, "a score such as 80%"
    if wrong:
        raise UserError(f"reach {text}: not {right}, which is what {metric} can reach. Write reach SCORE PATH")
    return value


def _needed(board: Leaderboard, row: Row, target: float) -> dict[str, Any]:
    """Means over the seeds that reached the target, and of which it is known."""
    done = row.finished.values()
    reached = [needed for r in done if (needed := needs(r, row.metric, target))]
    found: dict[str, Any] = {**board.place._asdict(), "method": row.label, "role": row.role, "ranked": not row.output}
    found |= {"status": row.status, "n_reached": len(reached), "n_seeds": len(done)}
    for what in NEEDED:
        if values := [one[what] for one in reached if what in one]:
            found[what] = mean(values)
    rounds = [one["rounds"] for one in reached]
    return found | ({"rounds_std": spread(rounds, 1)} if len(rounds) > 1 else {})


def needs(result: Result, metric: str, target: float) -> dict[str, float]:
    """What a run had needed, by the names of NEEDED, when its average on test images first reached the target; empty
    where it never did."""
    averages = ((t, value) for t, (value, _) in curve(result.scores(metric)).items())
    first = next((t for t, value in averages if reaches(value, target, metric)), None)
    if first is None:
        return {}
    return {"rounds": float(first)} | {what: spent.by(first) for what in PAID if (spent := result.paid(what))}
