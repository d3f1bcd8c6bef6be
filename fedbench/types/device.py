"""Devices, and the sizes in which they can hold a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """The figures of one device on which a round of training depends.

    Attributes:
        name: How suites and tables call it.
        memory: Bytes that training may take.
        flops: FLOP/s that training sustains in fp32; a multiply-add counts as 2.
        flops_bf16: The same in bf16.
        down: Bytes/s from the server.
        up: Bytes/s to the server.
        watts: Power drawn while it trains; None where no source gives it.
        source: Where the figures are from. It is not part of a cell's identity.
        message: Seconds that each message takes in addition to its bytes.
    """

    name: str
    memory: int
    flops: float
    flops_bf16: float
    down: float
    up: float
    watts: float | None = None
    source: str = ""
    message: float = 0.0

    def flops_at(self, precision: str) -> float:
        """Return the FLOP/s in `fp32` or `bf16`."""
        return self.flops_bf16 if precision == "bf16" else self.flops


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
