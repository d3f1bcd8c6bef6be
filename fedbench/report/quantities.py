"""Quantities: numbers with units as people write them, such as 80 %, 1.5 GB, 2 TFLOPs, 1h 30min or 2kWh."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from fedbench.errors import UserError

NUMBER = r"[+-]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
TIMES = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400}
KINDS = {"b": "bytes", "flops": "flops", "j": "joules", "wh": "joules"}
WATT_HOUR = 3600  # joules
EXAMPLES = {
    "%": "80 or 80%", "bytes": "100MB", "flops": "2TFLOPs", "joules": "2kWh", "seconds": "1h 30min", "": "80",
}  # fmt: skip


class Quantity(NamedTuple):
    """number: in percent, bytes, FLOPs, joules or seconds, as kind says; kind "" is a bare number."""

    number: float
    kind: str = ""


def quantity(text: str) -> Quantity | None:
    """Read a quantity; decimal units. None for what is no number."""
    text = text.strip()
    if found := re.fullmatch(rf"({NUMBER})\s*(%?)", text):
        return Quantity(_float(found[1]), found[2])
    if found := re.fullmatch(rf"({NUMBER})\s*([kMGTPE]?)(B|FLOPs|J|Wh)", text, re.IGNORECASE):
        kind, hours = KINDS[found[3].lower()], WATT_HOUR if found[3].lower() == "wh" else 1
        return Quantity(_float(found[1]) * PREFIXES[found[2].lower()] * hours, kind)
    if found := re.fullmatch(rf"({NUMBER})\s*([kMGTP])", text):
        return Quantity(_float(found[1]) * PREFIXES[found[2].lower()])
    if re.fullmatch(rf"(?:{NUMBER}\s*[a-z]+\s*)+", text):
        parts = re.findall(rf"({NUMBER})\s*([a-z]+)", text)
        if all(unit in TIMES for _, unit in parts):
            return Quantity(sum(_float(number) * TIMES[unit] for number, unit in parts), "seconds")
    return None


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def amount_of(text: str, kind: str, asked: str) -> float:
    """A positive amount of one kind, with or without its unit.

    Args:
        text: what was written.
        kind: "bytes", "flops", "seconds" or "joules".
        asked: the option it was written for, as the message shows it.

    Raises:
        UserError: for anything else.
    """
    found = quantity(text)
    if found is None or found.kind not in ("", kind) or not 0 < found.number < math.inf:
        raise UserError(f"{asked}: {text.strip()!r} is no amount of {kind}. Write {EXAMPLES[kind]}, for example.")
    return found.number
