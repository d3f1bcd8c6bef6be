"""Tie groups: letters for methods, shared by those that are not told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations
from string import ascii_letters


def letters(methods: Sequence[str], apart: Collection[frozenset[str]]) -> dict[str, str]:
    """By method, its letters: two methods share one if and only if they are not told apart.

    A compact letter display (Piepho, An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons, 2004):
    insert and absorb, then letters that say nothing new are left out. methods: the best first, which has the letter a.
    apart: the pairs that are told apart.
    """
    place = {name: i for i, name in enumerate(methods)}
    groups = {frozenset(methods)}
    for pair in (found for two in combinations(methods, 2) if (found := frozenset(two)) in apart):
        split = {group - {name} for group in groups if pair <= group for name in pair}
        kept = {group for group in groups if not pair <= group}
        groups = kept | {group for group in split if not any(group <= other for other in kept)}
    columns = _needed(sorted(groups, key=lambda group: sorted(place[name] for name in group)))
    return {name: "".join(_letter(i) for i, group in enumerate(columns) if name in group) for name in methods}


def _needed(groups: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Without the groups whose every pair stands in another one that stays; the last are tried first."""
    pairs = {group: [frozenset(pair) for pair in combinations(group, 2)] or [group] for group in groups}
    stand = Counter(pair for group in groups for pair in pairs[group])
    kept = list(groups)
    for group in reversed(groups):
        if all(stand[pair] > 1 for pair in pairs[group]):
            stand.subtract(pairs[group])
            kept.remove(group)
    return kept


def _letter(i: int) -> str:
    return ascii_letters[i] if i < len(ascii_letters) else f"({i + 1})"
