"""docs/hooks: a section for every hook, and examples that do what they say."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command import fedbench
from orders import order
from pages import EXAMPLES, HOOK_PAGES, ROOT, Block, file_of, place
from verdicts import verdicts

from fedbench import hookspecs
from fedbench.families.layerwise import layerwise
from fedbench.registry.catalogue import KINDS
from fedbench.registry.registry import Registry
from fedbench.results import load_results
from fedbench.results.columns import STATUSES
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import ClientCost, Objective, Report
from fedbench_plugins.aggregators import weighted_mean

HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("fedbench_")}
KIND_OF = {hook: kind for kind, hook in KINDS.items()}


def examples_of(*hooks: str) -> list:
    return [pytest.param(b, id=b.place) for b in EXAMPLES if b.heading.partition("(")[0] in hooks]


def registered(examples: Registry, block: Block, kind: str) -> dict:
    """A reference to the one component of that kind that the example registers."""
    made = examples.load(file_of(block))
    ((_, name),) = [key for key in made if key[0] == kind]
    return {"name": name}


def one_round(setup, ref: dict, registry: Registry, capacities: list[int]):
    """Make a method, let it live for a round and answer once, in the ways the contract allows."""
    method = registry.make("method", ref, setup=setup)
    state = method.init(generator(0))
    before = {name: value.clone() for name, value in tensors(state)}
    new, report = method.round(state, 0, cohort_of(capacities), generator(0, 0))
    for name, value in tensors(state):
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert isinstance(report, Report) and len(report.cost) == len(report.cohort) == len(report.plan.M)
    assert isinstance(method.cost(capacities[0], 0), ClientCost)
    assert method.predictor(new)(torch.randn(5, 3, 8, 8, dtype=torch.float64)).shape == (5, 3)
    return state, new, report


def tensors(state, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(state, torch.Tensor):
        yield path, state
    for key, part in state.items() if isinstance(state, dict) else enumerate(state if isinstance(state, list) else ()):
        yield from tensors(part, f"{path}/{key}")


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_a_section_with_its_exact_signature_and_an_example(name):
    heading = f"{name}{inspect.signature(HOOKS[name])}".replace("'", "")
    assert sum(f"\n## `{heading}`\n" in page.read_text() for page in HOOK_PAGES) == 1
    assert any(block.heading == heading and f"def {name}(" in block.text for block in EXAMPLES)


@pytest.mark.parametrize("block", EXAMPLES, ids=place)
def test_every_example_stands_in_the_section_of_what_it_registers(examples, block):
    hook = block.heading.partition("(")[0]
    made = examples.load(file_of(block))
    if hook in KIND_OF:
        assert {kind for kind, _ in made} == {KIND_OF[hook]}
        assert all(examples.catalogue.find(*key).summary for key in made), "without a docstring to show"
    else:
        assert file_of(block) in examples.catalogue.lifecycle and not made
    assert not examples.catalogue.clashes and not examples.catalogue.broken


SLOW = ("nested", "finetuned")  # whose parts others' tests check


def is_slow(block: Block) -> bool:
    return any(f'"{name}"' in block.text for name in SLOW)


@pytest.mark.parametrize("block", [b for b in EXAMPLES if is_slow(b)], ids=place)
def test_a_method_whose_contract_takes_long_lives_through_a_round(examples, block):
    ref = registered(examples, block, "method")
    one_round(setup_of(examples, tiny_vit(), [4, 2]), ref, examples, [4, 2])


LEARNS = """
suite: learns
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 4, train_per_class: 4, test_per_class: 6}
  capacities: [2, 1, 1, 1, 1, 1]
  train: {rounds: 4, max_steps: 4, batch_size: 8, optimizer: {name: sgd, lr: 1.0, momentum: 0.9, weight_decay: 0.0}}
scenarios: {skew: {}}
methods: [cosine]
"""


def test_the_method_of_the_page_that_trains_something_of_its_own_learns_it(tmp_path):
    (block,) = [block for block in EXAMPLES if 'register("cosine"' in block.text]
    (tmp_path / "cosine.py").write_text(block.text)
    (tmp_path / "learns.yaml").write_text(LEARNS)
    done = fedbench("run", "learns.yaml", "--plugin", "cosine.py", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    frame = load_results(tmp_path / "results/learns")
    by_round = frame[frame.metric == "accuracy"].groupby("round").value.mean()
    assert by_round[4] > max(0.5, by_round[1])  # chance is a quarter


@pytest.mark.parametrize("block", examples_of("fedbench_register_metrics"))
def test_a_metric_of_the_page_is_one_number(examples, block):
    ref = registered(examples, block, "metric")
    value = examples.make("metric", ref)(torch.eye(3), torch.arange(3))
    own, other = math.e / (math.e + 2), 1 / (math.e + 2)  # softmax probabilities
    expected = {"top_k_accuracy": 1.0, "brier": (1 - own) ** 2 + 2 * other**2}[ref["name"]]
    assert isinstance(value, float) and value == pytest.approx(expected)


@pytest.mark.parametrize("block", examples_of("fedbench_register_executors"))
def test_an_executor_of_the_page_runs_every_job_and_tells_of_it(examples, block, tmp_path):
    execute = examples.make("executor", registered(examples, block, "executor"), workers=1, timeout=None)
    jobs = [order(tmp_path / name).to_json() for name in ("a", "b", "c")]
    events: list[dict] = []

    def on_event(event: dict) -> bool:
        events.append(event)
        return sum(e["event"] == "ended" for e in events) < 2

    execute(jobs, on_event)
    assert [(e["event"], Path(e["folder"]).name) for e in events] == [
        ("started", "a"), ("ended", "a"), ("started", "b"), ("ended", "b"),
    ]  # fmt: skip
    assert all(e["status"] in STATUSES for e in events if e["event"] == "ended")


ROUND = {"client": 0, "loss": 1.5}
SCORE = {"round": 3, "domain": "solid", "metric": "accuracy", "value": 0.5}
MANIFEST = {"id": "0" * 12, "status": "finished", "config": {"method": {"name": "fedra"}}}
WHERE = {"folder": "results/small"}
EVENTS = {
    "fedbench_suite_started": {"suite": "small", "cells": [MANIFEST], **WHERE},
    "fedbench_suite_finished": {"suite": "small", "cells": [MANIFEST], **WHERE},
    "fedbench_cell_started": {"manifest": MANIFEST, **WHERE},
    "fedbench_round_finished": {"manifest": MANIFEST, "round": 1, "rows": [ROUND], "evaluation": [SCORE], **WHERE},
    "fedbench_cell_finished": {"manifest": MANIFEST, "evaluation": [SCORE], **WHERE},
}


@pytest.mark.parametrize("hook", sorted(HOOKS.keys() - KIND_OF.keys()))
def test_a_tracker_of_the_page_hears_and_speaks(examples, hook, capsys):
    for block in (block for block in EXAMPLES if block.heading.partition("(")[0] == hook):
        examples.load(file_of(block))
    getattr(examples.manager.hook, hook)(**EVENTS[hook])
    assert re.search("small|cell 000000000000", capsys.readouterr().err)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b, id=b.place, marks=[pytest.mark.slow] if is_slow(b) else [])
        for b in EXAMPLES
        if "fedbench_register_" in b.heading
    ],
)
def test_an_example_of_the_page_keeps_its_contract(examples, block):
    found = verdicts(examples.files[file_of(block)])
    assert found and {(one.verdict, one.why) for one in found} == {("ok", "")}


def test_the_signatures_of_what_a_method_is_built_from_are_the_codes():
    page = (ROOT / "docs/plugins.md").read_text("utf-8")
    named = [p for p in inspect.signature(layerwise).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    shown = ", ".join(p.name if p.default is p.empty else f'{p.name}="{p.default}"' for p in named)
    assert f"\nlayerwise({shown}, *, ...) -> Method\n" in page
    for kind, function in (("aggregator", weighted_mean()), ("objective", Objective.__call__)):
        taken = ", ".join(name for name in inspect.signature(function).parameters if name != "self")
        assert re.search(rf'"{kind}": +\w+\({taken}\) -> ', page), kind
