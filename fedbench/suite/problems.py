"""Everything that is wrong with a suite, collected and told at once."""

from __future__ import annotations

from fedbench.errors import UserError
from fedbench.suite.node import Mark

ON_A_SCREEN = 20


class Problems:
    """A list of (place, message) that ends in one UserError; the same problem met twice is told once."""

    def __init__(self) -> None:
        self._found: dict[tuple[Mark, str], None] = {}

    def add(self, mark: Mark, message: str) -> None:
        """Note what is wrong, and go on."""
        self._found[mark, message] = None

    def __len__(self) -> int:
        return len(self._found)

    def raise_any(self) -> None:
        """Raises UserError with the problems in the order of each file, at most one screen of them."""
        if not self._found:
            return
        order = sorted(self._found, key=_place)
        lines = [f"{mark}: {message}" for mark, message in order[:ON_A_SCREEN]]
        if left := len(order) - len(lines):
            lines.append(f"... and {left} more problem{'s' if left > 1 else ''}")
        raise UserError("\n".join(lines))


def _place(found: tuple[Mark, str]) -> tuple:
    """Files first, then what has no line, in the order in which it was found."""
    mark = found[0]
    return (0, mark.source, mark.line, mark.column) if mark.line is not None else (1,)
