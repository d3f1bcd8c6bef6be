"""FLOPs, bytes and memory against counts made by hand."""

import functools

import pytest
import torch

from fedbench.families.layerwise import head_at_end
from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import Blocks, body_of
from fedbench.models.cost import Shape, _measure, layer_costs, per_image, pricing, whole
from fedbench.models.counting import count, one_image
from fedbench.testing.setups import TRAIN, tiny_mixer, tiny_vit
from fedbench.types import ClientCost, Exit, Sent, ServerCost
from fedbench_plugins.objectives import cross_entropy, mutual_kl

pytestmark = pytest.mark.usefixtures("counted_once")

# The tiny ViT: T tokens of D channels, an MLP of H, LoRA of rank R on attn.proj and mlp.fc2, C classes.
T, D, H, R, C = 5, 8, 16, 2, 3


@pytest.fixture
def model(registry):
    blocks = Blocks(tiny_vit())
    registry.make("adapter", {"name": "lora", "rank": R, "alpha": 4})(blocks)
    for name in ("head", "exit1"):
        blocks.add_classifier(name, C)
    return blocks


def cost(model, depth, **train):
    return pricing(model, cross_entropy, {**TRAIN, **train}, 8)(whole(depth, head_at_end(depth)))


def matmul(m, k, n):
    return 2 * m * k * n


def block_forward():
    attention = 2 * matmul(T, D, T)  # scores and their product with the values, all heads together
    dense = matmul(T, D, 3 * D) + matmul(T, D, D) + matmul(T, D, H) + matmul(T, H, D)
    lora = matmul(T, D, R) + matmul(T, R, D) + matmul(T, H, R) + matmul(T, R, D)
    return attention + dense + lora


def block_backward(first):
    """Gradients of inputs; of weights only where they are trained. Below the first adapter nothing is needed:
    not the scores, not qkv, and neither the input of the first projection nor what would only lead there."""
    mlp = matmul(T, D, H) + matmul(T, H, D)
    lora_mlp = 2 * (matmul(T, H, R) + matmul(T, R, D))
    lora_projection_weights = matmul(T, D, R) + matmul(T, R, D)
    lora_projection_inner = matmul(T, R, D)  # through B, towards A
    backward = mlp + lora_mlp + lora_projection_weights + lora_projection_inner
    if first:
        return backward
    to_projection_input = matmul(T, D, D) + matmul(T, R, D)
    attention = 4 * matmul(T, D, T)
    return backward + to_projection_input + attention + matmul(T, D, 3 * D)


def test_flops_of_a_client_equal_a_count_by_hand(model):
    patches = matmul(4, 3 * 4 * 4, D)
    head = 3 * matmul(1, D, C)  # forward, weight gradient, input gradient
    for depth in (1, 2, 4):
        by_hand = patches + head + depth * block_forward() + block_backward(True) + (depth - 1) * block_backward(False)
        assert cost(model, depth).flops_per_image == by_hand


def test_a_layer_costs_what_one_more_of_it_adds(model):
    per_layer = block_forward() + block_backward(False)
    assert layer_costs(model, 8).tolist() == [per_layer] * 4


def test_bytes_down_are_frozen_layers_adapters_and_head_and_up_what_was_trained(model):
    lora = 4 * (R * (D + D) + R * (H + D))
    head = 4 * (C * D + C)
    for depth in (1, 4):
        c = cost(model, depth)
        assert c.bytes_up == depth * lora + head
        assert c.bytes_down == c.bytes_up + model.frozen_bytes(depth)


def test_what_crosses_is_named(model):
    lora, head = 4 * (R * (D + D) + R * (H + D)), 4 * (C * D + C)
    expected = [("backbone", model.frozen_bytes(2), 0), ("adapters", 2 * lora, 2 * lora), ("classifiers", head, head)]
    assert cost(model, 2).exchange(images=100, last=4) == expected
    assert cost(model, 2).exchange(100, 4, arrives=False) == [(what, down, 0) for what, down, _ in expected]
    assert ClientCost(1, 5, 3, 1).exchange(9, 1) == [("weights", 5, 3)]


def test_steps_add_to_what_crosses_also_where_the_work_is_lost():
    """Features go up with every image, a second pass over the last batch sends more; a lost client never got there."""
    sent = (Sent("features", up_per_image=7, down_per_image=2, down_last=3), Sent("losses", up=8))
    price = ClientCost(1, 0, 8, 1, sent, ServerCost(flops_per_image=10, flops_last=4))
    assert price.exchange(images=20, last=5) == [("features", 2 * 20 + 3 * 5, 7 * 20), ("losses", 0, 8)]
    assert price.exchange(20, 5, arrives=False) == [("features", 2 * 20, 7 * 20), ("losses", 0, 0)]
    assert price.server.flops(20, 5) == 220


def test_every_exit_is_sent_with_its_classifier(model):
    exits = [Exit(1, "exit1"), Exit(4, "head")]
    more = pricing(model, cross_entropy, TRAIN, 8)(whole(4, exits))
    assert more.bytes_up - cost(model, 4).bytes_up == 4 * (C * D + C)


def test_memory_grows_with_depth_batch_and_optimiser_state(model):
    one, deep = cost(model, 1).memory_bytes, cost(model, 4).memory_bytes
    assert deep > one
    activations = (cost(model, 4, batch_size=8).memory_bytes - deep) / 4
    assert activations > 4 * T * D * 4  # at least one float32 feature map a layer
    adamw = cost(model, 4, optimizer={"name": "adamw"})
    plain = cost(model, 4, optimizer={"name": "sgd", "momentum": 0.0})
    assert adamw.memory_bytes - deep == deep - plain.memory_bytes == cost(model, 4).bytes_up


def test_a_regulariser_takes_memory_and_sends_nothing(model):
    """FedProx keeps where the client started; FedDyn also its g_n."""
    plain, none = cost(model, 4), cost(model, 4, regularizer=None)
    fedprox, feddyn = (cost(model, 4, regularizer={name: 0.1}) for name in ("fedprox", "feddyn"))
    assert none == plain
    assert fedprox.memory_bytes - plain.memory_bytes == plain.bytes_up
    assert feddyn.memory_bytes - plain.memory_bytes == 2 * plain.bytes_up
    assert (feddyn.bytes_down, feddyn.bytes_up) == (plain.bytes_down, plain.bytes_up)


@pytest.mark.parametrize(
    "adapter",
    [
        {"name": "bitfit"},
        {"name": "full"},
        {"name": "bottleneck"},
        {"name": "vpt", "prompts": 3, "deep": True},
    ],
    ids=["bitfit", "full", "bottleneck", "vpt deep"],
)
def test_deep_models_with_any_adapter_cost_what_measuring_them_says(registry, adapter):
    blocks = Blocks(tiny_vit())
    registry.make("adapter", adapter)(blocks)
    blocks.add_classifier("head", 3)
    given = (blocks, whole(4, head_at_end(4)), cross_entropy, 8)
    assert per_image(Shape(given[0]), *given[1:]) == _measure(*given)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        *((tiny_vit, targets) for targets in ("reference", ["blocks.2.mlp.fc1"], None)),
        (tiny_mixer, ["mlp_tokens.fc1"]),
    ],
)
def test_deep_models_cost_what_measuring_them_says(registry, model, targets):
    blocks = Blocks(model())
    if targets:
        registry.make("adapter", {"name": "lora", "rank": 2, "targets": targets})(blocks)
    for name in ("head", "a", "b"):
        blocks.add_classifier(name, 3)
    for objective, depths in ((cross_entropy, [4]), (functools.partial(mutual_kl, ramp_rounds=3), [1, 3, 4])):
        exits = [Exit(depth, name) for depth, name in zip(depths, ("head", "a", "b"), strict=False)]
        given = (blocks, whole(4, exits), objective, 8)
        assert per_image(Shape(given[0]), *given[1:]) == _measure(*given), depths


def test_what_dropout_makes_is_kept_too(registry):
    """As autograd keeps it of a pass with masks drawn; what is found of one rate is not taken for another's."""
    found, exits = {}, head_at_end(2)
    for rate in (0.0, 0.1, 0.5):
        blocks = body_of(tiny_vit(), "tiny")
        registry.make("adapter", {"name": "lora", "rank": R, "dropout": rate})(blocks)
        blocks.add_classifier("head", C)
        found[rate] = per_image(Shape(blocks), whole(2, exits), cross_entropy, 8)[1]
        seed_dropout(blocks, torch.Generator().manual_seed(0))
        for block in blocks.blocks:
            block.attn.fused_attn = False
        x, y = one_image(blocks, 8)
        made = count(blocks, functools.partial(step, blocks, x, y, exits))[1]
        assert made == found[rate]
    masks = 4 * (T * H + T * D + T * H)  # of the inputs of mlp.fc2, attn.proj and mlp.fc2 that have gradients
    assert found[0.5] == found[0.1] == found[0.0] + masks


def step(blocks, x, y, exits):
    cross_entropy(blocks(x, range(2), exits), y, 0).backward()


def test_who_trains_nothing_below_its_classifier_needs_a_pass_through_frozen_layers(model):
    """Most of it in attention: the stream, its norm, q, k, v, q once more scaled, scores before and after softmax; the
    same whatever the depth."""
    probe = Blocks(tiny_vit())
    probe.requires_grad_(False)
    probe.add_classifier("head", C)
    one, deep = (cost(probe, depth, batch_size=1) for depth in (1, 4))
    at_once = one.workspace_bytes + per_image(Shape(probe), whole(1, head_at_end(1)), cross_entropy, 8)[1]
    values, heads = at_once / 4 - 3 * 8 * 8, 2  # of float32, without the image
    assert 1 <= values / (T * (D + D + 3 * D + D) + 2 * heads * T * T) <= 1.15
    assert deep.workspace_bytes == one.workspace_bytes and deep.needed_bytes > one.needed_bytes
    assert cost(probe, 1, batch_size=6).workspace_bytes == 6 * one.workspace_bytes
    assert cost(model, 4).workspace_bytes == 0  # whose lowest layer is trained
