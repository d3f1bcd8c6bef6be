"""Methods that train without an engine, on a GPU against themselves on the CPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from engine.test_cohort import SGD, ragged
from rounds import DEVICE, close, moved, sampled

from fedbench.seeding import generator
from fedbench.testing.setups import setup_of, tiny_vit

pytestmark = pytest.mark.gpu

FEW = {"ditto", "fedavg", "festa"}
ALONE = ["fedavg", "ditto", "fedrod", "fedv", "fedvz", "festa", "splitlora"]


def alone(registry, name: str, device: str, single: bool) -> list:
    """Two rounds, the second on what the first has put away: states, losses, and every client's own tensors."""
    setup = setup_of(registry, tiny_vit(), [4] * 3, optimizer=SGD, clip=0.5)
    if single:
        setup.backbone.float()
    setup = dataclasses.replace(setup, device=device)
    options = {"epsilon": 1e-2, "server_lr": 1e-3} if name == "fedvz" else {}
    method = registry.make("method", {"name": name, **options}, setup=setup)
    cohort = moved(ragged([4] * 3, steps=[3, 2, 3], sizes=[4, 2]), device, torch.float32 if single else torch.float64)
    state, seen = method.init(generator(0)), []
    for t in range(2):
        state, report = method.round(state, t, cohort, generator(0, t))
        seen.append([state["shared"], state.get("encoder", {}), report.uploads.loss])
    own = [setup.store.get(key) for _, key in sorted(state.get("clients", {}).items())]
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    x = x.to(device, torch.float32 if single else torch.float64)
    with torch.no_grad():
        answers = [method.predictor(state, client=client)(x) for client in (None, 0, 2)]
    return [seen, own, answers]


@pytest.mark.parametrize("name", sampled(sorted(set(ALONE) - {"fedvz"}), FEW))  # whose z is drawn on the device
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_methods_without_an_engine_equal_themselves_on_the_cpu(registry, name, single):
    on_gpu, on_cpu = (alone(registry, name, device, single) for device in (DEVICE, "cpu"))
    if single:
        on_gpu, on_cpu = without_key_biases(on_gpu), without_key_biases(on_cpu)
    close(on_gpu, on_cpu, 1e-3 if single else 1e-9)


def without_key_biases(found):
    """The same, with zeros in place of the biases of keys.

    A softmax does not depend on them: their gradient is rounding alone, which Adam scales up to whole steps.
    """
    if isinstance(found, dict):
        return {
            name: zeroed(value) if name.endswith("qkv.bias") else without_key_biases(value)
            for name, value in found.items()
        }
    return [without_key_biases(part) for part in found] if isinstance(found, list) else found


def zeroed(bias: torch.Tensor) -> torch.Tensor:
    queries, keys, values = bias.chunk(3, -1)
    return torch.cat([queries, torch.zeros_like(keys), values], -1)


def test_fedvz_on_the_gpu_is_the_same_twice_and_trains_heads_and_tails_as_on_the_cpu(registry):
    """Before the server's first step no z has mattered."""
    one, again, on_cpu = (alone(registry, "fedvz", device, False) for device in (DEVICE, DEVICE, "cpu"))
    close(one, again)  # not to the bit: cuDNN sums gradients in any order
    close([one[0][0][0], one[0][0][2]], [on_cpu[0][0][0], on_cpu[0][0][2]])
