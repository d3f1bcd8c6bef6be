"""Time to target: what each method needed until its test score first reached a target."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.budget import PAID
from fedbench.report.frames import PLACE, Format, frame, page
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.run_scores import curve
from fedbench.report.views.leaderboard import about
from fedbench.results import Result
from fedbench.results.metric_direction import higher_is_better, is_fraction, reaches
from fedbench.results.scores import mean, spread

# What is needed until then, in the order of the table, and the titles.
TITLES = {"rounds": "round", "seconds": "simulated", "bytes": "bytes", "flops": "FLOPs", "joules": "energy"}


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
        rows += [_columns(board, row, value) for row in board.shown]
        finished = [r for part in board.cells.values() for r in part if r.status == "finished"]
        tested = {tuple(sorted(r.scores(board.metric))) for r in finished}
        uneven = ["not all were tested after the same rounds; what is tested more often can arrive earlier"]
        notes = [*board.notes, *(uneven if len(tested) > 1 else [])]
        pages.append(page(board.place, caption=f"what it took to reach {goal}", warning=board.warning, notes=notes))
    formats = {what: Format(title, "rank" if what == "rounds" else what, "low") for what, title in TITLES.items()}
    formats |= {"rounds_std": Format(part=""), "n_reached": Format("reached", "int", "high")}
    formats |= {"n_seeds": Format("of seeds", "int"), "role": Format(part="")}
    return frame(
        rows,
        (*PLACE, "method", "role", "status", "n_reached", "n_seeds", "rounds", "rounds_std", *list(TITLES)[1:]),
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
        raise UserError(f"reach {text}: not {right}, which is what {metric} can reach")
    return value


def _columns(board: Leaderboard, row: Row, target: float) -> dict[str, Any]:
    """Means over the seeds that reached the target, and of which it is known."""
    done = row.finished.values()
    reached = [needed for r in done if (needed := needs(r, row.metric, target))]
    found: dict[str, Any] = {**board.place._asdict(), "method": row.label, "role": row.role, "ranked": not row.output}
    found |= {"status": row.status, "n_reached": len(reached), "n_seeds": len(done)}
    for what in TITLES:
        if values := [one[what] for one in reached if what in one]:
            found[what] = mean(values)
    rounds = [one["rounds"] for one in reached]
    return found | ({"rounds_std": spread(rounds, 1)} if len(rounds) > 1 else {})


def needs(result: Result, metric: str, target: float) -> dict[str, float]:
    """What a run had needed, by the names of TITLES, when its average on test images first reached the target; empty
    where it never did."""
    averages = ((t, value) for t, (value, _) in curve(result.scores(metric)).items())
    first = next((t for t, value in averages if reaches(value, target, metric)), None)
    if first is None:
        return {}
    return {"rounds": float(first)} | {what: spent.by(first) for what in PAID if (spent := result.paid(what))}
