"""How many clients trained each layer in each round, in two numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

WIDE = 2**16  # numbers that a layer can have


def layer_coverage(
    rounds: Sequence[int], layers: Sequence[Sequence[int]], arrived: Sequence[bool], T: int
) -> tuple[int | None, float | None]:
    """(Gamma*, mean coverage) as `fedbench.report.cost.Cost` defines them; position i is one client in one of T rounds.
    None for both where no layer came back."""
    returned = [t * WIDE + j for t, held, came in zip(rounds, layers, arrived, strict=True) if came for j in held]
    if not returned:
        return None, None
    holders = Counter(returned)  # of each layer that came back in a round
    trained = {place % WIDE for place in holders}
    return min(holders.values()), len(returned) / (T * len(trained))
