"""Methods at equal expense: a budget of bytes, FLOPs, joules or simulated seconds, and how far a run comes with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.errors import UserError
from fedbench.results.spending import PAID, Spending
from fedbench.words import NAMES

if TYPE_CHECKING:
    from fedbench.results import Result

TOLD = {
    "bytes": "bytes down + up of all clients together",
    "flops": "FLOPs of all clients together",
    "seconds": "simulated time, as the server waits",
    "joules": "energy of all clients together",
}
UNKNOWN = {
    "seconds": "no simulated seconds, because the scenario gives its clients no devices",
    "joules": "no joules, because the scenario gives its clients no devices",
}
EXAMPLES = {
    "bytes": "bytes=2GB or bytes=2e9",
    "flops": "flops=2GFLOPs or flops=2e9",
    "seconds": "seconds=2h or seconds=7200",
    "joules": "joules=2kWh or joules=7.2e6",
}
NUMBER = r"[0-9.]+(?:e\+?[0-9]+)?"
PREFIXES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
TIMES = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400}
WATT_HOUR = 3600  # joules


@dataclass(frozen=True)
class Budget:
    """What all clients together may spend, in bytes (down and up), FLOPs or joules, or how many simulated seconds the
    server may have waited.

    amount: None for what the cheapest method of a leaderboard spends in all its rounds.
    """

    what: str
    amount: float | None = None


def read_budget(text: str) -> Budget | None:
    """`bytes`, `bytes=1.5GB`, `flops=2PFLOPs`, `seconds=1h 30min`, `joules=2kWh`; None where it begins with none of
    these words.

    Units are decimal. Raises: UserError for an amount that is none.
    """
    what, sign, amount = text.partition("=")
    if what not in PAID:
        return None
    if not sign:
        return Budget(what)
    try:
        value = (_seconds if what == "seconds" else _with_prefix)(amount.strip().lower(), what)
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < math.inf:
        raise UserError(f"--at {text}: '{amount}' is no amount of {what}. Write {EXAMPLES[what]}.")
    return Budget(what, value)


def _with_prefix(text: str, what: str) -> float:
    """Raises: ValueError."""
    hours = "|wh" if what == "joules" else ""
    found = re.fullmatch(rf"({NUMBER}) ?([kmgtpe]?)({NAMES[what].lower()}{hours})?", text)
    if not found:
        raise ValueError(text)
    return float(found[1]) * PREFIXES[found[2]] * (WATT_HOUR if found[3] == "wh" else 1)


def _seconds(text: str, _: str) -> float:
    """`3600`, `90 min`, `1h 30min`. Raises: ValueError, KeyError."""
    if not re.fullmatch(rf"(?:{NUMBER} ?[a-z]* ?)+", text):
        raise ValueError(text)
    parts = re.findall(rf"({NUMBER}) ?([a-z]*)", text)
    if len(parts) > 1 and not all(unit for _, unit in parts):
        raise ValueError(text)
    return sum(float(number) * TIMES[unit] for number, unit in parts)


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


def cheapest(cells: Mapping[str, Iterable[Result]], what: str) -> tuple[str, float] | None:
    """(label, total) of the method whose dearest finished seed spends least; None where nothing has been spent.

    The dearest seed, so that all seeds of that method stand at their last round. Who computes nothing on the clients,
    as the commonest class of each does, has no say: within its few bytes nobody else has had a round.
    """
    totals = {
        label: max(spent)
        for label, results in cells.items()
        if (spent := [s.total for r in results if _computes(r) and (s := paid(r, what))]) and max(spent) > 0
    }
    return min(totals.items(), key=lambda item: item[1], default=None)


def _computes(result: Result) -> bool:
    """Whether it is finished, and its clients have computed."""
    return result.status == "finished" and (flops := paid(result, "flops")) is not None and flops.total > 0
