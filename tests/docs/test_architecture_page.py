"""The way of one cell that docs/architecture.md describes is the one that a traced run takes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_passes_through_every_file_of_the_walk_and_through_few_others(tmp_path):
    spec = importlib.util.spec_from_file_location("files_touched", TOP / "benchmarks/files_touched.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    walk = re.findall(r"^\| `(\w+/\w+\.py)` \|", (TOP / "docs/architecture.md").read_text(), re.M)
    passed = set().union(*script.files_of_a_cell(tmp_path).values())
    assert len(walk) == 8 and {f"fedbench/{name}" for name in walk} <= passed
    assert len(passed) <= 140, "more files than before: does a new one hold a subject?"
    assert len(set().union(*script.files_of_compare(tmp_path).values())) <= 42
