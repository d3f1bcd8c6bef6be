"""Split learning of adapters: what it refuses, who changes what in a round, and what it costs by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import timm
import torch
from test_split_cost import BLOCK, BLOCK_BACK, HEAD, OF_BLOCK, OF_HEAD, PATCHES, matmul
from uncut import C, D, H, L, T

from fedbench.errors import NotApplicable, UserError
from fedbench.families.split import split, split_adapters
from fedbench.models.backbone import Blocks
from fedbench.models.param_paths import at_classifier, layer_of, places
from fedbench.seeding import generator
from fedbench.testing.setups import check_state, cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

R = 2
BYTES = 8  # of a number of the tiny model
LORA = {"name": "lora", "rank": R, "alpha": 2.0}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}


def made(registry, adapter=LORA, **options):
    setup = setup_of(registry, tiny_vit(), [L] * 3, adapter, optimizer=SGD, clip=1.0)
    method = split_adapters(setup, **options)
    return method, method.init(generator(0))


def sides(state, c):
    values, found = dict(places(state)), ({}, {})
    for place, value in values.items():
        j = layer_of(place)
        found[at_classifier(place) if j is None else j >= c][place] = value
    return found


def apart(one, other):
    return {place for place in one if not torch.equal(one[place], other[place])}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"client_layers": L}, f"client_layers is {L}, but .* take at most {L - 1}"),
        ({"client_layers": 0}, "client_layers: expected a whole number of at least 1, or null, got 0"),
        ({"server": "alone"}, 'server: expected "in_turn" or "together", got "alone"'),
    ],
)
def test_what_means_nothing_is_refused(registry, options, told):
    with pytest.raises(UserError, match=told):
        made(registry, **options)


NOT_APPLICABLE = {
    "regulari[sz]er": {"regularizer": {"fedprox": 0.1}},
    "train.uploads": {"uploads": {"codec": "int8"}},
    "train.micro_batch, train.checkpointing": {"micro_batch": 2, "checkpointing": True},
}


@pytest.mark.parametrize("told", NOT_APPLICABLE)
def test_what_a_cut_model_cannot_have_is_not_applicable(registry, told):
    with pytest.raises(NotApplicable, match=told):
        split_adapters(setup_of(registry, tiny_vit(), [L], LORA, **NOT_APPLICABLE[told]))
    with pytest.raises(NotApplicable, match=told):
        split(setup_of(registry, tiny_vit(), [L], **NOT_APPLICABLE[told]))


def test_an_aggregator_that_adds_to_frozen_weights_is_not_applicable(registry):
    method, state = made(registry, client_layers=2, aggregator="exact_mean")
    with pytest.raises(NotApplicable, match="adds to frozen weights"):
        method.round(state, 0, cohort_of([L] * 3), generator(0, 0))


def test_no_graph_goes_on_from_round_to_round_and_nobody_changes_nothing(registry):
    method, state = made(registry, client_layers=2)
    state, report = method.round(state, 0, cohort_of([L] * 3), generator(0, 0))
    check_state(state)
    assert not any(rows.requires_grad for _, rows in places(vars(report.uploads)))
    assert method.round(state, 1, cohort_of([L] * 3).only([]), generator(0, 1))[0] is state


def test_adapters_behind_the_last_layer_are_the_servers(registry):
    """Those of a pooling by attention: clients neither train, hold nor send them."""

    def made(targets):
        shape = {"img_size": 8, "patch_size": 4, "embed_dim": D, "depth": L, "num_heads": 2, "num_classes": 0}
        model = timm.models.VisionTransformer(**shape, mlp_ratio=2.0, global_pool="map", class_token=False)
        return split_adapters(setup_of(registry, model, [L] * 3, {**LORA, "targets": targets}), client_layers=2)

    plain, pooling = made(["attn.proj"]), made(["attn.proj", "attn_pool.proj"])
    costs = [method.cost(L, 0) for method in (plain, pooling)]
    assert costs[0].sent == costs[1].sent and costs[0].memory_bytes == costs[1].memory_bytes
    assert costs[0].server.memory_bytes < costs[1].server.memory_bytes
    state = pooling.init(generator(0))
    new, report = pooling.round(state, 0, cohort_of([L] * 3), generator(0, 0))
    assert all(len(rows) == 0 for rows in report.uploads.shared.values())
    assert "shared/model.attn_pool.proj.lora_B" in apart(dict(places(state)), dict(places(new)))


@pytest.mark.parametrize("server", ["in_turn", "together"])
def test_a_server_without_a_rate_learns_nothing_and_clients_do(registry, server):
    method, state = made(registry, client_layers=2, server=server, server_lr=0)
    new, _ = method.round(state, 0, cohort_of([L] * 3, [4, 6, 2]), generator(0, 0))
    before, after = sides(state, 2), sides(new, 2)
    assert apart(before[0], after[0]) and not apart(before[1], after[1])


@pytest.mark.parametrize("server", ["in_turn", "together"])
def test_a_client_that_does_not_arrive_changes_neither_side(registry, server):
    def of(arrives, labels):
        method, state = made(registry, client_layers=2, server=server)
        cohort = replace(cohort_of([L] * 3, [4, 6, 2]), arrives=torch.tensor(arrives))

        def batches(n):
            return ((x, y if n else labels(y)) for x, y in cohort.batches(n))

        changed = replace(cohort, batches=batches)
        return dict(places(method.round(state, 0, changed, generator(0, 0))[0])), dict(places(state))

    lost, other = (of([False, True, True], labels)[0] for labels in (lambda y: y, lambda y: (y + 1) % C))
    assert not apart(lost, other)
    here, there = (of([True, True, True], labels)[0] for labels in (lambda y: y, lambda y: (y + 1) % C))
    assert apart(here, there)
    assert not apart(*of([False, False, False], lambda y: y))


@pytest.mark.parametrize(("options", "moves"), [({}, False), ({"server_lr": 0.1}, True)])
@pytest.mark.parametrize("adapter", [LORA, {"name": "vpt", "prompts": 2}])  # prompts leave the server its classifier
def test_the_clients_rate_for_classifiers_is_the_servers_too_unless_it_has_its_own(registry, options, moves, adapter):
    setup = setup_of(registry, tiny_vit(), [L] * 3, adapter, optimizer={**SGD, "head_lr": 1e-30}, clip=1.0)
    method = split_adapters(setup, client_layers=2, **options)
    state = method.init(generator(0))
    new, _ = method.round(state, 0, cohort_of([L] * 3, [4, 6, 2]), generator(0, 0))
    before, after = sides(state, 2)[1], sides(new, 2)[1]
    far = {place: (before[place] - after[place]).abs().max() for place in before}
    assert all((far[place] > 1e-20) == (moves or not at_classifier(place)) for place in far if "lora_A" not in place)


def test_moments_of_the_server_last_and_those_of_clients_do_not(registry):
    """A round that goes on from a state is the same round as one that never stopped."""
    cohort = cohort_of([L] * 3, [4, 6, 2])
    whole, state = made(registry, client_layers=2)
    for t in range(2):
        state, _ = whole.round(state, t, cohort, generator(0, t))
    halved, other = made(registry, client_layers=2)
    other, _ = halved.round(other, 0, cohort, generator(0, 0))
    again, _ = made(registry, client_layers=2)
    resumed, _ = again.round(other, 1, cohort, generator(0, 1))
    assert other["server"] and not apart(dict(places(state)), dict(places(resumed)))
    forgetful, _ = again.round({**other, "server": {}}, 1, cohort, generator(0, 1))
    assert apart(dict(places(state)), dict(places(forgetful)))


def test_bytes_and_flops_equal_a_count_by_hand(registry):
    """With LoRA on the last layers of attention and MLP, two of four layers on the client, images of 8 x 8."""
    c = 2
    setup = replace(setup_of(registry, tiny_vit(), [L], LORA, optimizer=SGD), backbone=Blocks(tiny_vit()))
    method = split_adapters(setup, client_layers=c)
    cost = method.cost(L, 0)
    adapter = R * (D + D) + R * (H + D)
    low = matmul(T, D, R) + matmul(T, R, D) + matmul(T, H, R) + matmul(T, R, D)
    sent = {one.what: one for one in cost.sent}
    assert cost.bytes_down == BYTES * (OF_HEAD + c * OF_BLOCK + c * adapter)
    assert cost.bytes_up == BYTES * c * adapter
    assert sent["features"].up_per_image == BYTES * T * D + 8 and sent["gradients"].down_per_image == BYTES * T * D
    # No gradient goes to the images: below the first adapter, of attention's last layer, nothing is gone back through.
    first = BLOCK_BACK - (2 * 2 * matmul(T, D, T) + matmul(T, D, 3 * D) + matmul(T, D, D)) - matmul(T, D, R)
    assert cost.flops_per_image == PATCHES + c * (BLOCK + low) + (c - 1) * BLOCK_BACK + first + c * 2 * low
    assert cost.server.flops_per_image == (L - c) * (BLOCK + BLOCK_BACK + 3 * low) + 3 * HEAD
    assert method.running(None) is None and list(method.holds(L, 0)) == [0, 1]
