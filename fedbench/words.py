"""Numbers with units, as people read them; units are decimal."""

from __future__ import annotations

import math

NAMES = {"bytes": "B", "flops": "FLOPs"}


def three_digits(value: float) -> str:
    """At least three significant digits, without an exponent: 0.0123, 4.56, 789, 12,345."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def human_bytes(count: float) -> str:
    """999 B, 8.31 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{three_digits(count)} {unit}"
        count /= 1000
    return f"{three_digits(count)} TB"


def human_flops(count: float) -> str:
    """8.31 TFLOPs."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if count < 999.5:
            return f"{three_digits(count)} {unit}FLOPs"
        count /= 1000
    return f"{three_digits(count)} EFLOPs"


def scale(largest: float, what: str) -> tuple[float, str]:
    """(what to divide by, unit) of an axis of "bytes" or "flops" that ends at `largest`."""
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if largest >= 10**power:
            return 10.0**power, prefix + NAMES[what]
    return 1.0, NAMES[what]


def amount(count: float, what: str) -> str:
    """Of "bytes" or "flops"."""
    return human_bytes(count) if what == "bytes" else human_flops(count)
