"""docs/results.md and reading.md: every column and field stands there, and the ways to read results run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from factories import eval_rows, round_row, write_cell
from orders import order
from pages import ROOT, blocks, in_code, prose

from fedbench.registry.facts import CachedFacts
from fedbench.report.views.changes import CSV_COLUMNS as CHANGES
from fedbench.report.views.leaderboard import BOARD
from fedbench.report.views.pairs import PAIRS
from fedbench.report.views.paper import COLUMNS as PAPER
from fedbench.results import read_manifest
from fedbench.results.columns import COLUMNS, STATUSES
from fedbench.results.index import Entry
from fedbench.runner import runner
from fedbench.runner.cells import cells_of
from fedbench.simulation import worker


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_column_stands_in_its_table_with_its_type(kind):
    section = prose(ROOT / "docs/results.md").partition(f"## {kind}.parquet\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", section, flags=re.MULTILINE)
    assert rows == [(name, "list of int16" if kind == "list<int16>" else kind) for name, kind in COLUMNS[kind].items()]


def test_every_field_of_a_manifest_and_an_index_stands_on_the_page(own_cache, tmp_path):
    worker.run(order(tmp_path))
    named = in_code("results.md")
    assert not read_manifest(tmp_path).keys() - named
    assert not set(Entry.__dataclass_fields__) - named
    assert not set(STATUSES) - named


@pytest.mark.parametrize(
    ("heading", "columns"),
    [("Leaderboards", BOARD), ("A paper's numbers", PAPER), ("Two folders", CHANGES), ("Pairs", PAIRS)],
)
def test_every_csv_column_stands_on_the_page(heading, columns):
    section = prose(ROOT / "docs/reading.md").partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    assert not set(columns) - set(re.findall(r"`(\w+)`", section))


REOPEN = "Reopen a model"
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
    (cell,) = cells_of(runner.load("small.yaml", registry).points(), registry, CachedFacts(registry))
    (block,) = (block for block in blocks(ROOT / "docs/reading.md", "python") if block.heading == REOPEN)
    shown = Path(re.search(r'cell = "(.*)"', block.text)[1])
    place = shown.with_name(f"{shown.name[:-12]}{cell.id}")
    worker.run(replace(order(place), manifest=cell.manifest()))
    exec(compile(block.text.replace(str(shown), str(place)), block.place, "exec"), {})
    assert "torch.Size([4, 64])" in capsys.readouterr().out


def test_the_ways_to_read_results_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suite = Path("results/quickstart")
    rows = eval_rows({1: {"solid": 0.5}, 2: {"solid": 0.75}})
    write_cell(suite, "fedra", scenario="skew", evaluation=rows, rounds=[round_row(1, 0, [0, 1])])
    for block in blocks(ROOT / "docs/reading.md", "python"):
        if block.heading != REOPEN:
            exec(compile(block.text, block.place, "exec"), {})
    printed = capsys.readouterr().out
    assert "0.75" in printed and re.search(r"^[0-9a-f]{12} +1\.0$", printed, re.MULTILINE)  # MB
    assert re.search(r"^[0-9a-f]{64}$", printed, re.MULTILINE)
