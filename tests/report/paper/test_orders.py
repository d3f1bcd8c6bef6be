"""fedbench/report/paper.py: the order of the methods, measured and in the paper."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from papers import around, compared, measure

from fedbench.report.paper import order, ordered


def test_the_orders_of_the_methods_that_both_have(suite):
    for method, value in {"depthfl": 0.9, "fedra": 0.8, "allsmall": 0.7, "head_only": 0.99}.items():
        measure(suite, method, (value, value))
    found = compared(suite)
    both = order(found, found.papers[0])
    assert both.measured == [["depthfl"], ["fedra"], ["allsmall"]]
    assert both.paper == [["fedra"], ["depthfl"], ["allsmall"]]
    assert (both.swapped, both.pairs) == (1, 3)
    assert around(found)[1][2:] == [
        "order, measured: depthfl > fedra > allsmall",
        "order, paper: fedra > depthfl > allsmall; 1 of 3 pairs swapped",
    ]


def test_what_reads_alike_is_tied_and_no_pair(suite):
    for method, value in {"depthfl": 0.8, "fedra": 0.8004, "allsmall": 0.9}.items():
        measure(suite, method, (value, value))
    both = order(compared(suite), compared(suite).papers[0])
    assert both.measured == [["allsmall"], ["depthfl", "fedra"]]
    assert (both.swapped, both.pairs) == (2, 2)


VALUES = st.lists(st.integers(0, 5), min_size=2, max_size=6).map(lambda found: dict(enumerate(found)))


@given(VALUES)
def test_an_order_agrees_with_itself_and_is_turned_round_by_its_opposite(values):
    same, opposite = ordered(values, values), ordered(values, {name: -value for name, value in values.items()})
    assert same.measured == same.paper == opposite.measured == opposite.paper[::-1]
    assert (same.swapped, opposite.swapped) == (0, opposite.pairs)
    assert same.pairs == opposite.pairs == sum(a < b for a in values.values() for b in values.values())


def test_one_method_has_no_order(suite):
    measure(suite, "fedra", (0.9, 0.8))
    assert order(compared(suite), compared(suite).papers[0]) is None
