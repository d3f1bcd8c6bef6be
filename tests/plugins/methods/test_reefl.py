"""ReeFL: where its exits stand, what Ree does to tokens, what clients minimise, what is averaged, answered and paid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedbench.errors import NotApplicable, UserError
from fedbench.models import cost
from fedbench.models.backbone import Blocks
from fedbench.models.param_paths import places
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_mixer, tiny_vit
from fedbench.types import Exit
from fedbench_plugins.methods.reefl import Ree, ReeBlocks, RunningTeacher, distillation, evenly, ramp_up

pytestmark = pytest.mark.usefixtures("counted_once")


def depths(layers, count, depth):
    return [exit.depth for exit in evenly(layers, count, depth)]


def test_exits_stand_at_equal_distances_and_after_a_clients_last_layer():
    assert depths(12, 4, 12) == [3, 6, 9, 12] and depths(12, 4, 6) == [3, 6]
    assert depths(12, 4, 10) == [3, 6, 9, 10] and depths(12, 4, 2) == [2]
    assert depths(12, 12, 5) == [1, 2, 3, 4, 5] and depths(2, 4, 2) == [1, 2] and depths(12, 1, 12) == [12]


# --- the model --------------------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    """Four layers of 8 channels in float64, Ree drawn with ten times its deviation."""
    made = ReeBlocks(Blocks(tiny_vit().double()), "raw")
    made.draw(generator(1))
    made.add_classifier("head", 3)
    with torch.no_grad():
        for p in made.ree.parameters():
            p.mul_(10) if p.dim() > 1 else p
    return made


def by_hand(ree: Ree, T):
    """The pre-norm block on tokens (B, T, 8), head by head."""
    W, b = ree.qkv.weight, ree.qkv.bias
    x, heads = F.layer_norm(T, (8,)), []
    for h in range(8):
        q, k, v = (x @ W[16 * i + 2 * h : 16 * i + 2 * h + 2].T + b[16 * i + 2 * h :][:2] for i in range(3))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / 4, dim=2) @ v)
    T = T + torch.cat(heads, dim=2) @ ree.proj.weight.T + ree.proj.bias
    hidden = F.layer_norm(T, (8,)) @ ree.fc1.weight.T + ree.fc1.bias
    return T + F.gelu(hidden) @ ree.fc2.weight.T + ree.fc2.bias


def test_ree_is_a_block_over_the_meta_token_and_the_class_tokens(model):
    ree = model.ree
    assert ree.meta.shape == (1, 8) and ree.positions.shape == (5, 8) and ree.fc1.weight.shape == (10, 8)
    c = torch.randn(2, 3, 8, dtype=torch.float64)
    Z = ree(c)
    assert Z.shape == (2, 4, 8)
    T = torch.cat([ree.meta.expand(2, 1, 8), c], dim=1) + ree.positions[:4]
    torch.testing.assert_close(Z, by_hand(ree, T), rtol=0, atol=1e-12)


@pytest.mark.parametrize("history", ["raw", "modulated"])
def test_the_class_token_is_modulated_after_every_layer_and_read_at_exits(model, history):
    model.history, ree = history, model.ree
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    tokens = model.embed(x)
    first = model.blocks[0](tokens)
    Z1 = ree(first[:, :1])
    second = model.blocks[1](torch.cat([Z1[:, 1:], first[:, 1:]], dim=1))
    below = first[:, :1] if history == "raw" else Z1[:, 1:]
    Z2 = ree(torch.cat([below, second[:, :1]], dim=1))
    weight, bias = model.classifiers["head"].weight, model.classifiers["head"].bias
    expected = [
        F.layer_norm(Z[:, 0] + c[:, 0], (8,)) @ weight.T + bias for Z, c in ((Z1, first), (Z2, second))
    ]  # the second reads what the first has modulated
    found = model(x, range(2), [Exit(1, "head"), Exit(2, "head")])
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    plain = Blocks.forward(model, x, range(2), [Exit(2, "head")])[0]
    assert not torch.allclose(plain, found[1])


def test_ree_stands_outside_the_layers_and_is_drawn_from_the_generator(model):
    shared = {name for name in model.shared() if name.startswith("model.ree.")}
    assert {"model.ree.meta", "model.ree.positions", "model.ree.norm.weight"} <= shared and len(shared) == 16
    model.draw(generator(1))
    drawn = {name: p.detach().clone() for name, p in model.shared().items()}
    model.draw(generator(1))
    assert all(torch.equal(p, drawn[name]) for name, p in model.shared().items())
    assert 0 < drawn["model.ree.positions"].abs().max() <= 2 and drawn["model.ree.positions"].std() < 0.03
    assert not drawn["model.ree.qkv.bias"].any() and (drawn["model.ree.norm1.weight"] == 1).all()


def test_a_backbone_without_class_token_has_no_reefl(registry):
    from timm.models.vision_transformer import VisionTransformer

    pooled = VisionTransformer(
        img_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2, num_classes=0, class_token=False, global_pool="avg"
    )
    for model, kind in ((tiny_mixer(), "MlpMixer"), (pooled, "VisionTransformer")):
        with pytest.raises(NotApplicable, match=f"{kind} has no class token"):
            registry.make("method", {"name": "reefl"}, setup=setup_of(registry, model, [2]))


# --- the loss ---------------------------------------------------------------------------------------------------------

EXITS = np.array([[[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]], [[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]]])  # two exits, two images
Y = [0, 1]


def softmax(o):
    return np.exp(o) / np.exp(o).sum(1, keepdims=True)


def test_the_best_exit_teaches_the_others():
    p, q = softmax(EXITS[0]), softmax(EXITS[1])
    losses = [-np.log(probabilities[[0, 1], Y]).mean() for probabilities in (p, q)]
    divergence = (q * np.log(q / p)).sum(1).mean()  # of the teacher from the student, not the other way round
    assert abs(divergence - (p * np.log(p / q)).sum(1).mean()) > 0.05
    exits = [torch.tensor(o, requires_grad=True) for o in EXITS]
    loss = distillation(exits, torch.tensor(Y), 0.25, best=1)
    assert loss.item() == pytest.approx(sum(losses) + 0.25 * divergence, abs=1e-12)
    loss.backward()
    hot = np.eye(3)[Y]
    np.testing.assert_allclose(exits[0].grad, (p - hot) / 2 + 0.25 * (p - q) / 2, atol=1e-12)
    np.testing.assert_allclose(exits[1].grad, (q - hot) / 2, atol=1e-12)  # the teacher learns nothing from it


def test_one_exit_has_no_teacher():
    one = torch.tensor(EXITS[0])
    assert distillation([one], torch.tensor(Y), 1.0, best=0) == F.cross_entropy(one, torch.tensor(Y))


def test_w_rises_until_its_round():
    assert ramp_up(0, 300) == math.exp(-5) and ramp_up(150, 300) == math.exp(-1.25)
    assert ramp_up(300, 300) == ramp_up(1000, 300) == 1.0


def test_the_teacher_is_the_exit_of_the_lowest_running_loss():
    """run_i <- 0.8 run_i + 0.2 CE_i changes the teacher later than the losses themselves."""
    good, bad, better = (torch.tensor([[a, b]]) for a, b in ((5.0, 0.0), (0.0, 2.0), (0.0, 1.5)))
    y, running = torch.tensor([0]), RunningTeacher(T_w=1)
    small, large, less = (F.cross_entropy(o, y).item() for o in (good, bad, better))
    assert small < less < large and 0.8 * 0.2 * large + 0.2 * less > 0.8 * 0.2 * small + 0.2 * large

    def teacher_of(exits):
        told = running(exits, y, 5)
        (found,) = (i for i in (0, 1) if torch.equal(told, distillation(exits, y, 1.0, i)))
        return found

    assert teacher_of([bad, good]) == 1
    assert running.run == pytest.approx([0.2 * large, 0.2 * small])
    assert teacher_of([better, bad]) == 1  # the first is better now, and was worse before
    assert running.run == pytest.approx([0.16 * large + 0.2 * less, 0.16 * small + 0.2 * large])
    running.forget()
    assert teacher_of([better, bad]) == 0


# --- the method -------------------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch):
    """Where nobody asks what a round costs."""
    monkeypatch.setattr(cost, "measure", lambda *given, **more: None)


def made(registry, capacities, **options):
    setup = setup_of(registry, tiny_vit(), capacities)
    return setup, registry.make("method", {"name": "reefl", **options}, setup=setup)


def test_every_tensor_is_the_mean_of_those_who_hold_it_and_others_keep(free, registry):
    _, method = made(registry, [3, 1])
    start = method.init(generator(0))
    cohort = cohort_of([3, 1], examples=[1, 3])
    state, report = method.round(start, 0, cohort, generator(0, 0))
    up, name = report.uploads, "attn.proj.lora_B"
    for place in ("model.ree.positions", "model.ree.meta", "head.weight"):
        rows = up.shared[place]
        assert len(rows) == 2
        torch.testing.assert_close(state["shared"][place], 0.25 * rows[0] + 0.75 * rows[1])
        assert not torch.equal(rows[0], rows[1])
    torch.testing.assert_close(state["r"][0][name], 0.25 * up.r[0][name][0] + 0.75 * up.r[0][name][1])
    torch.testing.assert_close(state["r"][2][name], up.r[2][name][0])
    assert torch.equal(state["r"][3][name], start["r"][3][name]) and len(up.r[3][name]) == 0
    assert [[exit.depth for exit in exits] for exits in report.plan.exits] == [[1, 2, 3], [1]]
    assert state["memory"]["depth"] == 3


def test_a_client_of_one_exit_trains_on_its_cross_entropy_alone(free, registry):
    """Whatever w is: the first round of a short ramp and of a long one are the same for it, and not for others."""
    for capacity, alike in ((1, True), (3, False)):
        states = []
        for ramp_rounds in (1, 300):
            _, method = made(registry, [capacity], ramp_rounds=ramp_rounds)
            states.append(method.round(method.init(generator(0)), 5, cohort_of([capacity]), generator(0, 5))[0])
        one, two = (dict(places(state)) for state in states)
        assert all(torch.equal(value, two[place]) for place, value in one.items()) == alike


def test_another_clients_losses_choose_no_teacher(free, registry):
    """A client's round does not depend on who came before it."""
    _, method = made(registry, [4, 4])
    start = method.init(generator(0))
    both = method.round(start, 9, cohort_of([4, 4]), generator(0, 9))[1].uploads
    alone = method.round(start, 9, cohort_of([4], ids=[1]), generator(0, 9))[1].uploads
    for name, rows in both.shared.items():
        assert torch.equal(rows[1], alone.shared[name][0])


def test_the_model_answers_as_deep_as_a_client_has_come_back(free, registry):
    setup, method = made(registry, [4, 2], each=True)
    cohort = replace(cohort_of([4, 2]), arrives=torch.tensor([False, True]))
    state, _ = method.round(method.init(generator(0)), 0, cohort, generator(0, 0))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    predict = method.predictor(state)
    found = predict(x)
    assert list(found) == ["last", "ensemble", "exit1"] and predict.last.depth == 2
    torch.testing.assert_close(found["ensemble"], (found["last"] + found["exit1"]) / 2)
    head = setup.backbone.classifiers["head"]
    torch.testing.assert_close(head(predict.features(x)), found["last"], rtol=0, atol=0)
    _, method = made(registry, [4], answer="ensemble")
    assert list(method.predictor(method.init(generator(0)))(x)) == ["ensemble", "last"]


def test_clipping_by_value_takes_the_place_of_clipping_by_norm(free, registry):
    """With momentum and decay off, no coordinate moves by more than lr times the value in a step, and many by that."""
    plain = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}, "clip": 1e-9}
    setup = setup_of(registry, tiny_vit(), [4], **plain)
    method = registry.make("method", {"name": "reefl", "clip_value": 0.01}, setup=setup)
    start = method.init(generator(0))
    state, _ = method.round(start, 0, cohort_of([4], steps=1), generator(0, 0))
    old, new = dict(places(start)), dict(places(state))
    moves = torch.cat([(new[place] - value).flatten().abs() for place, value in old.items()])
    assert moves.max().item() == pytest.approx(0.01, abs=1e-12)
    assert (moves > 0.00999).sum() > 10 and ((moves > 1e-4) & (moves < 0.00999)).sum() > 10
    assert not any(p._backward_hooks for p in setup.backbone.parameters())


def test_a_deeper_client_pays_more_and_ree_is_sent_beside_the_adapters(registry):
    setup, method = made(registry, [4])
    costs = [method.cost(depth, 0) for depth in (1, 2, 3, 4)]
    for what in ("flops_per_image", "bytes_down", "bytes_up", "memory_bytes"):
        values = [getattr(cost, what) for cost in costs]
        assert values == sorted(set(values))
    steps = np.diff([cost.flops_per_image for cost in costs])
    assert (np.diff(steps) > 0).all()  # Ree reads one token more at every layer
    model = setup.backbone.model
    layer = sum(p.nbytes for p in model.blocks[0].parameters() if p.requires_grad)
    sent = {sent.what: sent.up for sent in costs[1].sent}
    assert sent["adapters"] == 2 * layer + sum(p.nbytes for p in model.ree.parameters())
    assert sent["classifiers"] == 8 * (3 * 8 + 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": "first"}, 'answer: expected "ensemble" or "last", got "first"'),
        ({"history": "none"}, 'history: expected "raw" or "modulated", got "none"'),
        ({"exits": 0}, "exits: expected a whole number of at least 1, got 0"),
        ({"ramp_rounds": 0}, "ramp_rounds: expected a whole number of at least 1, or null, got 0"),
        ({"clip_value": 0}, "clip_value: expected a number above 0, or null, got 0"),
    ],
)
def test_options_that_mean_nothing_are_refused(registry, options, message):
    with pytest.raises(UserError, match=message):
        made(registry, [4], **options)


def test_the_reference_profile_is_the_released_codes(registry):
    profile = registry.catalogue.components["method"]["reefl"].profiles["reference"]
    mean = {"name": "weighted_mean", "weights": "examples"}
    assert profile == {"history": "modulated", "ramp_rounds": 300, "clip_value": 1.0, "aggregator": mean}
