"""Contenders timed in turn, so that what disturbs one disturbs all; and the time that others took meanwhile."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

QUIET = 0.05  # of the machine's time may others have in a round that counts


@dataclass
class Times:
    """The rounds of one contender: seconds, and the share of the machine that other programs had in each."""

    seconds: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def quiet(self) -> list[float]:
        """The rounds that were not disturbed; all of them where every one was."""
        kept = [s for s, others in zip(self.seconds, self.others, strict=True) if others <= QUIET]
        return kept or self.seconds

    def facts(self) -> dict[str, Any]:
        quiet = self.quiet
        return {
            "median": statistics.median(quiet),
            "min": min(quiet),
            "max": max(quiet),
            "counted": len(quiet),
            "seconds": self.seconds,
            "others": self.others,
        }


def timed(run: Callable[[], Any], times: Times) -> Any:
    """run(), with a line added to its times."""
    began, mine, all_of_it = time.perf_counter(), _own(), busy()
    result = run()
    seconds = time.perf_counter() - began
    others = (busy() - all_of_it) - (_own() - mine)
    times.seconds.append(seconds)
    times.others.append(max(0.0, others / (seconds * (os.cpu_count() or 1))))
    return result


def busy() -> float:
    """CPU seconds that this machine has spent on anything."""
    spent = psutil.cpu_times()
    return spent.user + spent.nice + spent.system


def _own() -> float:
    """CPU seconds of this process and of all it has started, ended ones included."""
    spent = os.times()
    total = spent.user + spent.system + spent.children_user + spent.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            theirs = child.cpu_times()
        except psutil.Error:
            continue
        total += theirs.user + theirs.system + theirs.children_user + theirs.children_system
    return total


def table(
    title: str, facts: dict[str, dict[str, Any]], floor: float | None = None, base: str = "cohort"
) -> Sequence[str]:
    """Lines of at most 80 columns: seconds of a round, and how many times the base's."""
    lines = [title, f"{'':<34}{'median':>8}{'min':>8}{'max':>8}{'rounds':>8}{'ratio':>8}", "-" * 74]
    own = facts[base]["median"]
    for name, fact in sorted(facts.items(), key=lambda item: -item[1]["median"]):
        numbers = f"{fact['median']:>8.3g}{fact['min']:>8.3g}{fact['max']:>8.3g}{fact['counted']:>8}"
        lines.append(f"{name:<34}{numbers}{fact['median'] / own:>7.2f}x")
    if floor is not None:
        lines.append(f"{'floor: necessary products at peak':<34}{floor:>8.3g}{'':>24}{floor / own:>7.2f}x")
    return lines
