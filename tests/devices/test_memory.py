"""What a client's memory is charged, against what is allocated while it takes a step.

The client is built by hand: the layers and ranks it holds, gradients for what it trains alone, explicit attention, as
charged. What it needs are its images, its parameters, gradients that it keeps from step to step, its optimiser's state,
and the most that torch allocates beside them in its second step.
"""

from __future__ import annotations

import copy
import importlib
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from fedbench.families.regularizer import towards
from fedbench.families.split import split_cost
from fedbench.families.split.cut import Cut
from fedbench.families.wholemodel import copies
from fedbench.families.width import Cuts
from fedbench.models import cost
from fedbench.models.adapter import seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.models.optimizer import make_optimizer
from fedbench.models.param_paths import holds, layer_of, name_of
from fedbench.runner.runner import load
from fedbench.simulation.simulation import Simulation
from fedbench_plugins.methods import ditto, fedavg, fedrod, unequal_widths

METHODS = ("fedra", "depthfl", "ffa_lora", "fedavg")
OTHERS = (
    *(
        "alllarge",
        "allsmall",
        "exclusive",
        "fed_hello",
        "fed_plora",
        "fedex_lora",
        "fedit",
        "flasc",
        "flexlora",
        "flora",
    ),
    *("fslora", "hetlora", "inclusivefl", "legend", "local_only", "lora_fair", "raflora", "reefl", "rolora"),
    "splitlora",
)
NEXT_TO_NOTHING = (
    "head_only",
    "fedv",
    "fedvz",
    "festa",
)  # is what they train; they compute more at once than they save

# More than one model, head or width: a client of each is built below.
SEVERAL = ("fedsa_lora", "fedavg_prox", "ditto", "fedrod", "fedrod_hyper", "fjord", "fjord_distill")

SUITE = """
suite: memory
defaults:
  data: {name: strokes6, image_size: 32, classes: 10, train_per_class: 2, test_per_class: 1}
  train: {rounds: 1, max_steps: 1, batch_size: 32}
  evaluation: {by: client}
scenarios:
  micro: {backbone: micro_vit, capacities: [12, 4, 4, 4, 4, 4]}
  texts:
    backbone: micro_bert
    data: {name: phrases6, classes: 10, train_per_class: 2, test_per_class: 1, max_length: 16}
    capacities: [12, 4, 4, 4, 4, 4]
  small:
    backbone: {name: vit_small_patch16_224, pretrained: false, img_size: 96}
    data: {image_size: 96}
    capacities: [12, 4, 4, 4, 4, 4]
    train: {batch_size: 8}
methods:
  - {name: heterofl, rates: [1, 0.5]}
  - {name: fedrolex, rates: [1, 0.5]}
  - {name: fedrod_hyper, extends: fedrod, personal: hypernetwork}
  - {name: fjord, rates: [1, 0.5]}
  - {name: fjord_distill, extends: fjord, rates: [1, 0.5], distill: true}
  - {name: fedavg_prox, extends: fedavg, train: {regularizer: {fedprox: 0.1}}}
  - ditto
  - fedrod
  - fedsa_lora
"""


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "memory.yaml"
    path.write_text(SUITE + "".join(f"  - {name}\n" for name in (*METHODS, *OTHERS, *NEXT_TO_NOTHING)))
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).points()}


def peak_of(step) -> int:
    """The most that torch has allocated at once in a step beyond what there was before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [(e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = most = 0
    for _, nbytes in sorted(events):
        live += nbytes
        most = max(most, live)
    return most


def real(model, config):
    """A copy with zeros on the CPU, its attention as explicit products, its layers by torch's own checkpoints where the
    suite says so."""
    twin = copy.deepcopy(model).to_empty(device="cpu")
    for tensor in (*twin.parameters(), *twin.buffers()):
        torch.nn.init.zeros_(tensor)
    for module in twin.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
        if isinstance(module, Blocks) and config["train"].get("checkpointing"):
            for block in module.blocks:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return twin


def needed(config, trained, loss, resident: int, keeps: bool = True) -> int:
    """Resident bytes, images, gradients, the optimiser's state, and the peak of a step that minimises loss().

    keeps: whether gradients stay where they are between two steps; else they are a part of the peak.
    """
    optimizer = make_optimizer(trained, config["train"]["optimizer"])

    def step():
        optimizer.zero_grad(set_to_none=not keeps)
        for _ in range(2 if cost.micro_batch_of(config["train"]) else 1):
            loss().backward()
        torch.nn.utils.clip_grad_norm_(trained, config["train"]["clip"])
        optimizer.step()

    step()
    gradients = sum(p.grad.nbytes for p in trained) if keeps else 0
    optimizer.zero_grad(set_to_none=not keeps)
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    return resident + images(config)[0].nbytes + gradients + sum(value.nbytes for value in state) + peak_of(step)


def images(config):
    data, batch = config["data"], cost.images_at_once(config["train"])
    if "max_length" in data:  # every text has as many tokens
        return torch.zeros(batch, data["max_length"], dtype=torch.long), torch.zeros(batch, dtype=torch.long)
    size = data["image_size"]
    return torch.zeros(batch, 3, size, size), torch.zeros(batch, dtype=torch.long)


def layers(config, shape, holding, objective) -> int:
    """Of a client of a layerwise method."""
    twin, (x, y) = real(shape.model, config), images(config)
    cost.cut_to(twin, holding)
    held = sum(size.held for size in cost.tensor_sizes(shape, holding))
    classifiers = {exit.classifier for exit in holding.exits}
    trained = [
        p
        for place, p in twin.trained().items()
        if (holds(classifiers, name_of(place)) if (j := layer_of(place)) is None else j < holding.depth)
    ]
    resident = twin.frozen_bytes(holding.depth) + held
    seed_dropout(twin, torch.Generator().manual_seed(0))
    return needed(config, trained, lambda: objective(twin(x, range(holding.depth), holding.exits), y, 0), resident)


def whole(config, model, loss) -> int:
    """Of a client that trains all weights of its model; under FedProx it holds those it was sent besides."""
    if pull := (config["train"].get("regularizer") or {}).get("fedprox"):
        return pulled(config, model, loss, pull, copies=2)
    twin, (x, y) = real(model, config), images(config)
    trained = list(twin.parameters())
    return needed(config, trained, lambda: loss(twin, x, y), sum(p.nbytes for p in trained))


def pulled(config, model, loss, strength, copies) -> int:
    """Of a client whose weights are pulled towards others; copies: how many models it holds."""
    v, (x, y) = real(model, config), images(config)
    start, trained = {name: p.detach().clone() for name, p in v.weights().items()}, list(v.parameters())
    resident = copies * sum(p.nbytes for p in trained)
    # Autograd holds the term's gradients until the model's have come, and these become its gradients then.
    return needed(config, trained, lambda: loss(v, x, y) + towards(v.weights(), start, strength), resident, keeps=False)


def two_heads(config, model, loss) -> int:
    """Of Fed-RoD's client, whose own head is trained in the same step as the model."""
    twin, (x, y) = real(model, config), images(config)
    weights = twin.weights()
    own = copies(fedrod.no_head(weights))
    trained = [*weights.values(), *own.values()]

    def both():
        return sum(fedrod.losses(twin, weights, own, x, y, F.cross_entropy))

    return needed(config, trained, both, sum(p.nbytes for p in trained))


def two_turns(config, model, loss) -> int:
    """Of Fed-RoD's client whose head a network makes, which is trained in turns with the rest; gradients and the
    optimiser's state of both are there in either turn."""
    twin, (x, y) = real(model, config), images(config)
    weights, a = twin.weights(), torch.zeros(10)
    H = [p for name, p in weights.items() if name.startswith((fedrod.HIDDEN, fedrod.MADE))]
    rest = [p for name, p in weights.items() if not name.startswith((fedrod.HIDDEN, fedrod.MADE))]
    turns = {
        "rest": (rest, lambda: F.cross_entropy(twin.logits(weights, x), y)),
        "H": (H, lambda: fedrod.made_loss(twin, weights, a, x, y)),
    }
    kept = (2 + 1) * sum(p.nbytes for p in weights.values())  # weights, gradients, momentum

    def others(trained):
        return kept - 2 * sum(p.nbytes for p in trained)

    return max(needed(config, trained, turn, others(trained)) for trained, turn in turns.values())


def draws(config, cuts, ps, distill) -> int:
    """Of FjORD's client of full width in its largest step."""
    model, (x, y) = real(cuts.model, config), images(config)
    weights, cuts = model.weights(), Cuts(model)
    whole, trained = cuts.at(1.0), list(weights.values())

    def of(p):
        small = cuts.at(p)

        def loss():
            own = weights if p == 1 else small.slice.within(whole.slice).of(weights)
            drawn = small.model.logits(own, x)
            if not distill:
                return F.cross_entropy(drawn, y)
            logits = whole.model.logits(weights, x)
            return F.cross_entropy(logits, y) + F.cross_entropy(drawn, logits.detach().softmax(1))

        return needed(config, trained, loss, sum(w.nbytes for w in trained))

    return max(map(of, ps))


def ends(config, cut, loss) -> int:
    """Of a client that has a head and a tail, with the server's features and gradients as they come."""
    model, (x, y) = real(cut.model, config), images(config)
    twin = Cut(model, 0, cut.first, cut.model.num_layers - cut.last)
    model.requires_grad_(False)
    trained = [*twin.w_H.values(), *twin.w_T.values()]
    for weight in trained:
        weight.requires_grad_(True)
    with torch.no_grad():
        features = twin.E(twin.H(x))

    def both():
        h, b = twin.H(x), features.detach().requires_grad_(True)
        return loss([twin.T(b)], y, 0) + 0.0 * h.sum()  # whose gradient is what the server sends

    return needed(config, trained, both, sum(weight.nbytes for weight in trained))


def first_layers(config, model, c) -> int:
    """Of a client that has the first c layers and their adapters, with the server's gradient as it comes."""
    twin, (x, _) = real(model, config), images(config)
    twin.model.blocks = torch.nn.Sequential(*twin.blocks[:c])
    trained = [p for j in range(c) for p in twin.r(j).values()]
    resident = twin.frozen_bytes(c) + sum(p.nbytes for p in trained)
    seed_dropout(twin, torch.Generator().manual_seed(0))

    def there_and_back():
        tokens, mask = twin.embedded(x)
        for j in range(c):
            tokens = twin.layer(j, tokens, mask)
        return (tokens * torch.zeros_like(tokens)).sum()

    return needed(config, trained, there_and_back, resident)


def measured(config, registry, monkeypatch) -> tuple[int, int]:
    """(bytes needed, bytes charged) of the method's first client; what is priced is what is built."""
    found = []

    def spied(module, name, need):
        original = getattr(module, name)

        def spy(*given, **more):
            made = original(*given, **more)
            found.append((need, given))
            return made

        monkeypatch.setattr(module, name, spy)

    spied(cost, "measure", lambda model, holding, objective, *_: layers(config, model, holding, objective))
    widthwise = importlib.import_module(
        "fedbench.families.width.widthwise"
    )  # the package has the function by this name
    for module in (fedavg, widthwise):
        spied(module, "price_of", lambda setup, model, loss: whole(config, model, loss))
    spied(ditto, "price_of", lambda setup, model, loss: pulled(config, model, loss, 0.75, copies=3))
    heads = two_turns if "hypernetwork" in config["method"].values() else two_heads
    spied(fedrod, "price_of", lambda setup, model, loss: heads(config, model, loss))
    spied(unequal_widths, "price_of_draws", lambda setup, cuts, ps, loss, distill: draws(config, cuts, ps, distill))
    spied(split_cost, "measure", lambda cut, loss, size: ends(config, cut, loss))
    spied(split_cost, "of_adapters", lambda model, c, *_, **__: first_layers(config, model, c))
    with torch.device("meta"):
        trial = Simulation(config, registry, "meta")
    (charged,) = trial.method.prices(trial.federation.cohort(0).only([0]), 0)
    need, given = found[-1]
    return need(*given), charged.needed_bytes


@pytest.mark.parametrize("method", ["heterofl", "fedv", "splitlora"])
def test_the_micro_vit_needs_what_is_charged(configs, registry, monkeypatch, method):
    within_a_tenth(configs["micro", method], registry, monkeypatch)


def test_a_model_of_texts_needs_what_is_charged(configs, registry, monkeypatch):
    within_a_tenth(configs["texts", "fedra"], registry, monkeypatch)


WAYS = {
    "parts": {"micro_batch": 8},
    "again": {"checkpointing": True},
    "both": {"micro_batch": 8, "checkpointing": True},
}


@pytest.mark.parametrize(("method", "way"), [("fedra", "both")])
def test_parts_of_batches_and_layers_computed_again_need_what_is_charged(configs, registry, monkeypatch, method, way):
    config = configs["micro", method]
    within_a_tenth({**config, "train": {**config["train"], **WAYS[way]}}, registry, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["fedra", "depthfl", "fedavg"])
def test_methods_that_train_so_need_what_is_charged(configs, registry, monkeypatch, method, way):
    config = configs["micro", method]
    within_a_tenth({**config, "train": {**config["train"], **WAYS[way]}}, registry, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["micro", "small"])
@pytest.mark.parametrize("method", ["heterofl", "fedrolex", *METHODS, *OTHERS, *SEVERAL, *NEXT_TO_NOTHING])
def test_every_method_needs_what_is_charged(configs, registry, monkeypatch, scenario, method):
    """But `zero_round`, whose clients hold nothing."""
    within_a_tenth(configs[scenario, method], registry, monkeypatch)


def within_a_tenth(config, registry, monkeypatch):
    """Without oneDNN, whose convolutions have workspace of their own where their weights are trained."""
    aside = config["method"]["name"] in NEXT_TO_NOTHING
    with torch.backends.mkldnn.flags(enabled=False) if aside else nullcontext():
        need, charged = measured(config, registry, monkeypatch)
    assert 0.9 < need / charged < 1.1, need / charged
