"""A method's own optimiser, and its own start where the suite's backbone is pre-trained."""

import re

import pytest
import torch

from fedbench.errors import UserError
from fedbench.families.split import split
from fedbench.families.split.server import with_optimizer
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture(scope="module")
def registry():
    return Registry()


def made(registry, name: str, **options):
    return registry.make("method", {"name": name, **options}, setup=setup_of(registry, tiny_vit(), [1, 1]))


def test_none_is_the_suites(registry):
    setup = setup_of(registry, tiny_vit(), [1])
    assert with_optimizer(setup, None) is setup
    own = with_optimizer(setup, {"name": "adamw", "lr": 0.5})
    assert own.train["optimizer"] == {"name": "adamw", "lr": 0.5, "weight_decay": 0.0}
    assert {**own.train, "optimizer": setup.train["optimizer"]} == setup.train


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("adamw", "optimizer: expected a mapping {name"),
        ({"name": "adam", "lr": 1}, "optimizer.name: expected"),
        ({"name": "sgd"}, 'optimizer: needs "lr"'),
        ({"name": "sgd", "lr": 0}, "optimizer.lr: expected a number above 0"),
        ({"name": "sgd", "lr": True}, "optimizer.lr: expected a number above 0"),
        ({"name": "sgd", "lr": 1, "momentum": 1}, "optimizer.momentum: expected a number"),
        ({"name": "adamw", "lr": 1, "momentum": 0.9}, "adamw has no 'momentum'"),
        ({"name": "adamw", "lr": 1, "weight_decay": float("inf")}, "weight_decay: expected a number of at least 0"),
    ],
)
def test_what_is_no_optimiser_is_refused(registry, wrong, told):
    with pytest.raises(UserError, match=told):
        made(registry, "fedv", optimizer=wrong)


@pytest.mark.parametrize(
    ("method", "wrong", "told"),
    [
        ("fedv", "adamw", "server_optimizer: expected a mapping {name"),
        ("festa", {"name": "adam"}, "server_optimizer.name: expected"),
        ("fedv", {"name": "adamw", "lr": 1e-3}, 'server_optimizer.lr: unknown key "lr"'),
        ("festa", {"name": "adamw", "momentum": 0.9}, "server_optimizer: adamw has no 'momentum'"),
        ("festa", {"name": "sgd", "momentum": 1}, "server_optimizer.momentum: expected a number"),
    ],
)
def test_what_is_no_optimiser_of_a_server_is_refused(registry, method, wrong, told):
    with pytest.raises(UserError, match=re.escape(told)):
        made(registry, method, server_optimizer=wrong)


def test_a_server_that_learns_from_losses_has_none(registry):
    with pytest.raises(UserError, match="server_optimizer: a server that learns from losses"):
        split(setup_of(registry, tiny_vit(), [1]), learns="losses", server_optimizer={"name": "adamw"})


def test_a_server_without_a_rate_keeps_no_moments(registry):
    state = made(registry, "fedv", server_lr=0, server_optimizer={"name": "adamw"}).init(generator(0))
    assert "server" not in state


def test_clients_step_with_their_own_optimiser(registry):
    """AdamW's first step is lr in every weight, whatever the gradient's size: two rates differ by their difference."""

    def after(lr: float) -> torch.Tensor:
        method = made(registry, "fedv", optimizer={"name": "adamw", "lr": lr}, server_lr=0, fedround=1)
        cohort = cohort_of([1])
        cohort.steps.fill_(1)
        state, _ = method.round(method.init(generator(0)), 0, cohort, generator(0, 0))
        return state["shared"]["head.bias"]

    step = (after(1e-3) - after(3e-3)).abs()
    torch.testing.assert_close(step, torch.full_like(step, 2e-3), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("name", "option"), [("fedv", "encoder"), ("fedavg", "body"), ("ditto", "body")])
def test_a_start_of_its_own_is_drawn_from_the_seed_alone(registry, name, option):
    """Random weights do not depend on the backbone's, and are those of a layer that is not trained yet."""

    def weights(scale: float, how: str) -> torch.Tensor:
        torch.manual_seed(int(scale))
        model = tiny_vit()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        setup = setup_of(registry, model, [1])
        state = registry.make("method", {"name": name, option: how}, setup=setup).init(generator(0))
        return state.get("encoder", state["shared"])["model.blocks.0.attn.proj.weight"]

    torch.testing.assert_close(weights(1, "random"), weights(3, "random"), rtol=0, atol=0)
    assert not weights(1, "pretrained").equal(weights(3, "pretrained"))
    assert weights(1, "random").std() > 0
    with pytest.raises(UserError, match=f'{option}: expected "pretrained" or "random", got "none"'):
        weights(1, "none")
