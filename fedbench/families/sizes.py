"""What methods offer clients that have devices: depths, ranks or widths, the smallest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedbench.models.backbone import Blocks
from fedbench.models.lowrank import rank_of
from fedbench.types import Size

SizesOf = Callable[[Blocks], Sequence[Size]]


def depths(depth_of: Callable[[int], int | None]) -> SizesOf:
    """Every number of layers that depth_of(L_n) gives some L_n, told as that number where a client that can hold so
    many is given it, else as the largest L_n that is."""

    def of(model: Blocks) -> list[Size]:
        given: dict[int, int] = {}  # depth -> L_n
        for L_n in range(1, model.num_layers + 1):
            depth = depth_of(L_n)
            if depth is not None and given.get(depth, 0) < depth:
                given[depth] = L_n
        return [Size(given[depth]) for depth in sorted(given)]

    return of


def capacities(model: Blocks) -> list[Size]:
    """Every number of layers, whatever becomes of it."""
    return [Size(L_n) for L_n in range(1, model.num_layers + 1)]


def ranks(model: Blocks) -> list[Size]:
    """All layers, with powers of two of the adapters' rank-one terms, and with all R of them."""
    R = rank_of(model)
    powers = [2**k for k in range(R.bit_length()) if 2**k < R]
    return [Size(model.num_layers, rank=r) for r in [*powers, R]]
