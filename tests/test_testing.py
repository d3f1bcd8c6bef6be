"""The contract kit over every component that is installed, and against examples that break each contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from command import fedbench
from layouts import LAYOUTS

from fedbench import aggregation, allocation, objective
from fedbench.backbone import Source
from fedbench.layerwise import layerwise
from fedbench.plugins import Plugins
from fedbench.testing import (
    check_adapter,
    check_aggregator,
    check_allocation,
    check_backbone,
    check_component,
    check_dataset,
    check_method,
    check_metric,
    check_objective,
    check_partition,
    check_state,
    tiny_mixer,
    tiny_vit,
)
from fedbench.types import MIXED, Client, Dataset, Images, Splits

# What is needed to make a component small, or at all.
OPTIONS = {
    ("dataset", "strokes6"): {"classes": 2, "train_per_class": 1, "test_per_class": 1},
    ("backbone", "timm"): {"name": "vit_tiny_patch16_224", "pretrained": False},
}


def built_in() -> list[tuple[str, str]]:
    return [(component.kind, component.name) for component in Plugins().catalogue]


@pytest.mark.parametrize(("kind", "name"), built_in(), ids=["-".join(pair) for pair in built_in()])
def test_every_built_in_component_keeps_its_contract(registry, tmp_path, kind, name):
    options = {"name": name, **OPTIONS.get((kind, name), {})}
    if name == "image_folder":
        options["root"] = str(pictures(tmp_path))
    if name in LAYOUTS:
        options["root"] = str(LAYOUTS[name](tmp_path))
    if name == "hf":
        options |= {"path": str(pictures(tmp_path)), "train": "train[:50%]", "test": "train[50%:]"}
    check_component(registry, kind, **options)


def pictures(root):
    from PIL import Image

    for place in ("one/a", "one/b", "two/a", "two/b"):
        (root / place).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8), (80 * k, 0, 0)).save(root / place / f"{k}.png")
    return root


@pytest.mark.parametrize(
    "options",
    [
        {"name": "fedra", "missing_layers": "cover"},
        {"name": "inclusivefl", "own_last_layer": True, "aggregator": "weighted_mean"},
        {"name": "depthfl", "first_exit": 2, "every": 1, "head": "always", "answer": "last"},
    ],
    ids=lambda options: options["name"],
)
def test_other_options_keep_the_contract_on_the_mixer_too(registry, options):
    check_method(lambda setup: registry.make("method", options, setup=setup), registry, tiny_mixer)


# --- broken ones -------------------------------------------------------------------------------------------------


def one_too_few(capacities, num_layers):
    return torch.arange(num_layers) < capacities[:, None] - 1


def global_chance(capacities, num_layers):
    return allocation.random(capacities, num_layers, torch.default_generator)


def forgetful(capacities, num_layers, calls=[]):  # noqa: B006  (the fault that is looked for)
    calls.append(1)
    return allocation.prefix(capacities, num_layers).roll(len(calls), 1)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (one_too_few, "its capacity is"),
        (global_chance, "global generator|when called again"),
        (forgetful, "when called again"),
        (lambda capacities, num_layers: capacities, "bool tensor"),
        (lambda capacities: torch.ones(len(capacities), 1, dtype=torch.bool), "must give 6 columns"),
    ],
)
def test_broken_allocations(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_allocation(broken)


def test_an_inexact_allocation_may_stay_below():
    check_allocation(one_too_few, exact=False)
    with pytest.raises(AssertionError, match="at most"):
        check_allocation(lambda capacities, num_layers: torch.ones(len(capacities), num_layers) > 0, exact=False)


def zero_the_unheld(state, uploads, plan, cohort):
    new = aggregation.weighted_mean(state, uploads, plan, cohort)
    held = plan.M.any(0)
    r = [{name: value * held[j] for name, value in r_j.items()} for j, r_j in enumerate(new["r"])]
    return {**new, "r": r}


def in_place(state, uploads, plan, cohort):
    state["shared"]["head.weight"].mul_(0.5)
    return aggregation.weighted_mean(state, uploads, plan, cohort)


def ignores_arrived(state, uploads, plan, cohort):
    everybody = replace(uploads, arrived=torch.ones_like(uploads.arrived))
    return aggregation.weighted_mean(state, everybody, plan, cohort)


def drops_shared(state, uploads, plan, cohort):
    return {"r": state["r"]}


def weighs_with_zero(state, uploads, plan, cohort):
    """Multiplies what was lost by 0 where it should not be touched: 0 times no number is no number."""
    if not uploads.arrived.any():
        return state
    examples = torch.where(uploads.arrived, cohort.num_examples, 0)
    everybody = replace(uploads, arrived=torch.ones_like(uploads.arrived))
    new = aggregation.weighted_mean(state, everybody, plan, replace(cohort, num_examples=examples))
    kept = [not (plan.M[:, j] & uploads.arrived).any() for j in range(plan.M.shape[1])]
    return {**new, "r": [state["r"][j] if kept[j] else r_j for j, r_j in enumerate(new["r"])]}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (zero_the_unheld, "layer 2 came back from nobody"),
        (in_place, "changes what it is given"),
        (ignores_arrived, "rows that did not arrive"),
        (weighs_with_zero, "rows that did not arrive"),
        (drops_shared, "whole state"),
    ],
)
def test_broken_aggregators(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_aggregator(broken)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda exits, y, t: objective.cross_entropy(exits, y, t).detach().requires_grad_(), "no gradient"),
        (lambda exits, y, t: exits[0].sum(1), "scalar"),
        (lambda exits, y, t: exits[0].sum() / t, "round 0 is"),
    ],
)
def test_broken_objectives(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_objective(broken)


def thaws(blocks):
    blocks.model.requires_grad_(True)


@pytest.mark.parametrize(("broken", "told"), [(thaws, "thaws"), (lambda blocks: None, "adds nothing")])
def test_broken_adapters(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_adapter(broken)


def test_a_broken_backbone():
    with pytest.raises(AssertionError, match="three numbers"):
        check_backbone(Source(tiny_vit(), 8, (0.5, 0.5, 0.5), (0.0, 1.0, 1.0), "x"))


def data(**changes) -> Dataset:
    def images():
        x, y = np.zeros((4, 3, 8, 8), dtype=np.uint8), np.array([0, 1, 0, 1])
        return replace(Images(x, y, np.array([0, 0, 1, 1])), **changes)

    return Dataset(("one", "two"), ("a", "b"), "f", lambda: Splits(images(), images()))


def test_a_sound_data_set_passes():
    check_dataset(data())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"x": np.zeros((4, 8, 8, 3), dtype=np.uint8)}, "uint8"),
        ({"x": np.zeros((4, 3, 8, 8))}, "uint8"),
        ({"y": np.array([0, 1, 2, 1])}, "between 0 and 1"),
        ({"y": np.array([0, 1, 0, 1], dtype=np.int32)}, "int64"),
        ({"domain": np.array([0, 0, 0, 0])}, "no image of domain 'two'"),
    ],
)
def test_broken_data_sets(changes, told):
    with pytest.raises(AssertionError, match=told):
        check_dataset(data(**changes))


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda y, domain, n, generator: [Client(0, 0, np.arange(len(y)))], "another domain"),
        (lambda y, domain, n, generator: [Client(i, 0, np.arange(9)) for i in range(2)], "two clients"),
        (lambda y, domain, n, generator: [Client(1, 0, np.arange(9))], "ids must be"),
        (lambda y, domain, n, generator: [Client(0, 0, np.random.permutation(9))], "global|otherwise"),
        (lambda y, domain, n, generator: [Client(0, MIXED, np.flatnonzero(domain == 1))], "client 0 of domain -1"),
    ],
)
def test_broken_partitions(broken, told):
    with pytest.raises(AssertionError, match=told):
        check_partition(broken)


def test_a_broken_metric():
    with pytest.raises(AssertionError, match="is nan"):
        check_metric(lambda logits, y: float("nan"))


def altered(**parts):
    """FedRA with some of its functions replaced; each gets the sound method first."""

    def make(setup):
        method = layerwise(setup)
        return replace(method, **{name: part(method) for name, part in parts.items()})

    return make


def mutating(method):
    def round(state, t, cohort, generator):
        state["r"][0] = {name: value + 1 for name, value in state["r"][0].items()}
        return method.round(state, t, cohort, generator)

    return round


def counting(method):
    calls = []

    def round(state, t, cohort, generator):
        calls.append(t)
        new, report = method.round(state, t, cohort, generator)
        return {**new, "calls": len(calls)}, report

    return round


def restless(method):
    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        return {**new, "round": t}, report

    return round


def everybody_returns(method):
    def round(state, t, cohort, generator):
        return method.round(state, t, replace(cohort, arrives=torch.ones(len(cohort), dtype=torch.bool)), generator)

    return round


def remembers_the_lost(method):
    """Averages rightly, but keeps the losses of all clients, also of those that never returned."""

    def round(state, t, cohort, generator):
        new, report = method.round(state, t, cohort, generator)
        return ({**new, "losses": report.uploads.loss} if report.uploads.arrived.any() else state), report

    return round


def free_of_work(method):
    return lambda capacity, t: replace(method.cost(capacity, t), flops_per_image=0)


def sends_more_than_it_says(method):
    return lambda capacity, t: replace(method.cost(capacity, t), bytes_up=1)


def aliased(method):
    def init(generator):
        state = method.init(generator)
        return {**state, "best": state["shared"]["head.weight"]}

    return init


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (altered(round=mutating), "round changes what it is given"),
        (altered(round=counting), "round gives another result"),
        (altered(round=restless), "nobody takes part"),
        (altered(round=everybody_returns), "nobody returns"),
        (altered(round=remembers_the_lost), "client 0 is lost .* its images change the state"),
        (altered(init=aliased), "shares its memory"),
        (
            altered(init=lambda method: lambda generator: {**method.init(generator), "x": object()}),
            "neither tensor nor JSON|another",
        ),
        (altered(predictor=lambda method: lambda state, client=None: lambda x: x.flatten(1)), "finite logits"),
        (altered(cost=free_of_work), "positive"),
        (altered(cost=sends_more_than_it_says), "bytes_up is .*, but what is `sent` makes"),
    ],
)
def test_broken_methods(registry, broken, told):
    with pytest.raises(AssertionError, match=told):
        check_method(broken, registry)


@pytest.mark.parametrize(
    "state",
    [[], {"a": {1: 2}}, {"a": torch.ones(1, requires_grad=True)}, {"a": (1, 2)}, {"a": torch.ones(2, 3).T}],
)
def test_broken_states(state):
    with pytest.raises(AssertionError):
        check_state(state)


# --- from the command line ---------------------------------------------------------------------------------------


def test_the_command_checks_a_file_and_names_what_is_broken(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom fedbench import hookimpl\n\n"
        "def good(capacities, num_layers):\n    return torch.arange(num_layers) < capacities[:, None]\n\n"
        "def bad(capacities, num_layers):\n    return torch.arange(num_layers) < 2 * capacities[:, None]\n\n"
        "@hookimpl\ndef fedbench_register_allocations(register):\n"
        "    register('good', good)\n    register('bad', bad)\n"
    )
    done = fedbench("plugins", "check", "mine.py", cwd=tmp_path)
    assert done.exit_code == 1
    assert "ok      allocation good" in done.stdout and "BROKEN  allocation bad" in done.stdout
    assert "its capacity is" in done.stdout
    assert fedbench("plugins", "check", "fedra", cwd=tmp_path).exit_code == 0
    unknown = fedbench("plugins", "check", "fedar", cwd=tmp_path)
    assert unknown.exit_code == 2 and "did you mean 'fedra'" in unknown.stderr
