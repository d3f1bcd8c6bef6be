"""How methods look wherever they are drawn: a colour, a line and a marker each, the same in every picture."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

# Colours and markers by role, for methods in the order of their names. Okabe and Ito's, which the colour-blind can tell
# apart, and six of Paul Tol's muted ones.
LOOKS = {
    "method": (
        ("#009E73", "^"), ("#332288", "p"), ("#882255", "*"), ("#D55E00", "o"), ("#999933", "<"),
        ("#661100", "h"), ("#777777", "d"), ("#44AA99", ">"), ("#0072B2", "s"),
    ),
    "ceiling": (("#000000", "D"),),
    "floor": (("#E69F00", "v"),),
    "control": (("#56B4E9", "X"), ("#CC79A7", "P")),
}  # fmt: skip
LINES = {"method": "-", "ceiling": "--", "floor": "-", "control": ":"}
VARIANT = "-."  # of what extends a method, or comes in a file


def styles(methods: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Line options by label of a method: registered ones look the same in every figure; others take what is left in the
    order of their names, and look the same wherever the same methods are drawn. methods: by label, the name it is
    registered under; roles: of what is registered, by name."""
    own: dict[str, tuple[str, str]] = {}
    for role, looks in LOOKS.items():
        own.update(zip((name for name, played in roles.items() if played == role), looks, strict=False))
    taken = {own[label] for label in methods if label in own}
    free = cycle([look for looks in LOOKS.values() for look in looks if look not in taken] or LOOKS["method"])
    own.update(zip(sorted(methods.keys() - own.keys()), free, strict=False))
    found = {}
    for label, name in methods.items():
        line = LINES[roles.get(name, "method")]
        if label not in roles and line == LINES["method"]:
            line = VARIANT
        color, marker = own[label]
        found[label] = {"color": color, "linestyle": line, "marker": marker}
    return found
