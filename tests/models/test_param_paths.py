"""Where trained tensors stand, and who holds them."""

import torch

from fedbench.models.param_paths import holders, holds, started, trained_layers
from fedbench.types import Exit, Plan


def test_holders_are_found_in_a_group_and_among_all():
    M = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)
    plan = Plan(M, [[Exit(1, "head")], [Exit(1, "exit1"), Exit(2, "head")], [Exit(1, "head")], [Exit(2, "head")]])
    assert holders(plan, "r/1") == [1, 2, 3] and holders(plan, "r/1", [0, 3]) == [3]
    assert holders(plan, "shared/exit1.weight") == [1] and holders(plan, "shared/model.stem.lora_A", [2]) == [2]


def test_a_parameter_of_the_model_itself_is_everybodys():
    assert holds([], "model.scale") and holds([], "model.conv.weight")
    assert holds(["head"], "head.weight") and not holds(["head"], "exit3.weight")


def test_a_shared_tensor_without_a_dot_is_everybodys():
    assert holds([], "proto") and holds(["head"], "w") and holds([], "exit3")
    assert not holds([], "proto.mean")  # which may be a classifier's


def test_what_a_client_trains_may_be_less_than_it_holds():
    M, trained = torch.ones(3, 3) > 0, torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1]]) > 0
    r = [{"fc.lora_A": 0, "fc.lora_B": 0}, {"fc.lora_A": 0}, {}]
    plan = Plan(M, [()] * 3, trained=trained, frozen=["*.lora_A"])
    assert trained_layers(plan, r).int().tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert trained_layers(Plan(M, [()] * 3), r).int().tolist() == [[1, 1, 0]] * 3
    value, rows = torch.tensor([5.0]), torch.tensor([[1.0], [2.0], [3.0]])
    assert started(value, plan, "r/0/fc.lora_B", 1).tolist() == [[5.0], [5.0]]
    assert started(rows, plan, "r/0/fc.lora_B", 1).tolist() == [[1.0], [3.0]]
    assert started(rows, plan, "r/0/fc.lora_A", 1).shape == (0, 1)
