"""What a cell scored and cost, as numbers that can be set beside those of another."""

from __future__ import annotations

import math

from fedbench.report.measures import run
from fedbench.results import Result

TRAINING_LOSS, BYTES, FLOPS, SECONDS = "training loss", "bytes", "flops", "seconds"
COSTS = (BYTES, FLOPS, SECONDS)  # of which it is told how many times as much they are


def measures(result: Result, at: str = "final") -> dict[str, float]:
    """Of a finished cell: every metric on test images, averaged as in a leaderboard; the mean training loss of the last
    round's clients; what all clients together sent, got and computed in all rounds; wall time, where it was computed.

    at: which round counts for metrics, one of `fedbench.report.measures.AT`. Raises UserError as `measures.run`.
    """
    scores = result.digest.scores
    runs = {name: run(scores, result.entry.seed, name, "test", at) for name in scores.of_split("test")}
    found = {name: one.average for name, one in runs.items() if one}
    rounds = {name: result.rounds[name].to_pylist() for name in ("round", "loss", "bytes_down", "bytes_up", "flops")}
    last = max(rounds["round"], default=0)
    losses = [x for t, x in zip(rounds["round"], rounds["loss"], strict=True) if t == last and math.isfinite(x)]
    if losses:
        found[TRAINING_LOSS] = math.fsum(losses) / len(losses)
    found[BYTES] = float(sum(rounds["bytes_down"]) + sum(rounds["bytes_up"]))
    found[FLOPS] = float(sum(rounds["flops"]))
    return found if is_copy(result) else found | {SECONDS: seconds(result)}


def seconds(result: Result) -> float:
    """Wall time of the cell."""
    return float(result.manifest.get("seconds", 0.0))


def is_copy(result: Result) -> bool:
    """Whether the cell was not computed but taken from an equal one, whose time it tells."""
    return "computed_as" in result.manifest
