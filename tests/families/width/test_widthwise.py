"""Methods of unequal width: who trains what, who pays what, and what becomes of coordinates that nobody trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import HEAD
from fedbench.seeding import generator
from fedbench.testing.method_check import check_method
from fedbench.testing.setups import CLASSES, cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench_plugins.methods.unequal_widths import rolling

pytestmark = pytest.mark.usefixtures("counted_once")

METHODS = ("heterofl", "fedrolex", "fjord")
RATES = [1, 0.5, 0.25]
MEDIAN = {"aggregator": "coordinate_median"}


class TinyCNN(nn.Sequential):
    num_features = 8

    def __init__(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            super().__init__(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU())
        self.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])


def made(registry, name, widths, model=TinyCNN, train=None, **options):
    setup = setup_of(registry, model(), [1] * len(widths), widths=widths, **(train or {}))
    return registry.make("method", {"name": name, **options}, setup=setup)


def one_round(method, widths, t=0, steps=1, **changes):
    state = method.init(generator(0))
    cohort = replace(cohort_of([1] * len(widths), widths=widths, steps=steps), **changes)
    new, report = method.round(state, t, cohort, generator(0, t))
    return state["shared"], new["shared"], report


@pytest.mark.parametrize(("name", "options"), [("fjord", {}), pytest.param("heterofl", MEDIAN, marks=pytest.mark.slow)])
def test_the_contract_holds_for_clients_of_unequal_width(registry, name, options):
    def make(setup, **more):
        return registry.make("method", {"name": name, "rates": RATES, **options}, setup=setup)

    check_method(make, registry, TinyCNN, widths=(1, 0.5, 0.3))


def test_capacities_of_a_mixer_say_its_widths_where_no_others_are_given(registry):
    method = registry.make("method", {"name": "heterofl"}, setup=setup_of(registry, tiny_mixer(), [4, 3, 1]))
    state = method.init(generator(0))
    _, report = method.round(state, 0, cohort_of([4, 3, 1], steps=1), generator(0, 0))
    prices = [method.price(capacity, 0) for capacity in (4, 3, 1)]
    assert report.cost == prices and prices[1] == prices[2]  # g^2 <= 3 / 4 and 1 / 4: both 1 / 2
    assert 0.2 < prices[1].flops_per_image / prices[0].flops_per_image < 0.4


@pytest.mark.parametrize("model", [TinyCNN, tiny_vit])
@pytest.mark.parametrize("name", ["heterofl", "fedrolex"])
def test_at_full_width_it_is_fedavg(registry, name, model):
    whole = [1.0] * 3
    mean = {"name": "weighted_mean", "weights": "uniform"}
    _, plain, report = one_round(made(registry, "fedavg", whole, model, aggregator=mean), whole, steps=2)
    _, wide, of_wide = one_round(made(registry, name, whole, model, mask=False), whole, steps=2)
    for key, value in plain.items():
        torch.testing.assert_close(wide[key], value, rtol=0, atol=1e-12)
    assert of_wide.cost == report.cost and not of_wide.uploads.coordinates
    assert of_wide.uploads.loss.tolist() == report.uploads.loss.tolist()


@pytest.mark.parametrize(("name", "t", "held"), [("heterofl", 3, range(4)), ("fedrolex", 6, (6, 7, 0, 1))])
def test_what_nobody_holds_keeps_its_value_and_the_rest_moves(registry, name, t, held):
    start, new, report = one_round(made(registry, name, [0.5, 0.25], rates=RATES), [0.5, 0.25], t)
    weight, bias = "model.3.weight", "model.3.bias"
    out = torch.tensor([unit in held for unit in range(8)])
    moved = new[bias] != start[bias]
    assert torch.equal(moved, out) and torch.equal((new[weight] != start[weight]).any((1, 2, 3)), out)
    into = (new[weight] != start[weight]).any(0).any(-1).any(-1)
    assert into.sum() == 3  # of six channels below
    rows = report.uploads.coordinates[f"shared/{bias}"]
    assert rows.sum(1).tolist() == [4, 2]
    assert torch.equal(report.uploads.shared[bias][~rows], start[bias].expand(2, -1)[~rows])


def test_a_class_that_a_client_has_no_image_of_is_neither_scored_nor_averaged(registry):
    def batches(n):
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=generator(0, n))
        yield x, torch.tensor([0, 0, 1, 1])

    train = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.1}}
    for mask in (True, False):
        method = made(registry, "heterofl", [1.0], train=train, mask=mask)
        start, new, report = one_round(method, [1.0], batches=batches)
        moved = (new[f"{HEAD}.weight"] != start[f"{HEAD}.weight"]).any(1).tolist()
        assert moved == [True, True, not mask]
        assert (f"shared/{HEAD}.bias" in report.uploads.coordinates) == mask


def test_windows_wrap_and_train_every_unit_equally_often():
    assert rolling(5, 0.5, 0).tolist() == [0, 1, 2] and rolling(5, 0.5, 4).tolist() == [4, 0, 1]
    counts = torch.bincount(torch.cat([rolling(5, 0.5, t) for t in range(10)]))
    assert counts.tolist() == [6] * 5


def test_full_models_alone_are_the_control_and_who_can_hold_none_takes_no_part(registry):
    widths = [1.0, 0.5, 1.0]
    method = made(registry, "heterofl", widths, rates=[1])
    _, _, report = one_round(method, widths)
    assert report.cohort.ids == [0, 2] and len(report.cost) == 2
    assert method.price(1, 0, None, 0.5) is None and method.price(1, 0, None, 1.0) is not None
    with pytest.raises(NotApplicable, match="no client can hold 0.5 of the width, the smallest of the rates"):
        made(registry, "fjord", [0.25, 0.4], rates=[0.5, 1])


def test_bytes_and_flops_are_those_of_the_width_and_fjords_flops_the_mean_over_its_draws(registry):
    hetero = made(registry, "heterofl", [1.0, 0.5, 0.25], rates=RATES)
    prices = {g: hetero.price(1, 0, None, g) for g in (1.0, 0.5, 0.25)}
    whole, half = prices[1.0], prices[0.5]
    assert half.bytes_up == 8 * ((3 * 3 * 9 + 3) + 2 * 3 + (4 * 3 * 9 + 4) + (CLASSES * 4 + CLASSES)) < whole.bytes_up
    assert half.memory_bytes < whole.memory_bytes
    fjord = made(registry, "fjord", [1.0, 0.5, 0.25], rates=RATES)
    drawn = {g: fjord.price(1, 0, None, g) for g in prices}
    assert [drawn[g].bytes_up for g in prices] == [prices[g].bytes_up for g in prices]
    assert drawn[0.25].flops_per_image == prices[0.25].flops_per_image
    assert drawn[0.5].flops_per_image == round((prices[0.5].flops_per_image + prices[0.25].flops_per_image) / 2)
    taught = made(registry, "fjord", [1.0, 0.5, 0.25], rates=RATES, distill=True).price(1, 0, None, 0.5)
    assert drawn[1.0].memory_bytes == whole.memory_bytes
    assert prices[0.5].memory_bytes < taught.memory_bytes < 2 * prices[0.5].memory_bytes
    assert taught.flops_per_image == drawn[0.5].flops_per_image + prices[0.5].flops_per_image


def test_fjord_draws_from_the_widths_that_a_client_can_hold(registry):
    """Without momentum or decay what no draw has held stays as it was: p is among 1/4 and 1/2 for both clients."""
    train = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}}
    method = made(registry, "fjord", [0.9, 0.5], train=train, rates=RATES)
    start, new, report = one_round(method, [0.9, 0.5], steps=6)
    bias = "model.3.bias"
    assert torch.equal(new[bias] != start[bias], torch.arange(8) < 4)
    assert report.cost[0] == report.cost[1] == method.price(1, 0, None, 0.9)
    again = made(registry, "fjord", [0.9, 0.5], train=train, rates=RATES)
    assert torch.equal(one_round(again, [0.9, 0.5], steps=6)[1][bias], new[bias])


@pytest.mark.parametrize("name", METHODS)
def test_feddyn_odd_rates_and_models_without_known_units_are_told(registry, name):
    with pytest.raises(NotApplicable, match="FedDyn would keep as much as a whole model"):
        made(registry, name, [1.0], train={"regularizer": {"feddyn": 0.1}})
    with pytest.raises(UserError, match=f"{name}: rates.0.: expected a number above 0 and at most 1, got 2"):
        made(registry, name, [1.0], rates=[2, 1])

    class Grouped(nn.Sequential):
        num_features = 6

    with pytest.raises(NotApplicable, match="Grouped cannot be cut to a width"):
        made(registry, name, [1.0], lambda: Grouped(nn.Conv2d(3, 6, 3, groups=3), nn.Flatten()))
