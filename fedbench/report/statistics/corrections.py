"""Many tests at once: how many of their discoveries may be false."""

from __future__ import annotations

from collections.abc import Sequence


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """The q of every p, in their order: rejecting all q <= alpha lets a share of alpha of the rejections be false.

    q_(i) = min over j >= i of p_(j) m / j for the i-th smallest of m (Benjamini and Hochberg 1995). Where nothing is
    different, every rejection is false, and so there is one in at most alpha of all families.
    """
    m = len(p)
    found = [1.0] * m
    least = 1.0
    for rank, i in zip(range(m, 0, -1), sorted(range(m), key=lambda i: p[i], reverse=True), strict=True):
        least = min(least, p[i] * m / rank)
        found[i] = least
    return found
