"""What one client holds and trains, as far as its price depends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from fedbench.types import Exit, Plan


@dataclass(frozen=True)
class Holding:
    """One client's part of a plan: of the layers it holds, in order, whether it trains them, how many rank-one terms of
    their adapters it has, and how many of these it trains; None where terms are not told apart.

    Terms that it holds and does not train are part of its frozen weights, W + sum b a^T, as in Fed-PLoRA: they are
    sent, and cost nothing to compute. frozen: patterns of tensors that nobody trains.
    """

    trained: tuple[bool, ...]
    exits: tuple[Exit, ...]
    ranks: tuple[int, ...] | None = None
    trained_ranks: tuple[int, ...] | None = None
    frozen: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.trained)

    @property
    def computed(self) -> tuple[int | None, ...]:
        """The rank with which each layer's adapters are computed."""
        return self.trained_ranks or self.ranks or (None,) * self.depth

    @property
    def even(self) -> bool:
        """Whether all its layers are alike."""
        return len(set(zip(self.trained, self.computed, strict=True))) < 2

    def of(self, layers: list[int], exits: tuple[Exit, ...]) -> Holding:
        """The same of these of its layers, in this order."""

        def some(values: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if values is None else tuple(values[i] for i in layers)

        return replace(
            self,
            trained=tuple(self.trained[i] for i in layers),
            exits=exits,
            ranks=some(self.ranks),
            trained_ranks=some(self.trained_ranks),
        )

    def freezes(self, name: str) -> bool:
        """Whether nobody trains the tensor of that name."""
        return any(fnmatchcase(name, pattern) for pattern in self.frozen)


def whole(depth: int, exits: list[Exit]) -> Holding:
    """So many layers, all of them trained in full."""
    return Holding((True,) * depth, tuple(exits))


def holding_of(plan: Plan, n: int) -> Holding:
    """What the client at position n holds."""
    S_n = plan.M[n].nonzero().flatten()
    ranks, tuned = (
        None if terms is None else tuple(terms[n, S_n].sum(-1).tolist()) for terms in (plan.terms, plan.trained_terms)
    )
    if ranks is None and plan.trained_terms is not None:
        ranks = (plan.trained_terms.shape[-1],) * len(S_n)
    return Holding(tuple(plan.trains[n, S_n].tolist()), tuple(plan.exits[n]), ranks, tuned, tuple(plan.frozen))
