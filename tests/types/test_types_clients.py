"""fedbench/types/clients.py: many clients in a few arrays."""

from __future__ import annotations

import numpy as np
import pytest

from fedbench.data.checked import fault_of_clients
from fedbench.types import MIXED, Client, Clients, Scenario

LISTED = [Client(0, 1, np.array([4, 2])), Client(1, MIXED, np.array([0])), Client(2, 0, np.array([], dtype=np.int64))]


def told(clients) -> list[tuple[int, int, list[int]]]:
    return [(client.id, client.domain, client.indices.tolist()) for client in clients]


def test_clients_in_arrays_are_the_clients_of_the_list():
    many = Clients.of(LISTED)
    assert told(many) == told(LISTED) == told(many[:]) and Clients.of(many) is many
    assert len(Clients.of([])) == 0
    assert (len(many), many.sizes.tolist(), many.examples(0), many[-1].id) == (3, [2, 1, 0], 2, 2)
    assert told(many.at(np.array([7, 8, 9]))) == [(0, 1, [7, 8]), (1, MIXED, [9]), (2, 0, [])]
    with pytest.raises(IndexError):
        many[3]


def test_owners_have_their_positions_in_order():
    many = Clients.owning(np.array([1, 0, 1, 1]), np.array([5, 6, 7]))
    assert told(many) == [(0, 5, [1]), (1, 6, [0, 2, 3]), (2, 7, [])]


@pytest.mark.parametrize(
    ("sizes", "indices", "fault"),
    [
        ([2, 1], [0, 1, 2], ""),
        ([2, 1], [0, 1, 3], "indices must be positions in y, from 0 to 2, not 0 to 3"),
        ([2, 1], [0, 1, 1], "image 1 is dealt 2 times"),
        ([1, 1], [0, 1, 2], "add up to their 3 images"),
        ([4, -1], [0, 1, 2], "each 0 or more"),
        ([2, 1], [0.0, 1.0, 2.0], "the indices of all clients must be int64"),
        ([], [], "the partition makes no client at all"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(sizes, indices, fault):
    found = fault_of_clients(Clients(np.zeros(len(sizes), dtype=np.int64), np.array(sizes), np.array(indices)), 3)
    assert fault in found and bool(fault) == bool(found)


def test_different_sizes_are_told_once():
    rows = np.array([[3, 3], [1, 4], [3, 3], [1, 2]])
    scenario = Scenario([], rows, 4, 1, widths=np.broadcast_to(np.array([0.5, 1.0]), (5, 2)))
    assert scenario.different("capacities") == [(1, 2), (1, 4), (3, 3)]
    assert scenario.some().tolist() == [0, 1, 2, 3] and scenario.some(1).tolist() == [0, 1]
    assert scenario.different("widths") == [(0.5, 1.0)] and scenario.different("ranks") == []
