"""What other processes and machines are given: texts, which no pickle of theirs can make into code.

That no source opens a pickle or evaluates text is ruff's to say (`S` in pyproject.toml).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICKLERS = ("pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle")


def test_no_source_asks_for_pickles():
    """Of NumPy and torch, which open none unless they are asked to."""
    asks = "allow_pickle=True", "weights_only=False", ".recv(", *(f"import {name}" for name in PICKLERS)
    for part in ("fedbench", "plugins"):
        for file in (ROOT / part).rglob("*.py"):
            source = file.read_text()
            assert not [word for word in asks if word in source], file


def test_one_string_is_all_that_a_worker_is_started_with():
    """multiprocessing pickles what a process is started with: here a text and the ends of two pipes."""
    tree = ast.parse((ROOT / "fedbench/processes/supervisor.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    words = [word for call in calls if ast.unparse(call.func) == "context.Process" for word in call.keywords]
    assert [ast.unparse(word.value) for word in words if word.arg == "args"] == ["(json.dumps(job), far, tell)"]


@pytest.mark.parametrize(
    ("file", "call", "given"),
    [
        ("ray", "self.cell.remote", ["job", "self.limits"]),
        ("slurm", "self.executor.map_array", ["compute", "jobs", "[self.limits] * len(jobs)"]),
    ],
)
def test_a_string_and_two_limits_are_all_that_another_machine_gets(file, call, given):
    """Ray and submitit pickle a function, by its name, and what it gets: here texts, and the numbers of two limits."""
    tree = ast.parse((ROOT / f"plugins/executors/{file}.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == call]
    assert [[ast.unparse(word) for word in one.args] for one in calls] == [given]
    opens = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
    assert not opens & {"result", "results", "exception", "submission"}, "submitit would open a pickle"
