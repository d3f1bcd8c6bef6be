"""What the documentation says is true: its examples run, its commands parse, and nothing is left out."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from factories import config, eval_rows, round_row

from fedbench import hookspecs, runner, worker
from fedbench.backbone import Blocks
from fedbench.catalogue import KINDS
from fedbench.cli import main
from fedbench.cost import ClientCost
from fedbench.facts import Facts
from fedbench.plan import Work, works
from fedbench.plugins import Plugins
from fedbench.results import merge_index, read_manifest, write_manifest, write_rows
from fedbench.results.index import Entry
from fedbench.results.schema import COLUMNS, STATUSES
from fedbench.seeding import generator, numpy_generator
from fedbench.suite import load, model
from fedbench.suite.problems import Problems
from fedbench.suite.source import parse
from fedbench.suite.structure import _homes
from fedbench.testing.world import cohort_of, setup_of, tiny_vit
from fedbench.types import Report

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "BENCHMARKS.md", "suites/papers/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
HOOKS = {name: hook for name, hook in vars(hookspecs).items() if name.startswith("fedbench_")}
KIND_OF = {hook: kind for kind, hook in KINDS.items()}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the last heading above it and where it begins."""

    language: str
    text: str
    heading: str
    place: str


def blocks(page: Path, *languages: str) -> list[Block]:
    found, heading, language, lines, start = [], "", None, [], 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if language is not None and line.startswith("```"):
            found.append(Block(language, "\n".join(lines) + "\n", heading, f"{page.name}:{start}"))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("```"):
            language, lines, start = line[3:].strip(), [], number
        elif line.startswith("## "):
            heading = line[3:].strip().strip("`")
    assert language is None, f"{page.name}:{start}: this block is never closed"
    return [block for block in found if block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def in_code(page: str) -> set[str]:
    """Everything that stands in backticks in the prose of a page."""
    return set(re.findall(r"`([^`\n]+)`", prose(ROOT / "docs" / page)))


def place(block: Block) -> str:
    return block.place


# --- plugins.md ---------------------------------------------------------------------------------------------------

EXAMPLES = blocks(ROOT / "docs/plugins.md", "python")


@pytest.fixture(scope="module")
def examples(tmp_path_factory, own_cache):
    """The installed plugins and every example of the page, each in a file of its own."""
    folder = tmp_path_factory.mktemp("examples")
    for block in EXAMPLES:
        (folder / file_of(block)).write_text(block.text)
    return Plugins([str(folder / file_of(block)) for block in EXAMPLES])


def file_of(block: Block) -> str:
    return f"example_{block.place.rpartition(':')[2]}.py"


def examples_of(*hooks: str) -> list:
    return [pytest.param(b, id=b.place) for b in EXAMPLES if b.heading.partition("(")[0] in hooks]


def registered(examples: Plugins, block: Block, kind: str) -> dict:
    """A reference to the one component of that kind that the example registers."""
    made = examples.load(file_of(block))
    ((_, name),) = [key for key in made if key[0] == kind]
    assert examples.catalogue.find(kind, name).summary, f"{name} has no docstring to show"
    return {"name": name}


def one_round(setup, ref: dict, registry: Plugins, capacities: list[int]):
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
    assert f"\n## `{heading}`\n" in (ROOT / "docs/plugins.md").read_text()
    assert any(block.heading == heading and f"def {name}(" in block.text for block in EXAMPLES)


@pytest.mark.parametrize("block", EXAMPLES, ids=place)
def test_every_example_stands_in_the_section_of_what_it_registers(examples, block):
    hook = block.heading.partition("(")[0]
    made = examples.load(file_of(block))
    if hook in KIND_OF:
        assert {kind for kind, _ in made} == {KIND_OF[hook]}
    else:
        assert file_of(block) in examples.catalogue.lifecycle and not made
    assert not examples.catalogue.clashes and not examples.catalogue.broken


@pytest.mark.parametrize("block", examples_of("fedbench_register_allocations"))
def test_an_allocation_of_the_page_trains(examples, block):
    ref = {"name": "fedra", "allocation": registered(examples, block, "allocation")}
    setup = setup_of(examples, tiny_vit(), [4, 2, 1])
    _, _, report = one_round(setup, ref, examples, [4, 2, 1])
    assert report.plan.M.sum(1).tolist() == [4, 2, 1]


@pytest.mark.parametrize("block", examples_of("fedbench_register_aggregators"))
def test_an_aggregator_of_the_page_trains(examples, block):
    ref = {"name": "inclusivefl", "aggregator": registered(examples, block, "aggregator")}
    state, new, _ = one_round(setup_of(examples, tiny_vit(), [3, 2, 1]), ref, examples, [3, 2, 1])
    changed = [any(not torch.equal(old[k], now[k]) for k in old) for old, now in zip(state["r"], new["r"], strict=True)]
    assert changed == [True, True, True, False]


@pytest.mark.parametrize("block", examples_of("fedbench_register_objectives"))
def test_an_objective_of_the_page_gives_a_loss(examples, block):
    objective = examples.make("objective", registered(examples, block, "objective"), setup=None)
    logits = torch.randn(4, 3, requires_grad=True)
    loss = objective([logits, logits], torch.tensor([0, 1, 2, 0]), 0)
    loss.backward()
    assert loss.shape == () and torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("block", examples_of("fedbench_register_adapters"))
def test_an_adapter_of_the_page_trains_in_the_layers(examples, block):
    setup = setup_of(examples, tiny_vit(), [2], adapter=registered(examples, block, "adapter"))
    state, new, _ = one_round(setup, {"name": "inclusivefl", "aggregator": "weighted_mean"}, examples, [2])
    assert all(state["r"]) and any(not torch.equal(state["r"][0][k], new["r"][0][k]) for k in state["r"][0])


@pytest.mark.parametrize("block", examples_of("fedbench_register_backbones"))
def test_a_backbone_of_the_page_can_be_cut_into_layers(examples, block):
    ref = registered(examples, block, "backbone")
    source, shapes = (examples.make("backbone", ref, load=load) for load in (True, False))
    blocks = Blocks(source.model)
    assert blocks.num_layers > 0 and source.fingerprint == shapes.fingerprint
    size = source.image_size
    assert blocks.features(blocks.embed(torch.zeros(1, 3, size, size))).shape == (1, source.model.num_features)


@pytest.mark.parametrize("block", examples_of("fedbench_register_methods"))
def test_a_method_of_the_page_lives_through_a_round(examples, block):
    ref = registered(examples, block, "method")
    one_round(setup_of(examples, tiny_vit(), [4, 2]), ref, examples, [4, 2])


@pytest.mark.parametrize("block", examples_of("fedbench_register_datasets"))
def test_a_data_set_of_the_page_has_images_of_every_class_and_domain(examples, block):
    data = examples.make("dataset", registered(examples, block, "dataset"), image_size=8)
    for images in (data.load().train, data.load().test):
        assert images.x.dtype == np.uint8 and images.x.shape[1:] == (3, 8, 8) and len(images.x) == len(images)
        assert images.y.dtype == images.domain.dtype == np.int64
        assert set(images.y) == set(range(len(data.classes))) and set(images.domain) == set(range(len(data.domains)))


@pytest.mark.parametrize("block", examples_of("fedbench_register_partitions"))
def test_a_partition_of_the_page_shares_out_every_image_once(examples, block):
    partition = examples.make("partition", registered(examples, block, "partition"))
    y, domain = np.arange(24) % 4, np.arange(24) // 12
    clients = partition(y, domain, 2, numpy_generator(0))
    assert [client.id for client in clients] == list(range(len(clients)))
    assert sorted(np.concatenate([client.indices for client in clients])) == list(range(24))
    assert all(set(domain[client.indices]) == {client.domain} for client in clients)


@pytest.mark.parametrize("block", examples_of("fedbench_register_metrics"))
def test_a_metric_of_the_page_is_one_number(examples, block):
    metric = examples.make("metric", registered(examples, block, "metric"))
    value = metric(torch.eye(3), torch.arange(3))
    assert isinstance(value, float) and value == 1.0


@pytest.mark.parametrize("block", examples_of("fedbench_register_executors"))
def test_an_executor_of_the_page_runs_every_job_and_tells_of_it(examples, block, tmp_path):
    execute = examples.make("executor", registered(examples, block, "executor"), workers=1, timeout=None)
    jobs = [job(tmp_path / name) for name in ("a", "b", "c")]
    events: list[dict] = []

    def on_event(event: dict) -> bool:
        events.append(event)
        return sum(e["event"] == "ended" for e in events) < 2

    execute([json.dumps(one) for one in jobs], on_event)
    assert [(e["event"], Path(e["folder"]).name) for e in events] == [
        ("started", "a"), ("ended", "a"), ("started", "b"), ("ended", "b"),
    ]  # fmt: skip
    assert all(e["status"] in STATUSES for e in events if e["event"] == "ended")


def job(folder: Path) -> dict:
    """A cell that cannot run, for its configuration is empty: it ends at once, with a whole manifest."""
    manifest = {**Work("0" * 12, {}, {}, {}, []).manifest(), "git": None}
    return {"folder": str(folder), "manifest": manifest, "device": "cpu", "plugins": []}


ROUND = {"client": 0, "loss": 1.5}
SCORE = {"round": 3, "domain": "solid", "metric": "accuracy", "value": 0.5}
MANIFEST = {"id": "0" * 12, "status": "finished", "config": {"method": {"name": "fedra"}}}
TOLD = {
    "fedbench_suite_started": {"suite": "small", "cells": [MANIFEST]},
    "fedbench_suite_finished": {"suite": "small", "cells": [MANIFEST]},
    "fedbench_cell_started": {"manifest": MANIFEST},
    "fedbench_round_finished": {"manifest": MANIFEST, "round": 1, "rows": [ROUND]},
    "fedbench_cell_finished": {"manifest": MANIFEST, "evaluation": [SCORE]},
}


@pytest.mark.parametrize("hook", sorted(HOOKS.keys() - KIND_OF.keys()))
def test_a_tracker_of_the_page_hears_and_speaks(examples, hook, capsys):
    examples.catalogue  # noqa: B018 - loads every example
    getattr(examples.manager.hook, hook)(**TOLD[hook])
    assert re.search("small|cell 000000000000", capsys.readouterr().err)


# --- YAML ---------------------------------------------------------------------------------------------------------

# What a fragment leaves out, and what its own settings may.
AROUND = {"suite": "suite: fragment", "defaults": "defaults: {}", "methods": "methods: [fedra]"}
NEEDED = {"backbone": "micro_vit", "data": "{name: strokes6}", "capacities": "[12, 10, 8, 6, 4, 3]"}
FRAGMENTS = [block for page in PAGES for block in blocks(page, "yaml")]


@pytest.mark.parametrize("block", FRAGMENTS, ids=place)
def test_every_suite_of_the_pages_loads(examples, block, tmp_path):
    said = parse(block.text, block.place, Problems()).plain()
    around = [line for key, line in AROUND.items() if key not in said]
    if "scenarios" not in said:
        left = ", ".join(f"{key}: {value}" for key, value in NEEDED.items() if key not in said.get("defaults", ()))
        around.append(f"scenarios: {{one: {{{left}}}}}")
    file = tmp_path / "suite.yaml"
    file.write_text("\n".join([*around, block.text]))
    for overlay in (None, *said.get("overlays", ())):
        for profile in ("paper", "reference"):
            assert load(file, examples.catalogue, profile=profile, data=overlay).cells()


def keys(shape) -> set[str]:
    return {key for key in shape.__annotations__ if not key.startswith("__")}


def test_every_key_of_a_suite_stands_on_the_page():
    said = in_code("suites.md")
    wanted = set(_homes()) | keys(model.SuiteFile) | keys(model.Method)
    wanted |= keys(model.Expected) | keys(model.ExpectedFile)
    wanted |= {f"capacities.{key}" for key in keys(model.Capacities)}
    wanted |= {f"participation.{key}" for key in keys(model.Participation)}
    assert not wanted - said


def test_every_value_that_a_profile_sets_stands_on_the_page(registry):
    said = in_code("suites.md")
    options = {key for c in registry.catalogue for values in c.profiles.values() for key in values}
    assert options and not options - said
    nested = {key for c in registry.catalogue for part in c.profiles.values() for v in part.values()
              if isinstance(v, dict) for key in v}  # fmt: skip
    assert not nested - {"name"} - said


def test_the_grid_of_the_first_suite_is_counted_rightly(examples, tmp_path):
    first = blocks(ROOT / "docs/suites.md", "yaml")[0]
    (tmp_path / "suite.yaml").write_text(first.text)
    count = len(load(tmp_path / "suite.yaml", examples.catalogue).cells())
    assert f"are {count} cells" in prose(ROOT / "docs/suites.md")


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_stands_in_its_table_with_its_type(kind):
    section = prose(ROOT / "docs/results.md").partition(f"## {kind}.parquet\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", section, flags=re.MULTILINE)
    assert rows == [(name, "list of int16" if kind == "list<int16>" else kind) for name, kind in COLUMNS[kind].items()]


def test_every_field_of_a_manifest_and_an_index_stands_on_the_page(own_cache, tmp_path):
    worker.run(job(tmp_path))
    said = in_code("results.md")
    assert not read_manifest(tmp_path).keys() - said
    assert not set(Entry.__dataclass_fields__) - said
    assert not set(STATUSES) - said


@pytest.mark.parametrize(
    ("heading", "module"),
    [("CSV", "formats"), ("Beside a paper", "paper.formats"), ("What leaves the clients", "traffic")],
)
def test_every_csv_column_stands_on_the_page(heading, module):
    columns = importlib.import_module(f"fedbench.compare.{module}").CSV_COLUMNS
    section = prose(ROOT / "docs/results.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert not set(columns) - set(re.findall(r"`(\w+)`", section))


STATE = "state.safetensors and state.json"
SMALL = """
suite: small
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 3, train_per_class: 1, test_per_class: 1}
  capacities: [2, 1, 1, 1, 1, 1]
  train: {rounds: 1, max_steps: 1}
scenarios: {skew: {}}
methods: [fedra]
"""


def test_the_way_to_reopen_a_model_runs(registry, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    (work,) = works(runner.load("small.yaml", registry).cells(), registry, Facts(registry))
    (block,) = (block for block in blocks(ROOT / "docs/results.md", "python") if block.heading == STATE)
    cell = Path(re.search(r'cell = "(.*)"', block.text)[1])
    worker.run({**job(cell), "manifest": work.manifest()})
    exec(compile(block.text, block.place, "exec"), {})
    assert "torch.Size([4, 64])" in capsys.readouterr().out


def test_the_ways_to_read_results_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suite = Path("results/quickstart")
    cell = suite / "skew-fedra-0-000000000000"
    write_rows(cell, "eval", eval_rows({1: {"solid": 0.5}, 2: {"solid": 0.75}}))
    write_rows(cell, "rounds", [round_row(1, 0, [0, 1])])
    write_manifest(cell, {"id": "0" * 12, "config": config("fedra"), "status": "finished", "seconds": 1.0})
    merge_index(suite, "quickstart", [Entry("skew", "fedra", "", 0, cell.name, "micro_vit", "strokes6", "paper")])
    for block in blocks(ROOT / "docs/results.md", "python"):
        if block.heading != STATE:
            exec(compile(block.text, block.place, "exec"), {})
    said = capsys.readouterr().out
    assert "0.75" in said and "fedra 0 1.0 MB up" in said and re.search(r"^[0-9a-f]{64}$", said, re.MULTILINE)


# --- every page ---------------------------------------------------------------------------------------------------


def command_lines() -> Iterator:
    """Every `fedbench ...` of the pages: lines of shell blocks, and what stands in backticks."""
    for page in PAGES:
        lines = [line for block in blocks(page, "sh", "bash", "console") for line in block.text.splitlines()]
        for line in [*lines, *re.findall(r"`(fedbench\s[^`]+)`", prose(page))]:
            found = re.search(r"(?:^|[\s/])fedbench\s+(?=[a-z])(.*)", line, flags=re.DOTALL)
            if found and not re.search(r"\[|\.\.\.", line):
                yield pytest.param(found[1], line not in lines, id=f"{page.name}:{found[1]}")


@pytest.mark.parametrize(("line", "is_mention"), list(command_lines()))
def test_every_command_line_is_one(line, is_mention):
    words = shlex.split(line.partition(" > ")[0], comments=True)
    command, name = main, "fedbench"
    while isinstance(command, click.Group) and words:
        name, command, words = command.resolve_command(click.Context(command, info_name=name), words)
    if words or not is_mention:  # the text may speak of `fedbench run` without saying what
        assert not isinstance(command, click.Group), "which command?"
        command.make_context(name, words)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_broken_and_no_line_too_long(page):
    for target in re.findall(r"\[[^\]\n]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"
    long = [n for n, line in enumerate(page.read_text().splitlines(), 1) if len(line) > 120]
    assert not long, f"{page.name}: lines {long}"
