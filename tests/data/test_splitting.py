"""Splits of whole groups: on one side each, near the numbers that are wanted, and something left everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.data.heldout import without_validation
from fedbench.data.splitting import groups_by_name, split_by_group, whole_groups
from fedbench.data.texts import Example
from fedbench.errors import UserError
from fedbench.types import Clients, Images


def held(group, order, part, wanted, **options):
    part = np.array(part)
    found = whole_groups(np.array(group), order, part, np.array(wanted), [part], **options)
    return np.flatnonzero(found).tolist()


def test_groups_are_taken_in_order_while_that_brings_the_numbers_closer():
    assert held([0, 0, 1, 1, 2, 2, 2], [1, 0, 2], [0] * 7, [3]) == [2, 3]  # 4 would be as far from 3 as 2 is
    assert held([0, 0, 1, 1, 2, 2, 2], [2, 0, 1], [0] * 7, [4]) == [4, 5, 6]
    assert held([0, 0, 1, 1, 2, 2, 2], [1, 0, 2], [0] * 7, [4]) == [0, 1, 2, 3]
    assert held([0, 0, 1], [0, 1], [0, 0, 0], [1]) == [2]


def test_something_is_left_of_every_part():
    assert held([0, 0, 1], [0, 1], [0, 1, 0], [1, 1]) == [2]  # group 0 has all of part 1
    assert held([0, 0], [0], [0, 0], [1]) == []


def test_a_part_that_would_have_nothing_gets_a_larger_group_where_that_is_asked_for():
    group, part = [0] * 5 + [1] * 5, [0] * 10
    assert held(group, [1, 0], part, [1]) == []
    assert held(group, [1, 0], part, [1], fill=True) == [5, 6, 7, 8, 9]


@given(data=st.data(), n=st.integers(4, 60), seed=st.integers(0, 99))
def test_no_group_is_on_both_sides_and_every_class_keeps_training_data(data, n, seed):
    group = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    label = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    examples = [Example(str(i), y, 0) for i, y in enumerate(label)]
    test = split_by_group(examples, [f"g{g}" for g in group], 0.3, seed, "any")
    sides = [{g for g, flag in zip(group, test, strict=True) if flag is side} for side in (False, True)]
    assert not sides[0] & sides[1]
    assert {y for y, flag in zip(label, test, strict=True) if not flag} == set(label)
    again = np.random.default_rng(seed).permutation(n)
    moved = split_by_group([examples[i] for i in again], [f"g{group[i]}" for i in again], 0.3, seed, "any")
    assert [test[i] for i in again] == moved, "the order of rows changes nothing"


def test_names_are_grouped_by_what_a_pattern_finds():
    paths = ["a/x/p1_0.png", "b/y/p1_9.png", "a/x/p2_0.png", "a/x/odd.png"]
    assert list(groups_by_name("^p[0-9]+", paths).values()) == ["p1", "p1", "p2", "a/x/odd.png"]
    assert list(groups_by_name("_([0-9])", paths).values()) == ["0", "9", "0", "a/x/odd.png"]
    with pytest.raises(UserError, match=r"group: '\(' is no regular expression"):
        groups_by_name("(", paths)
    with pytest.raises(UserError, match="group: 'z' is found in no file's name, such as a/x/p1_0.png"):
        groups_by_name("z", paths)


def images_of(n, group):
    return Images(np.zeros((n, 3, 1, 1), np.uint8), np.arange(n) % 2, np.zeros(n, np.int64), np.array(group))


def test_validation_data_have_whole_groups_of_all_clients():
    """A burst of four, whose images are dealt to two clients."""
    images = images_of(80, np.arange(80) // 4)
    owned = np.random.default_rng(0).permutation(80)
    clients = Clients(np.array([0, 0]), np.array([30, 50]), owned)
    left, out = without_validation(images, clients, 0.2, 5)
    assert not set(images.group[left.indices]) & set(images.group[out.indices])
    assert sorted([*left.indices, *out.indices]) == list(range(80)) and 12 <= len(out.indices) <= 20
    assert [len(one.indices) + len(other.indices) for one, other in zip(left, out, strict=True)] == [30, 50]
    assert (np.diff(out[0].indices) > 0).all() and set(out[0].indices) <= set(owned[:30])
    again = without_validation(images, clients, 0.2, 5)[1].indices
    assert again.tolist() == out.indices.tolist() != without_validation(images, clients, 0.2, 6)[1].indices.tolist()


def test_one_group_alone_gives_no_validation_data():
    with pytest.raises(UserError, match="0.5 of a client's training examples holds no whole group"):
        without_validation(images_of(8, [0] * 8), Clients(np.array([0]), np.array([8]), np.arange(8)), 0.5, 0)
