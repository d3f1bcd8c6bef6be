"""What a client of forward passes, stages or few layers a batch is charged, against one built by hand."""

from __future__ import annotations

import pytest
import torch
from test_memory import images, needed, peak_of, real
from torch.func import functional_call, jvp
from torch.nn import functional as F

from fedbench.models.adapter import seed_dropout
from fedbench.models.counting import to_answer, to_run
from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Exit

SUITE = """
suite: memory
defaults:
  data: {name: strokes6, image_size: 32, classes: 10, train_per_class: 2, test_per_class: 1}
  train: {rounds: 4, max_steps: 1, batch_size: 32}
scenarios:
  micro: {backbone: micro_vit}
  texts:
    backbone: micro_bert
    data: {name: phrases6, classes: 10, train_per_class: 2, test_per_class: 1, max_length: 16}
methods: [fedkseed, spry, fwdllm, alllarge, block_stages, batch_layers, fedra]
"""


@pytest.fixture(scope="module")
def trials(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "memory.yaml"
    path.write_text(SUITE)
    found = {}
    for cell in load(path, registry).points():
        with torch.device("meta"):
            found[cell.scenario, cell.method] = cell.config, Simulation(cell.config, registry, "meta")
    return found


def cost_of(trial):
    (found,) = trial.method.prices(trial.federation.cohort(0).only([0]), 0)
    return found


def client_of(config, model):
    """(its model, what it trains, its images, how it answers them)."""
    twin, (x, y) = real(model, config), images(config)
    L = twin.num_layers
    trained = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    return twin, trained, (x, y), lambda w, own=twin: functional_call(own, w, (x, range(L), [Exit(L, "head")]))


def two_passes(config, model):
    """MeZO's step: move, look, move, look, move back, step; a direction is there a tensor at a time."""
    _, trained, (_, y), answer = client_of(config, model)

    def move(scale):
        torch.manual_seed(0)
        for p in trained.values():
            p.add_(torch.randn_like(p), alpha=scale)

    @torch.no_grad()
    def step():
        losses = []
        for scale in (1.0, -2.0):
            move(scale)
            losses.append(F.cross_entropy(answer({})[0], y).item())
        move(1.0)
        move(-0.1 * (losses[0] - losses[1]))

    return step


def forward_mode(config, model):
    """A pass of forward mode along v, the gradient slope v, and a step with momentum, which is there from before."""
    _, trained, (_, y), answer = client_of(config, model)
    optimizer = torch.optim.SGD(trained.values(), lr=0.1, momentum=0.9)

    def step():
        with torch.no_grad():
            v = {name: torch.randn_like(p) for name, p in trained.items()}
            w = {name: p.detach() for name, p in trained.items()}
            values, tangents = jvp(answer, (w,), (v,))
        leaf = values[0].detach().requires_grad_()
        (g,) = torch.autograd.grad(F.cross_entropy(leaf, y), leaf)
        for name, p in trained.items():
            p.grad = float((g * tangents[0]).sum()) * v[name]
        optimizer.step()
        optimizer.zero_grad()

    return step


def two_looks(config, model):
    """A direction is drawn and looked along both ways from where the round began; the weights then hold what is sent:
    the estimate, away from the start."""
    _, trained, (_, y), answer = client_of(config, model)

    @torch.no_grad()
    def step():
        begun = {name: p.clone() for name, p in trained.items()}
        total = {name: torch.zeros_like(p) for name, p in trained.items()}
        v = {name: torch.randn_like(p) for name, p in trained.items()}
        losses = []
        for sign in (1, -1):
            for name, p in trained.items():
                p.copy_(begun[name]).add_(v[name], alpha=sign * 0.01)
            losses.append(F.cross_entropy(answer({})[0], y).item())
        for name, p in trained.items():
            total[name].add_(v[name], alpha=(losses[0] - losses[1]) / 0.02)
            p.copy_(begun[name]).sub_(total[name])

    return step


BY_HAND = {"fedkseed": (two_passes, 0), "spry": (forward_mode, 1), "fwdllm": (two_looks, 1)}


@pytest.mark.parametrize("scenario", ["micro", "texts"])
@pytest.mark.parametrize("method", BY_HAND)
def test_a_client_built_by_hand_needs_what_is_charged(trials, scenario, method):
    """SPRY's keeps momentum from batch to batch, and FwdLLM's the last gradient, to choose directions by."""
    config, trial = trials[scenario, method]
    cost, model, (steps, kept) = cost_of(trial), trial.model, BY_HAND[method]
    step = steps(config, model)
    step()  # momentum is there from the second one on
    found = sum(p.nbytes for p in model.model.parameters()) + sum(p.nbytes for p in model.classifiers.parameters())
    found += kept * sum(p.nbytes for p in model.parameters() if p.requires_grad)
    found += images(config)[0].nbytes + peak_of(step)
    assert 0.93 < found / cost.needed_bytes < 1.05, (found, cost.needed_bytes)


def backward_client(config, model, there, trained, runs) -> int:
    """Bytes of a client that has the first layers, as many as `there`, trains the adapters of some and the classifier,
    and runs some in the batch that is looked at. Of those that it trains and does not run, it has gradients and
    momentum of another batch."""
    twin, (x, y) = real(model, config), images(config)
    adapters = [list(twin.r(j).values()) for j in range(there)]
    for j in set(range(twin.num_layers)) - {*trained}:
        for p in twin.r(j).values():
            p.requires_grad_(False)
    classifier = list(twin.classifiers.parameters())
    weights = [p for j in runs if j in trained for p in adapters[j]] + classifier
    resting = sum(p.nbytes for j in trained if j not in runs for p in adapters[j])
    held = sum(p.nbytes for p in (*(p for own in adapters for p in own), *classifier))
    resident = twin.frozen_bytes(there) + held + 2 * resting
    seed_dropout(twin, torch.Generator().manual_seed(0))
    return needed(config, weights, lambda: F.cross_entropy(twin(x, runs, [Exit(len(runs), "head")])[0], y), resident)


@pytest.mark.parametrize("scenario", ["micro", "texts"])
def test_clients_of_stages_and_of_few_layers_a_batch_need_what_is_charged(trials, scenario):
    """The passing tensors of one layer's backward pass are not charged, and weigh more the fewer layers there are: as
    of any client, up to a ninth of the memory where three of twelve are trained."""
    config, staged = trials[scenario, "block_stages"]
    ratios = {}
    for t in range(4):
        found = backward_client(config, staged.model, 3 * (t + 1), range(3 * t, 3 * (t + 1)), range(3 * (t + 1)))
        ratios["stage", t] = found / staged.method.price(12, t).needed_bytes
    config, dropping = trials[scenario, "batch_layers"]
    for runs in ([1, 4, 11], [*range(0, 12, 2)], [*range(12)]):
        found = backward_client(config, dropping.model, 12, range(12), runs)
        ratios["batch", len(runs)] = found / dropping.method.price(len(runs), 0).needed_bytes
    assert all(0.93 < ratio < 1.12 for ratio in ratios.values()), ratios
    assert all(0.93 < ratios["batch", few] < 1.05 for few in (6, 12)), ratios


@pytest.mark.parametrize("scenario", ["micro", "texts"])
def test_forward_passes_alone_need_hardly_more_than_inference(trials, scenario):
    """At most 1.1 times what running the model on the same batch needs, and far less than a backward pass."""
    config, trial = trials[scenario, "fedkseed"]
    model, L, size = trial.model, trial.model.num_layers, trial.federated.train.size
    exits = [Exit(L, "head")]
    one = to_answer(model, lambda copied, x: copied(x, range(L), exits), size)
    inference = to_run(model, L, exits, size) + 31 * one
    assert inference <= cost_of(trial).needed_bytes <= 1.1 * inference
    assert cost_of(trial).needed_bytes < 0.5 * cost_of(trials[scenario, "alllarge"][1]).needed_bytes


def test_flops_and_bytes_are_those_of_forward_passes_and_scalars(trials):
    backward, forward = (cost_of(trials["micro", method][1]) for method in ("alllarge", "fedkseed"))
    assert forward.bytes_up == 4 * 4096 and forward.sent[-1].what == "scalars"
    assert forward.bytes_down - 4 * 4096 == sum(one.down for one in backward.sent if one.what == "backbone")
    assert 0.8 < forward.flops_per_image / backward.flops_per_image < 1.1  # two passes; training is about two
    fwdllm = cost_of(trials["micro", "fwdllm"][1])
    tuned = backward.bytes_up
    assert fwdllm.bytes_up == tuned and fwdllm.bytes_down == backward.bytes_down + tuned
    assert [one.what for one in fwdllm.sent if one.up] == ["gradients"]


def tiny_cost(registry, size, adapter="lora", *, method, **train):
    setup = setup_of(registry, tiny_vit(), [4], {"name": adapter}, **train)
    return registry.make("method", method, setup=setup).price(size, 0)


@pytest.mark.parametrize("adapter", ["full", "bitfit"])
def test_pre_trained_weights_that_scalars_move_are_sent_like_frozen_ones(registry, adapter):
    lora, moved = (tiny_cost(registry, 4, kind, method={"name": "fedkseed"}) for kind in ("lora", adapter))
    assert moved.sent == lora.sent and moved.frozen == lora.frozen


def test_layers_a_batch_does_not_run_take_no_less_memory_under_a_codec(registry):
    plain, coded = (
        tiny_cost(registry, 2, method={"name": "batch_layers"}, uploads=codec) for codec in (None, {"codec": "int8"})
    )
    assert coded.memory_bytes == plain.memory_bytes and coded.bytes_up < plain.bytes_up


def test_a_batch_of_few_layers_is_whole_where_the_loss_is_no_mean_over_images(registry):
    def spread(exits, y, t):
        return F.cross_entropy(exits[0], y) + exits[0].std()

    method = {"name": "batch_layers", "objective": spread}
    assert all(tiny_cost(registry, size, method=method, micro_batch="auto").passes == () for size in (2, 4))


def test_a_stage_is_charged_the_activations_of_its_block_alone(trials):
    """Of 12 layers three are trained: a stage needs about as much as a model of three, and the weights below it."""
    whole, staged = (trials["micro", method][1] for method in ("alllarge", "block_stages"))
    costs = [staged.method.price(12, t) for t in range(4)]
    needed = [cost.needed_bytes for cost in costs]
    assert needed == sorted(needed) and needed[-1] < 0.5 * cost_of(whole).needed_bytes
    assert costs[-1].bytes_down == cost_of(whole).bytes_down and len({cost.bytes_up for cost in costs}) == 1
    assert staged.method.price(2, 0) is None and staged.method.price(3, 0) == costs[0]


def test_a_batch_of_few_layers_is_charged_their_activations_and_all_weights(trials):
    """Next to FedRA's client of as many layers: the frozen weights, adapters and optimizer's state of the others."""
    dropping, random = (trials["micro", method][1] for method in ("batch_layers", "fedra"))
    few, same, all_layers = dropping.method.price(3, 0), random.method.price(3, 0), random.method.price(12, 0)
    assert few.flops_per_image == same.flops_per_image and few.passes == same.passes
    assert (few.bytes_down, few.bytes_up) == (all_layers.bytes_down, all_layers.bytes_up)
    adapters = sum(p.nbytes for p in dropping.model.r(0).values())
    more = 9 * (
        same.frozen.layer + 3 * adapters + adapters * bool(dropping.config["train"]["optimizer"]["momentum"]) - adapters
    )
    assert few.memory_bytes - same.memory_bytes == more
    assert dropping.method.price(12, 0) == all_layers
