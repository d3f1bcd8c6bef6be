"""Where trained tensors stand, and who holds them."""

import torch

from fedbench.models.places import holders, holds
from fedbench.types import Exit, Plan


def test_holders_are_found_in_a_group_and_among_all():
    M = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)
    plan = Plan(M, [[Exit(1, "head")], [Exit(1, "exit1"), Exit(2, "head")], [Exit(1, "head")], [Exit(2, "head")]])
    assert holders(plan, "r/1") == [1, 2, 3] and holders(plan, "r/1", [0, 3]) == [3]
    assert holders(plan, "shared/exit1.weight") == [1] and holders(plan, "shared/model.stem.lora_A", [2]) == [2]


def test_a_parameter_of_the_model_itself_is_everybodys():
    assert holds([], "model.scale") and holds([], "model.conv.weight")
    assert holds(["head"], "head.weight") and not holds(["head"], "exit3.weight")
