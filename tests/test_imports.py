"""The house: imports point one way, plugins see public names only, and what should start at once imports no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedbench

HOUSE = Path(fedbench.__file__).parent
ROOT = HOUSE.parent

# From the ground up: a module imports what stands on lower lines, or beside it in its own package.
LAYERS = [
    ["errors", "types", "seeding", "machine", "installed"],
    ["kernels"],
    ["backbone", "spsa"],
    ["adapter", "allocation", "aggregation", "objective", "data", "cost"],
    ["engine", "method", "globalmodel"],
    ["regularizer", "optimizer"],
    ["layerwise", "split", "wholemodel", "diagnostics"],
    ["hookspecs", "catalogue"],
    ["plugins"],
    ["profiles", "results"],
    ["suite", "compare", "state", "clientstore"],
    ["pixels", "faults", "shares", "checkpoint"],
    ["federation", "evaluation", "guard"],
    ["trial"],
    ["facts", "probe", "sizes"],
    ["inventory"],
    ["plan", "saved", "room"],
    ["worker", "export", "inversion", "progress", "doctor"],
    ["executors"],
    ["backlog"],
    ["testing", "runner", "estimate", "plots"],
    ["commands"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Only for names in annotations, or asked for by a function that is handed the registry.
NO_TORCH = [
    "fedbench",
    "fedbench.catalogue",
    "fedbench.cli",
    "fedbench.commands.compare",
    "fedbench.commands.export",
    "fedbench.commands.invert",
    "fedbench.commands.plan",
    "fedbench.commands.plot",
    "fedbench.commands.run",
    "fedbench.compare",
    "fedbench.compare.clients",
    "fedbench.compare.paper.formats",
    "fedbench.compare.traffic",
    "fedbench.data",
    "fedbench.data.decode",
    "fedbench.doctor",
    "fedbench.estimate",
    "fedbench.executors.local",
    "fedbench.executors.ray",
    "fedbench.executors.remote",
    "fedbench.executors.slurm",
    "fedbench.facts",
    "fedbench.inventory",
    "fedbench.plan",
    "fedbench.plugins",
    "fedbench.progress",
    "fedbench.results",
    "fedbench.room",
    "fedbench.runner",
    "fedbench.seeding",
    "fedbench.suite",
    "fedbench.types",
]
PUBLIC = {
    "adapter",
    "aggregation",
    "allocation",
    "backbone",
    "kernels",
    "catalogue",
    "cost",
    "data",
    "errors",
    "globalmodel",
    "layerwise",
    "method",
    "objective",
    "seeding",
    "split",
    "spsa",
    "types",
    "wholemodel",
}


def imported(file: Path) -> set[str]:
    """The parts of fedbench that a file imports anywhere but for annotations: `results`, `data`, ..."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            path = node.module.split(".")
            if path == ["fedbench"]:
                found |= {alias.name for alias in node.names if alias.name in LEVEL}
            elif path[0] == "fedbench":
                found.add(path[1])
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedbench.")}
    return found


def part(file: Path) -> str:
    return file.relative_to(HOUSE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(HOUSE.rglob("*.py")) if part(file) != "__init__"]


def test_every_module_has_its_place():
    assert {part(file) for file in FILES} == LEVEL.keys()


def test_what_is_installed_is_everything():
    """An editable installation finds a folder that a wheel would leave out."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {file.parent.relative_to(ROOT) for top in ("fedbench", "plugins") for file in (ROOT / top).rglob("*.py")}
    folders.add(Path("plugins/weights"))
    assert sorted(packages) == sorted(
        ".".join(folder.parts).replace("plugins", "fedbench_plugins") for folder in folders
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOUSE)))
def test_imports_point_one_way(file):
    here = part(file)
    above = {name for name in imported(file) - {here} if LEVEL[name] >= LEVEL[here]}
    assert not above, f"{here} stands below {', '.join(sorted(above))}"


@pytest.mark.parametrize("file", sorted((ROOT / "plugins").glob("*.py")), ids=lambda file: file.name)
def test_plugins_import_public_names_only(file):
    assert imported(file) <= PUBLIC


def test_what_starts_at_once_imports_no_torch():
    script = (
        "import importlib, sys\n"
        f"for name in {NO_TORCH!r}:\n"
        "    importlib.import_module(name)\n"
        "    heavy = {'torch', 'timm', 'pandas', 'scipy'} & set(sys.modules)\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
