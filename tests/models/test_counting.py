"""FLOPs and activations are the same wherever they are counted, and those of torch's own counter; bytes that running a
model takes, counted by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from command import TINY
from every_method import METHODS, changed, tiny_cells
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fedbench.errors import NotApplicable
from fedbench.models import backbone, counting
from fedbench.models.backbone import HEAD, body_of
from fedbench.models.counting import ATTENTION_OF_CPUS, blank, count, counted, one_image, to_answer, to_run
from fedbench.registry.registry import Registry
from fedbench.simulation.simulation import Simulation
from fedbench.testing.setups import tiny_vit
from fedbench.types import Exit


def loss(model, x, y):
    return F.cross_entropy(F.dropout(model(x), 0.5), y)


@pytest.mark.parametrize("name", ["vit", "cnn"])
def test_both_devices_and_torchs_own_counter_count_the_same(registry, name):
    made = {"vit": tiny_vit, "cnn": lambda: registry.make("backbone", {"name": "micro_cnn"}).model}
    model, size = made[name](), 32 if name == "cnn" else 8
    before, found = torch.get_rng_state(), []
    for device in ("cpu", "meta"):
        twin = blank(model, device=device)
        x, y = one_image(twin, size)
        found.append(count(twin, lambda twin=twin, x=x, y=y: loss(twin, x, y).backward()))
    with FlopCounterMode(display=False) as counter:
        loss(twin, x, y).backward()
    torch.set_rng_state(before)
    assert found[0] == found[1] == counted(model, loss, size) and found[0][0] == counter.get_total_flops() > 0
    assert torch.equal(torch.get_rng_state(), before), "what others draw has changed"


class Choosy(nn.Module):
    """Says where it was called; breaks on the CPU."""

    def __init__(self):
        super().__init__()
        self.weight, self.devices = nn.Parameter(torch.ones(3, 3)), []

    def forward(self, x):
        self.devices.append(x.device.type)
        if x.device.type == "cpu":
            raise RuntimeError("of zeros")
        return x.mean((2, 3)) @ self.weight

    def __deepcopy__(self, memo):
        twin = Choosy()
        twin.weight, twin.devices = copy.deepcopy(self.weight, memo), self.devices
        return twin


def test_what_the_cpu_does_not_take_and_what_is_large_is_counted_on_the_meta_device(monkeypatch):
    model = Choosy()
    flops, _ = counted(model, lambda model, x, y: model(x).sum(), 8)
    assert model.devices == ["cpu", "meta"] and flops == 2 * 2 * 9  # forward, and the weights' gradient
    model.devices.clear()
    counted(model, lambda model, x, y: model(x).sum(), counting.SIDE + 1)
    monkeypatch.setattr(counting, "SMALL", 8)
    counted(model, lambda model, x, y: model(x).sum(), 8)
    assert model.devices == ["meta", "meta"]


def test_operators_that_only_the_cpu_has_are_left_to_the_meta_device():
    q = torch.zeros(1, 1, 4, 8, requires_grad=True)
    with pytest.raises(counting.Elsewhere), FlopCounterMode(display=False, custom_mapping=ATTENTION_OF_CPUS):
        F.scaled_dot_product_attention(q, q, q)


SMALL = counting.SMALL
SOME = ("reefl",)  # families/width/test_narrow.py has whole models and their cuts


def prices(config, registry):
    backbone._found.clear()
    trial = Simulation(config, registry)
    cohort = trial.federation.cohort(0)
    return trial.method.prices(cohort, 0)


@pytest.fixture(scope="module")
def cells(own_cache, tmp_path_factory):
    registry = Registry([str(TINY)])
    return registry, tiny_cells(tmp_path_factory.mktemp("suite"), registry)


def same_prices(cells, methods, monkeypatch):
    registry, configs = cells
    for method in methods:
        config, found = changed(configs["rough", method], "rough", "cohort"), []
        for small in (SMALL, 0):
            monkeypatch.setattr(counting, "SMALL", small)
            try:
                found.append(prices(config, registry))
            except NotApplicable as reason:
                found.append(str(reason))
        assert found[0] == found[1], method


def test_clients_pay_the_same(cells, monkeypatch):
    same_prices(cells, SOME, monkeypatch)


@pytest.mark.slow
def test_they_do_so_under_every_method(cells, monkeypatch):
    same_prices(cells, METHODS, monkeypatch)


class Two(nn.Module):
    """Two linear layers with a ReLU between them, which read the first ten numbers of an image."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 20), nn.Linear(20, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.flatten(1)[:, :10])))


def test_what_exists_at_once_is_the_image_and_two_tensors_at_most():
    """The image is 3 x 2 x 2 floats, the hidden units 20, once before and once after the ReLU; then the five logits."""
    assert to_answer(Two(), lambda model, x: model(x), 2) == 4 * (12 + 20 + 20)


def test_what_is_kept_counts_as_long_as_it_is_kept():
    def both(model, x):
        kept = model.a(x.flatten(1)[:, :10])
        return kept, model(x)

    assert to_answer(Two(), both, 2) == 4 * (12 + 20 + 20 + 20)


@pytest.fixture(scope="module")
def adapted(registry):
    model = body_of(tiny_vit())
    registry.make("adapter", {"name": "lora", "rank": 4, "alpha": 4})(model)
    model.add_classifier(HEAD, 3)
    return model


def test_a_layer_more_is_its_weights_more(adapted):
    two, three = (to_run(adapted, depth, [Exit(depth, HEAD)], 8) for depth in (2, 3))
    assert three - two == sum(p.nbytes for p in adapted.blocks[0].parameters())


def test_a_term_less_is_a_column_and_a_row_less_of_every_adapter(adapted):
    """attn.proj is 8 x 8, mlp.fc2 8 x 16."""
    three, four = (to_run(adapted, 2, [Exit(2, HEAD)], 8, rank) for rank in (3, 4))
    assert four - three == 2 * 4 * (8 + 8 + 8 + 16)
    assert four == to_run(adapted, 2, [Exit(2, HEAD)], 8)


def test_every_classifier_that_answers_is_held(adapted):
    adapted.add_classifier("exit1", 3)
    one, two = (to_run(adapted, 2, exits, 8) for exits in ([Exit(2, HEAD)], [Exit(1, "exit1"), Exit(2, HEAD)]))
    assert two - one >= 4 * (3 * 8 + 3)
