"""What the columns of a leaderboard mean, and from when on nothing is concluded from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedbench.report.board import Leaderboard
from fedbench.report.evidence import contenders
from fedbench.report.measures import is_fraction
from fedbench.report.statistics.intervals import BCA_FROM, FEWEST
from fedbench.words import counted

CONDITIONS = "Benjamini-Hochberg over all pairs of ranked methods shown"

PLAIN = {
    "worst": "average, worst: over the domains of each seed.",
    "client sd": "average: plain mean over clients, each tested on images of its own, whatever their domain. "
    "client sd, worst 10 %: standard deviation over clients, and mean of the worst tenth of them (one at least), of "
    "each seed; then means over seeds.",
    "down + up": "down + up (traffic), GFLOPs: mean of one client in one round.",
    "memory": "memory: the largest estimate of any client.",
    "srv GFLOPs": "srv: what the server computes for one client in one round, and its memory for one at a time.",
    "spent": "round, spent: the last evaluated round within the budget, and what had been spent by then; the "
    "other costs are of the whole run.",
    "Γ*": "Γ*, cover: smallest and mean number of clients that train a layer in a round.",
    "simulated": "simulated: what all rounds would take on the clients' devices, as the server waits.",
    "energy": "energy: of all clients in all rounds, while they compute.",
    "seconds": "seconds: wall time of a cell; of one that was taken from an equal cell, that of the other.",
}


def sentences(titles: Collection[str], boards: Sequence[Leaderboard]) -> list[str]:
    """One for each column that is there."""
    found = []
    if "95 % interval" in titles:
        found.append(f"95 % interval: of the mean over seeds, {_kinds(boards)}.")
    if "group" in titles:
        told = f"group: methods that share a letter are not told apart (paired t-tests, {CONDITIONS})."
        found.append(told + left_out(boards))
    found += [PLAIN[title] for title in ("worst", "client sd") if title in titles]
    if "gap" in titles:
        baselines = sorted({board.baseline for board in boards if board.baseline})
        found.append(f"gap: average minus that of {' or '.join(baselines)}, paired by seed.")
    if "verdict" in titles:
        found.append(f"gap's interval: Student's t. {verdicts(boards)}")
    return found + [text for title, text in PLAIN.items() if title in titles and title not in ("worst", "client sd")]


def verdicts(boards: Sequence[Leaderboard]) -> str:
    """What is called better, worse, equal and not told."""
    margins = [margin(board) for board in boards if board.margin]
    text = "verdict: better or worse where q <= 0.05 (q: p after Benjamini-Hochberg)"
    if margins:
        text += f", else equal where the interval lies within {margins[0]} of zero; (<{margins[0]}): both"
    return f"{text}; not told: none of these."


def margin(board: Leaderboard) -> str:
    """What may be called equal, as a number in the metric's unit."""
    return f"{(100 if is_fraction(board.metric) else 1) * (board.margin or 0.0):.4g}"


def _kinds(boards: Sequence[Leaderboard]) -> str:
    kinds = {row.average.interval for board in boards for row in board.rows if row.average}
    if "bca" not in kinds:
        return "Student's t"
    return f"BCa bootstrap from {BCA_FROM} seeds on" + (", Student's t below" if "t" in kinds else "")


def left_out(boards: Sequence[Leaderboard]) -> str:
    names = dict.fromkeys(r.label for b in boards for r in b.rows if not r.ranked and not r.output and r.runs)
    return f" Not ranked: {', '.join(names)}, as a ceiling." if names else ""


def too_few(board: Leaderboard) -> list[str]:
    """A sentence where seeds are too few to conclude anything, of all methods or of some."""
    rows = contenders(board)
    few = [row.label for row in rows if len(row.by_seed) < FEWEST]
    if not few or len(rows) < 2:
        return []
    if len(few) == len(rows):
        most = counted(max(len(row.by_seed) for row in rows), "seed")
        return [f"{most}: nothing is concluded about which method is better, which takes three at least"]
    return [f"{', '.join(few)}: fewer than three seeds, nothing is concluded about them"]
