"""Budgets: methods at equal expense of bytes, FLOPs, joules or simulated seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.report.quantities import amount_of
from fedbench.results.cumulative_cost import PAID, Spending

if TYPE_CHECKING:
    from fedbench.results import Result

MEANING = {
    "bytes": "bytes down + up of all clients together",
    "flops": "FLOPs of all clients together",
    "seconds": "simulated time, as the server waits",
    "joules": "energy of all clients together",
}
UNKNOWN = {
    "seconds": "no simulated seconds, because the scenario gives its clients no devices",
    "joules": "no joules, because the scenario gives its clients no devices",
}


@dataclass(frozen=True)
class Budget:
    """What all clients together may spend, or how many simulated seconds the server may have waited.

    what: "bytes" (down and up), "flops", "joules" or "seconds". amount: None for what the cheapest method of a
    leaderboard spends in all its rounds.
    """

    what: str
    amount: float | None = None


def read_budget(text: str) -> Budget | None:
    """`bytes`, `bytes=1.5GB`, `flops=2PFLOPs`, `seconds=1h 30min`, `joules=2kWh`; None for any other word.

    Raises:
        UserError: for an amount that is none.
    """
    what, sign, amount = text.partition("=")
    if what not in PAID:
        return None
    return Budget(what, amount_of(amount, what, f"--at {text}") if sign else None)


def paid(result: Result, what: str) -> Spending | None:
    """What a finished run has paid; None where that is not known, for want of devices or of their watts."""
    return result.digest.paid(what)


def unknown(results: Iterable[Result], what: str) -> str:
    """Why nobody knows what these have spent."""
    given = [devices for r in results if (devices := r.manifest["config"].get("devices"))]
    known = [(name, numbers) for one in given for name, numbers in one["known"].items() if name != one.get("server")]
    lacking = {name for name, numbers in known if numbers.get("watts") is None}
    if what == "joules" and lacking:
        names = ", ".join(sorted(lacking))
        return f"no joules, because nothing is known of the watts of {names}"
    return UNKNOWN.get(what, "no costs")


def check_known(results: Iterable[Result], what: str) -> None:
    """Raises: UserError where results are finished and of none is known what it has paid."""
    finished = [r for r in results if r.status == "finished"]
    if what in UNKNOWN and finished and not any(paid(r, what) for r in finished):
        raise UserError(
            f"these results have {unknown(finished, what)}.\n`devices:` in a suite's scenario gives them some."
        )


def cheapest(
    cells: Mapping[str, Iterable[Result]], what: str, methods: Collection[str] = ()
) -> tuple[str, float] | None:
    """The method that spends least in all its rounds, and how much; None where nothing has been spent.

    Args:
        cells: by method, its results. The dearest finished seed counts, so that all seeds stand at their last round.
        what: what is spent.
        methods: those that may set the budget; a control or a floor may not, or the others would have had no round.
            Where none of them has spent anything, all may whose clients compute.
    """
    totals = {
        label: max(spent)
        for label, results in cells.items()
        if (spent := [s.total for r in results if _computes(r) and (s := paid(r, what))]) and max(spent) > 0
    }
    own = {label: total for label, total in totals.items() if label in methods} or totals
    return min(own.items(), key=lambda item: item[1], default=None)


def _computes(result: Result) -> bool:
    """Whether it is finished, and its clients have computed."""
    return result.status == "finished" and (flops := paid(result, "flops")) is not None and flops.total > 0
