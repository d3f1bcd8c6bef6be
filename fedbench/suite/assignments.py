"""Assignments: which client or domain has which size or device under a seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedbench.seeding import permuted
from fedbench.suite.keys import CANDIDATES_SEED
from fedbench.types import assignment

KEYS = {"rotate": "rotate_capacities", "shuffle": "shuffle_capacities"}

Lists = dict[tuple[str, str], list[Any]]  # of `fedbench.types.assignment`


def assigned(settings: Mapping[str, Any], how: str, seed: int) -> dict[str, Any]:
    """The settings in which every list of sizes or devices is in the order of a seed.

    Args:
        settings: of a cell.
        how: "rotate", "shuffle", or "" for as it stands.
        seed: of the cell.
    """
    if not how:
        return dict(settings)
    found = {"rotate": _rotated, "shuffle": _shuffled}[how](assignment(settings), seed)
    return {**settings, **{key: {**settings[key], way: values} for (key, way), values in found.items()}}


def _rotated(given: Lists, seed: int) -> Lists:
    """Everyone has the value of the one `seed` places on, cyclically."""
    return {name: values[seed % len(values) :] + values[: seed % len(values)] for name, values in given.items()}


def _shuffled(given: Lists, seed: int) -> Lists:
    """Lists of one way and length are permuted together, so that whoever has a deep model keeps its rank."""
    done: Lists = {}
    for way, length in dict.fromkeys((way, len(values)) for (_, way), values in given.items()):
        names = [name for name, values in given.items() if name[1] == way and len(values) == length]
        order = arrangement(list(zip(*(given[name] for name in names), strict=True)), seed)
        done |= {name: list(values) for name, values in zip(names, zip(*order, strict=True), strict=True)}
    return done


def arrangement(values: Sequence[Any], seed: int) -> list[Any]:
    """The values in an order of a seed. Two seeds have the same order only if there are fewer orders than that.

    All n different orders of the values are numbered, and `permuted` puts them into one fixed random sequence; seed s
    has the s-th of it, modulo n. The seeds of a tuning are counted from its end, so that they meet those of a report
    as late as they can. The order in which values are written down does not matter.
    """
    counts = Counter(values)
    number = math.factorial(len(values)) // math.prod(map(math.factorial, counts.values()))
    place = seed if seed < CANDIDATES_SEED else CANDIDATES_SEED - 1 - seed
    return _unranked(counts, number, permuted(place % number, number))


def _unranked(counts: Counter[Any], number: int, index: int) -> list[Any]:
    """Of the `number` orders of a multiset, by value, the one of that index."""
    order = []
    for left in range(counts.total(), 0, -1):
        for value in sorted(+counts):
            if index < (beginning_so := number * counts[value] // left):
                order.append(value)
                counts[value] -= 1
                number = beginning_so
                break
            index -= beginning_so
    return order
