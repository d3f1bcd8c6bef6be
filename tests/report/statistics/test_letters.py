"""fedbench/report/statistics/pairs.py: letters say what pairs say, and no more of them than needed."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.pairs import letters


@st.composite
def relations(draw):
    names = [f"m{i}" for i in range(draw(st.integers(1, 9)))]
    pairs = [frozenset(p) for p in combinations(names, 2)]
    return names, {pair for pair in pairs if draw(st.booleans())}


@given(relations())
def test_two_share_a_letter_if_and_only_if_they_are_not_told_apart(relation):
    names, apart = relation
    found = letters(names, apart)
    assert all(found.values())
    for one, two in combinations(names, 2):
        assert bool(set(found[one]) & set(found[two])) == (frozenset((one, two)) not in apart)


@given(relations(), st.randoms())
def test_the_best_has_a_and_the_order_of_pairs_does_not_matter(relation, random):
    names, apart = relation
    shuffled = list(apart)
    random.shuffle(shuffled)
    found = letters(names, apart)
    assert found[names[0]].startswith("a")
    assert letters(names, set(shuffled)) == found
    first = [next(name for name in names if letter in found[name]) for letter in sorted(set("".join(found.values())))]
    assert first == sorted(first, key=names.index)  # letters begin from the best on


def test_by_hand():
    def apart(*pairs):
        return {frozenset(pair) for pair in pairs}

    assert letters("xyz", set()) == {"x": "a", "y": "a", "z": "a"}
    assert letters("xyz", apart("xz")) == {"x": "a", "y": "ab", "z": "b"}
    assert letters("xyz", apart("xy", "xz", "yz")) == {"x": "a", "y": "b", "z": "c"}
    # Piepho (2004), Section 2: a chain of neighbours that overlap takes a letter for each overlap.
    assert letters("wxyz", apart("wy", "wz", "xz")) == {"w": "a", "x": "ab", "y": "bc", "z": "c"}


def test_a_letter_that_says_nothing_new_is_left_out():
    """Of a ring of four pairs that are told apart, two letters a method are enough; all cliques would do, too."""
    found = letters("wxyz", {frozenset("wx"), frozenset("yz")})
    assert sorted(map(len, found.values())) == [2, 2, 2, 2]


def test_more_groups_than_letters():
    names = [str(i) for i in range(60)]
    found = letters(names, {frozenset(pair) for pair in combinations(names, 2)})
    assert len(set(found.values())) == 60 and found["59"] == "(60)"
