"""Clients whose devices some sizes fit: who takes part, and with what."""

import pytest
from federations import federation

from fedbench.errors import NotApplicable
from fedbench.types import Size


def with_sizes(fitted, participation=None, **more):
    """Clients of these sizes, of which one without any takes no part."""
    n = len(fitted)
    return federation([4] * n, domains=[0] * n, participation=participation, **more).with_sizes(fitted)


@pytest.mark.parametrize("how", [{"all": True}, {"count": 3}, {"fraction": 0.5}, {"per_domain": 3}])
def test_who_can_take_part_is_drawn_as_before_where_all_can(how):
    plain, fitted = federation([4] * 6, domains=[0] * 6, participation=how), with_sizes([Size(3)] * 6, how)
    assert [plain.cohort(t).ids for t in range(5)] == [fitted.cohort(t).ids for t in range(5)]
    some = with_sizes([Size(3), None, Size(2), None, Size(1), None], how)
    for t in range(5):
        cohort = some.cohort(t)
        assert set(cohort.ids) <= {0, 2, 4} and len(cohort) == (2 if "fraction" in how else 3)
        assert cohort.capacities.tolist() == [{0: 3, 2: 2, 4: 1}[i] for i in cohort.ids]


def test_sizes_of_ranks_and_widths_are_given_as_such():
    ranks = with_sizes([Size(12, rank=4), None, Size(12, rank=1)])
    assert ranks.cohort(0).ranks.tolist() == [4, 1] and ranks.cohort(0).widths is None
    widths = with_sizes([Size(12, width=0.5), Size(12, width=1.0)])
    assert widths.cohort(0).widths.tolist() == [0.5, 1.0]
    # who takes no part does not pull down the least of what a method finds in the scenario
    assert ranks.scenario.ranks.tolist() == [[4, 4], [1, 1], [1, 1]]
    assert len(ranks.scenario.clients) == 3 and not ranks.scenario.fitting


def test_the_turnout_tells_clients_images_and_sizes():
    made = federation([10, 4, 6], domains=[0] * 3).with_sizes([Size(3), None, Size(1)])
    assert made.turnout == {
        "clients": 2,
        "of_clients": 3,
        "images": 16,
        "of_images": 20,
        "sizes": {"1 layer": 1, "3 layers": 1},
    }
    assert with_sizes([Size(2, rank=4), Size(1, rank=4), Size(2, rank=4)]).turnout["sizes"] == {"rank 4": 3}
    assert federation().turnout is None
    with pytest.raises(NotApplicable, match="no client's device can hold any size"):
        with_sizes([None, None])
