"""Tensors of a method's own, under a plan by which nobody holds anything: they are sent like all others."""

from __future__ import annotations

import math
import re

import pytest
import torch

from fedbench.errors import UserError
from fedbench.simulation.faults import NOT_FINITE, TOO_LARGE, Faults, Guard, received
from fedbench.testing.setups import cohort_of
from fedbench.types import Plan, Uploads


def only(client, **how):
    """Faults that one client alone has, always."""
    faults = Faults({"corrupted": {"probability": 1.0, **how}}, seed=0)
    usual = faults.kind_of
    faults.kind_of = lambda t, i: usual(t, i) if i == client else ""
    return faults


def own_tensors(seen=torch.float64):
    """Three clients send `proto` and `seen`, which belong to no classifier."""
    start = {"r": [{}], "shared": {"proto": torch.zeros(2), "seen": torch.zeros(2, dtype=seen)}}
    rows = {"proto": torch.tensor([[3.0, 4.0]] * 3), "seen": torch.ones(3, 2, dtype=seen)}
    up = Uploads([{}], rows, torch.ones(3) > 0, torch.zeros(3), torch.ones(3), torch.zeros(3))
    return up, start, Plan(torch.zeros(3, 1) > 0, [()] * 3), cohort_of([1] * 3), 0


def test_a_methods_own_tensors_meet_faults_and_the_guard():
    taken = received(*own_tensors(), only(1, kind="nan"), Guard())
    assert taken.rejected == {1: NOT_FINITE} and list(taken.spoilt) == [1]
    assert taken.shared["proto"].isnan().all(1).tolist() == [False, True, False]
    taken = received(*own_tensors(), only(2, kind="scaled", scale=2.0), Guard())
    assert taken.shared["proto"].tolist() == [[3.0, 4.0], [3.0, 4.0], [6.0, 8.0]] and taken.arrived.all()
    norm = math.sqrt(25 + 2)
    assert received(*own_tensors(), Faults({}, 0), Guard({"max_norm": norm - 0.01})).rejected == dict.fromkeys(
        range(3), TOO_LARGE
    )
    assert not received(*own_tensors(), Faults({}, 0), Guard({"max_norm": norm + 0.01})).rejected


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("kind", ["nan", "inf", "scaled", "noise", "wrong_shape"])
def test_whole_numbers_are_left_as_they_are_unless_the_shape_is_wrong(kind, dtype):
    given = own_tensors(dtype)
    taken = received(*given, only(1, kind=kind), Guard())
    assert list(taken.spoilt) == [1] and list(taken.rejected) == ([] if kind in ("scaled", "noise") else [1])
    assert taken.shared["seen"][1].tolist() == [0 if taken.rejected else 1] * 2 and taken.shared["seen"].dtype == dtype
    up = given[0]
    del up.shared["proto"]
    taken = received(*given, only(1, kind=kind), Guard())
    assert list(taken.spoilt) == list(taken.rejected) == ([1] if kind == "wrong_shape" else [])


def test_rows_that_do_not_fit_their_senders_are_refused_in_words():
    up, *rest = own_tensors()
    up.shared["proto"] = up.shared["proto"][:2]
    told = "uploads: 'shared/proto' has 2 rows, but by the plan 3 of 3 clients send it: all that take part"
    with pytest.raises(UserError, match=re.escape(told)):
        received(up, *rest, Faults({}, 0), Guard())
    up, start, *rest = own_tensors()
    up.shared["fc.w"] = start["shared"]["fc.w"] = up.shared.pop("proto")
    told = "uploads: 'shared/fc.w' has 3 rows, but by the plan 0 of 3 clients send it: those with an Exit of the "
    with pytest.raises(UserError, match=re.escape(told + "classifier 'fc'; a name without a dot")):
        received(up, start, *rest, Faults({}, 0), Guard())
    up, start, plan, *rest = own_tensors()
    up.r[0]["A"], start["r"] = torch.zeros(3, 2), [{"A": torch.zeros(2)}]
    told = "uploads: 'r/0/A' has 3 rows, but by the plan 0 of 3 clients send it: those that train the layer"
    with pytest.raises(UserError, match=re.escape(told)):
        received(up, start, plan, *rest, Faults({}, 0), Guard())
    up, start, *rest = own_tensors()
    del start["shared"]["proto"]
    with pytest.raises(
        UserError, match=re.escape("'shared/proto' is not among what clients started from (shared/seen)")
    ):
        received(up, start, *rest, Faults({}, 0), Guard())
