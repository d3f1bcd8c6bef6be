"""Looks of methods: a colour, a marker and a line each, by name, the same in every picture and on the page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import product
from typing import Any

ROLES = ("method", "ceiling", "floor", "control")
MOST = 8  # methods of a panel in colour; of more, the others are grey and the points have names
FAINT = "#A9A9A9"  # of methods in grey

# Okabe and Ito's colours without yellow, and two of Paul Tol's: a reader with any kind of colour blindness sees nine.
COLORS = {
    "vermilion": "#D55E00",
    "blue": "#0072B2",
    "green": "#009E73",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "pink": "#CC79A7",
    "indigo": "#332288",
    "wine": "#882255",
    "black": "#000000",  # of the ceiling
}
MARKERS = "os^vDp*h<>dXP"
# Ways to draw a line, as matplotlib has them: a name, or (offset, lengths of strokes and gaps in widths of the line).
LINES: dict[str, Any] = {
    "solid": "-",
    "dash-dot": "-.",
    "long": (0, (8, 2)),
    "dash-dot-dot": (0, (6, 1.5, 1, 1.5, 1, 1.5)),
    "ceiling": "--",
    "control": ":",
}
OF_METHODS = ("solid", "dash-dot", "long", "dash-dot-dot")

# Any two methods differ in every two of the three parts: points read without lines, and both without colour.
# They are data, so that the code knows no method by name.
_LOOKS = json.loads(files("fedbench.report").joinpath("looks.json").read_text(encoding="utf-8"))
BUILT_IN: Mapping[str, tuple[str, str, str]] = {name: tuple(look) for name, look in _LOOKS.items()}
_USED = {(color, marker) for color, marker, _ in BUILT_IN.values()}
FREE = [pair for pair in product([name for name in COLORS if name != "black"], MARKERS) if pair not in _USED]


def styles(methods: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Matplotlib's line options by label of a method.

    A built-in method has the look of its name. Any other label has one that follows from its letters alone, the same in
    every picture; where two of one picture get the same, the second in order of names takes the next.

    Args:
        methods: By label, the name that its method is registered under.
        roles: Of registered methods, by name: what each is there for, one of ROLES.
    """
    found: dict[str, tuple[str, str, str]] = {}
    taken: set[tuple[str, str]] = set()
    for label in sorted(methods):
        if label in BUILT_IN:
            found[label] = BUILT_IN[label]
            continue
        number = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])
        turned = FREE[number % len(FREE) :] + FREE[: number % len(FREE)]
        pair = next((pair for pair in turned if pair not in taken), turned[0])
        taken.add(pair)
        role = roles.get(methods[label], "method")
        found[label] = (*pair, role if role in LINES else OF_METHODS[number // len(FREE) % len(OF_METHODS)])
    return {label: _options(*found[label]) for label in methods}


def _options(color: str, marker: str, line: str) -> dict[str, Any]:
    return {"color": COLORS[color], "linestyle": LINES[line], "marker": marker}


def greyed(looks: Mapping[str, dict[str, Any]], ordered: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The looks of one picture: all but the first MOST labels in grey. ordered: the labels, what matters most first."""
    first = list(dict.fromkeys(ordered))[:MOST]
    return {label: look if label in first else {**look, "color": FAINT} for label, look in looks.items()}
