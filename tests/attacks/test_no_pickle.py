"""fedbench opens no pickle and evaluates no text: read off the sources of the package and its plugins."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [file for part in ("fedbench", "plugins") for file in sorted((ROOT / part).rglob("*.py"))]

MODULES = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle", "jsonpickle", "yaml", "code"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {"read_pickle", "to_pickle", "unsafe_load", "full_load"}
# Which argument makes a reader safe that can also open pickles.
READERS = {("torch", "load"): ("weights_only", True), ("np", "load"): ("allow_pickle", False)}
READERS[("numpy", "load")] = READERS[("np", "load")]
OF_OWNERS = {("torch", "save"), ("np", "savez"), ("np", "save"), ("os", "system"), ("os", "popen")}


def faults(source: str) -> list[str]:
    """What is forbidden in a module, by line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] in MODULES:
            found.append((node, node.module))
        elif isinstance(node, ast.Call) and (told := _call(node)):
            found.append((node, told))
    return [f"{node.lineno}: {told}" for node, told in found]


def _call(node: ast.Call) -> str:
    given = {word.arg: getattr(word.value, "value", word.value) for word in node.keywords}
    if given.get("shell") not in (None, False):
        return "shell=True"
    if isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in BUILTINS else ""
    if not isinstance(node.func, ast.Attribute):
        return ""
    owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    name = node.func.attr
    if name in CALLS or (owner, name) in OF_OWNERS:
        return name
    if name in ("recv", "send") and owner != "self":  # of a pipe: they pickle, send_bytes and recv_bytes do not
        return name
    if (owner, name) in READERS:
        word, wanted = READERS[owner, name]
        return "" if given.get(word) is wanted else f"{owner}.{name} without {word}={wanted}"
    return ""


def test_no_source_opens_pickles_or_evaluates_text():
    assert {str(file.relative_to(ROOT)): found for file in FILES if (found := faults(file.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "import dill as d", "from joblib import load", "def f():\n    import shelve", "import yaml",
        "torch.load(f)", "torch.load(f, weights_only=False)", "np.load(f)", "np.load(f, allow_pickle=True)",
        "eval(x)", "exec(x)", "subprocess.run(x, shell=True)", "os.system(x)", "pandas.read_pickle(f)",
        "pipe.recv()", "pipe.send(x)", "torch.save(x, f)", "np.load(f, allow_pickle=given)",
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found(source):
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(f, weights_only=True)", "np.load(f, allow_pickle=False)", "model.eval()", "subprocess.run([x])",
        "pipe.send_bytes(x)", "re.compile(x)", "json.load(f)", "safetensors.load(f)",
    ],
)  # fmt: skip
def test_what_is_allowed_is_left_alone(source):
    assert faults(source) == []


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
