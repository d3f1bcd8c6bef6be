"""A device: what a client, or the server, computes and communicates with."""

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
    """

    name: str
    memory: int
    flops: float
    flops_bf16: float
    down: float
    up: float
    watts: float | None = None
    source: str = ""

    def flops_at(self, precision: str) -> float:
        """Return the FLOP/s in `fp32` or `bf16`."""
        return self.flops_bf16 if precision == "bf16" else self.flops
