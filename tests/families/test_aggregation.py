"""Eq. 3 by hand: sample weights, layers nobody held or returned, shared tensors."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.families.aggregation import mean, weighted_mean
from fedbench.types import Cohort, Exit, Plan, Uploads


def case(arrived=(True, True), exits=None):
    """Two clients: the first holds layers 1 and 2, the second layer 1; layer 3 is nobody's. Weights 1 and 3."""
    M = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    plan = Plan(M, exits or [[Exit(2, "head")], [Exit(1, "head")]])
    state = {
        "r": [{"A": torch.tensor([10.0])}, {"A": torch.tensor([20.0])}, {"A": torch.tensor([30.0])}],
        "shared": {"head.weight": torch.tensor([0.0]), "model.patch_embed.proj.lora_A": torch.tensor([5.0])},
    }
    uploads = Uploads(
        r=[{"A": torch.tensor([[1.0], [5.0]])}, {"A": torch.tensor([[7.0]])}, {"A": torch.empty(0, 1)}],
        shared={
            "head.weight": torch.tensor([[2.0], [6.0]]),
            "model.patch_embed.proj.lora_A": torch.tensor([[0.0], [4.0]]),
        },
        arrived=torch.tensor(arrived),
        loss=torch.zeros(2),
        steps=torch.ones(2),
        seconds=torch.zeros(2),
    )
    cohort = Cohort([0, 1], torch.tensor([2, 1]), torch.tensor([1, 3]), torch.ones(2), lambda n: iter(()))
    return state, uploads, plan, cohort


def test_layers_are_averaged_by_examples_over_their_holders():
    new = weighted_mean(*case())
    assert new["r"][0]["A"].tolist() == [(1 * 1 + 3 * 5) / 4]
    assert new["r"][1]["A"].tolist() == [7.0]


def test_layer_nobody_held_keeps_last_round():
    assert weighted_mean(*case())["r"][2]["A"].tolist() == [30.0]


def test_layer_nobody_returned_keeps_last_round():
    new = weighted_mean(*case(arrived=(False, True)))
    assert new["r"][0]["A"].tolist() == [5.0]
    assert new["r"][1]["A"].tolist() == [20.0]


def test_a_round_in_which_nobody_returns_changes_nothing():
    state, *rest = case(arrived=(False, False))
    new = weighted_mean(state, *rest)
    assert [r["A"].item() for r in new["r"]] == [10.0, 20.0, 30.0]
    assert new["shared"]["head.weight"].item() == 0.0


def test_uniform_weights_ignore_examples():
    assert weighted_mean(*case(), weights="uniform")["r"][0]["A"].tolist() == [3.0]


def test_a_classifier_is_averaged_over_the_clients_that_hold_it():
    exits = [[Exit(2, "head")], [Exit(1, "exit1")]]
    state, uploads, plan, cohort = case(exits=exits)
    uploads.shared["head.weight"] = torch.tensor([[2.0]])
    new = weighted_mean(state, uploads, plan, cohort)
    assert new["shared"]["head.weight"].tolist() == [2.0]
    assert new["shared"]["model.patch_embed.proj.lora_A"].tolist() == [
        3.0
    ]  # an adapter outside the layers is everybody's


def test_the_state_it_was_given_is_left_alone_and_shares_no_tensor():
    state, *rest = case()
    new = weighted_mean(state, *rest)
    assert state["r"][0]["A"].tolist() == [10.0]
    assert new["r"][2]["A"].data_ptr() != state["r"][2]["A"].data_ptr()


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(1, 1000)), min_size=1, max_size=6))
def test_a_mean_lies_between_its_rows_and_ignores_the_scale_of_weights(pairs):
    rows = torch.tensor([[row] for row, _ in pairs], dtype=torch.float64)
    weights = torch.tensor([float(w) for _, w in pairs], dtype=torch.float64)
    value = mean(rows, weights)
    assert rows.min() - 1e-9 <= value <= rows.max() + 1e-9
    torch.testing.assert_close(value, mean(rows, 7 * weights))
