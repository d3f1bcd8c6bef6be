"""Who steps with whom, and the parts put together again."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.engine.groups import grouped, joined
from fedbench.families.layerwise import head_at_end
from fedbench.models.places import holders
from fedbench.testing.world import cohort_of
from fedbench.types import Plan


def test_six_unequal_clients_make_two_groups_of_equal_work():
    """Depths 12, 10, 8, 6, 4, 3 and 544 rows each: three fit into 2,080."""
    assert grouped([12, 10, 8, 6, 4, 3], [544] * 6, 2080) == [[0, 3, 4], [1, 2, 5]]


def test_clients_that_fill_a_pass_stand_alone():
    assert grouped([3, 2, 1], [2080] * 3, 2080) == [[0], [1], [2]]
    assert grouped([1, 1], [9999, 10], 2080) == [[0], [1]]


def test_nobody_makes_no_group():
    assert grouped([], [], 2080) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3000)), max_size=12))
def test_everyone_is_in_one_group_and_no_group_is_too_large(clients):
    groups = grouped([work for work, _ in clients], [rows for _, rows in clients], 2080)
    assert sorted(n for group in groups for n in group) == list(range(len(clients)))
    for group in groups:
        assert len(group) == 1 or sum(clients[n][1] for n in group) <= 2080


M = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)


def test_parts_are_joined_in_the_order_of_the_clients():
    plan, groups = Plan(M, [head_at_end(1)] * 4), [[1, 3], [0, 2]]

    def part(group):
        places = {"r/0/a": "r/0", "r/1/a": "r/1", "shared/head.bias": "shared/head.bias"}
        rows = {name: torch.tensor([[float(n)] for n in holders(plan, at, group)]) for name, at in places.items()}
        return rows | {"loss": torch.tensor(group).double(), "seconds": torch.tensor(group).double()}

    up = joined([part(group) for group in groups], groups, plan, cohort_of([1, 2, 1, 2]))
    assert up.r[0]["a"].flatten().tolist() == [0, 1, 3] and up.r[1]["a"].flatten().tolist() == [1, 2, 3]
    assert up.shared["head.bias"].flatten().tolist() == up.loss.tolist() == [0, 1, 2, 3]
