"""One of the sizes that a method offers its clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a model one client holds, in the terms of a method.

    Attributes:
        capacity: L_n, how many layers the client can hold.
        rank: r_n, for a method whose clients differ in rank.
        width: The share of the hidden units of every layer, for a method whose clients differ in width.
    """

    capacity: int
    rank: int | None = None
    width: float | None = None

    @property
    def order(self) -> tuple[int, int, float]:
        """The key that sorts sizes from the smallest to the largest."""
        return self.capacity, self.rank or 0, self.width or 0.0

    def __str__(self) -> str:
        """`rank 4`, `width 0.5` or `12 layers`: the number in which the sizes of its method differ."""
        if self.width is not None:
            return f"width {self.width:g}"
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"{self.capacity} layer{'s' if self.capacity != 1 else ''}"
