"""A round of depth-allocated tuning, whatever the method."""

import pytest
import torch

from fedbench.errors import UserError
from fedbench.families.layerwise import layerwise
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_mixer, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

METHODS = ["fedra", "depthfl", "allsmall", "exclusive"]
CAPACITIES = [4, 3, 1]


def made(registry, name, model=None, capacities=CAPACITIES, **options):
    model = model or tiny_vit()
    setup = setup_of(registry, model, capacities, origin=type(model).__name__)  # what one costs is measured once
    return registry.make("method", {"name": name, **options}, setup=setup), setup


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_and_predicts_on_a_mixer(registry, name):
    """What else a method has to keep to is tried on a ViT: testing/test_kit.py checks every built-in method."""
    method, _ = made(registry, name, tiny_mixer())
    state = method.init(generator(0))
    for t in range(2):
        state, report = method.round(state, t, cohort_of(CAPACITIES), generator(0, t))
        assert len(report.cost) == len(report.cohort.ids) == len(report.plan.M)
    answer = method.predictor(state)(torch.randn(5, 3, 8, 8, dtype=torch.float64))
    for logits in answer.values() if isinstance(answer, dict) else [answer]:
        assert logits.shape == (5, 3) and logits.isfinite().all()


def test_state_remembers_who_was_trained_and_how_far(registry):
    method, _ = made(registry, "inclusivefl")
    state, _ = method.round(method.init(generator(0)), 0, cohort_of(CAPACITIES), generator(0, 0))
    assert state["history"].tolist() == [3, 2, 2, 1]
    assert (state["scores"] > 0).all()
    again, _ = method.round(state, 1, cohort_of([1], ids=[2]), generator(0, 1))
    assert again["history"].tolist() == [4, 2, 2, 1]
    assert again["scores"][1:].tolist() == state["scores"][1:].tolist()


def test_any_function_serves_as_allocation(registry):
    def last(capacities, num_layers):
        """The last L_n layers."""
        return torch.arange(num_layers) >= num_layers - capacities[:, None]

    setup = setup_of(registry, tiny_vit(), CAPACITIES)
    method = layerwise(setup, allocation=last)
    _, report = method.round(method.init(generator(0)), 0, cohort_of(CAPACITIES), generator(0, 0))
    assert report.plan.M.int().tolist() == [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]]


def test_cost_beforehand_is_cost_afterwards(registry):
    for name in METHODS:
        method, _ = made(registry, name)
        _, report = method.round(method.init(generator(0)), 0, cohort_of(CAPACITIES), generator(0, 0))
        expected = [cost for cost in (method.cost(L_n, 0) for L_n in CAPACITIES) if cost is not None]
        assert report.cost == expected, name


@pytest.mark.parametrize("option", ["keeps", "fixed", "fresh"])
def test_a_pattern_that_fits_no_tensor_is_refused(registry, option):
    """It would be obeyed in silence, and a personalised method would be the plain one."""
    setup = setup_of(registry, tiny_vit(), CAPACITIES)
    with pytest.raises(UserError, match=rf"^{option}: no tensor has a name that fits 'shared/head.bias'.*head.bias"):
        layerwise(setup, **{option: ["shared/head.bias"]})
    for pattern in ("head.*", "*.lora_B", "attn.proj.lora_A", "*"):
        layerwise(setup_of(registry, tiny_vit(), CAPACITIES), **{option: [pattern]})
