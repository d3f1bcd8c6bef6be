"""A device: what a client, or the server, computes and communicates with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """Numbers of one device, as far as a round of training depends on them.

    memory: bytes that training may take · flops, flops_bf16: FLOP/s that training sustains, 2 to a multiply-add, in
    fp32 and in bf16 · down, up: bytes/s from and to the server · watts: drawn while it trains, None where no source
    says · source: where the numbers are from; no part of what a cell is.
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
        """FLOP/s in `fp32` or `bf16`."""
        return self.flops_bf16 if precision == "bf16" else self.flops
