"""fedbench/suite/points.py: seeds rotate or shuffle who has which size or device."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from made_up import SMALL

from fedbench.suite.points import arrangement, repeats

DEPTHS = [12, 10, 8, 6, 4, 3]
SHUFFLED = SMALL.replace("[12, 10, 8, 6, 4, 3]", "{by_domain: [12, 10, 8, 6, 4, 3]}\n  shuffle_capacities: true")


@pytest.mark.parametrize(("values", "orders"), [(DEPTHS, 720), ([10, 10, 6, 6, 4, 4], 90), ([5, 5, 5], 1), ([1, 2], 2)])
def test_every_order_comes_once_before_any_comes_again(values, orders):
    found = [tuple(arrangement(values, seed)) for seed in range(orders)]
    assert len(set(found)) == orders and all(sorted(order) == sorted(values) for order in found)
    assert tuple(arrangement(values, orders)) == (found[0] if orders < 1000 else None)


@pytest.mark.parametrize("values", [DEPTHS, [10, 10, 6, 6, 4, 4], [10, 10, 10, 4, 4, 4]])
def test_seeds_of_a_tuning_have_other_orders_than_those_of_the_report(values):
    orders = [tuple(arrangement(values, seed)) for seed in (*range(10), 1000, 1001, 1002)]
    assert len(set(orders)) == 13


def test_the_order_in_which_a_suite_lists_the_values_does_not_matter():
    assert arrangement([4, 6, 10, 4, 6, 10], 7) == arrangement([10, 10, 6, 6, 4, 4], 7)


def test_an_order_stays_what_it_is_since_it_is_in_the_identity_of_cells():
    assert [arrangement(DEPTHS, seed) for seed in (0, 1, 1000)] == [
        [4, 10, 6, 8, 3, 12],
        [10, 4, 12, 6, 3, 8],
        [3, 10, 12, 6, 8, 4],
    ]


def test_every_client_has_every_depth_equally_often_over_all_orders_and_about_so_over_few():
    orders = [arrangement(DEPTHS, seed) for seed in range(120)]
    for column in zip(*orders, strict=True):
        assert set(Counter(column)) == set(DEPTHS) and max(Counter(column).values()) < 40


def test_a_hundred_different_values_have_orders_too():
    orders = [arrangement(list(range(100)), seed) for seed in range(20)]
    assert len(set(map(tuple, orders))) == 20
    assert all(one[0] != other[0] or one[1] != other[1] for one, other in pairwise(orders))


@pytest.mark.parametrize("way", ["by_client", "by_domain", "cycle"])
def test_shuffled_capacities_are_written_into_the_cell_of_each_seed(suite_of, way):
    text = SMALL.replace("[12, 10, 8, 6, 4, 3]", f"{{{way}: [12, 10, 8, 6, 4, 3]}}\n  shuffle_capacities: true")
    cells = suite_of(text).points(seeds=range(8))
    assert [cell.config["capacities"] for cell in cells] == [{way: arrangement(DEPTHS, seed)} for seed in range(8)]
    assert not {"shuffle_capacities", "rotate_capacities"} & cells[0].config.keys()


def test_a_cell_is_the_same_whatever_other_seeds_there_are(suite_of):
    alone, among = (suite_of(SHUFFLED).points(seeds=seeds)[0].config for seeds in ([5], [5, 0, 1]))
    assert alone == among


def test_sizes_that_are_given_together_are_shuffled_together(suite_of):
    text = SMALL.replace(
        "[12, 10, 8, 6, 4, 3]", "[12, 10, 8, 6, 4, 3]\n  ranks: [6, 5, 4, 3, 2, 1]\n  shuffle_capacities: true"
    )
    for cell in suite_of(text).points(seeds=range(5)):
        pairs = zip(cell.config["capacities"]["by_client"], cell.config["ranks"]["by_client"], strict=True)
        assert set(pairs) == set(zip(DEPTHS, [6, 5, 4, 3, 2, 1], strict=True))


def test_both_keys_together_are_refused_with_their_places(faults_of):
    text = SHUFFLED.replace("skew: {}", "skew: {rotate_capacities: true}")
    assert faults_of(text) == [
        "s.yaml:6:3: shuffle_capacities: rotate_capacities is true too (at s.yaml:8:29), and a seed assigns in one "
        "way; set it to false"
    ]
    assert not faults_of(text.replace("true}", "false}"))


def test_seeds_that_share_an_assignment_are_named_where_others_differ(suite_of):
    rotated = suite_of(SHUFFLED.replace("shuffle", "rotate"))
    assert repeats(rotated.points(seeds=range(10))).startswith("10 seeds share 6 assignments of sizes to clients")
    assert repeats(rotated.points(seeds=range(6))) == ""
    equal = suite_of(SHUFFLED.replace("shuffle", "rotate").replace("12, 10, 8, 6, 4, 3", "6, 6, 6, 6, 6, 6"))
    assert repeats(equal.points(seeds=range(10))) == "" == repeats(suite_of(SHUFFLED).points(seeds=range(10)))
