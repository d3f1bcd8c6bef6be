"""The house: imports point one way, what is written is installed, and what should start at once imports no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedbench

HOUSE = Path(fedbench.__file__).resolve().parent
ROOT = HOUSE.parent

# Only for names in annotations, or asked for by a function that is handed the registry.
NO_TORCH = [
    "fedbench",
    "fedbench.registry.catalogue",
    "fedbench.cli",
    "fedbench.commands.doctor",
    "fedbench.commands.compare",
    "fedbench.commands.export",
    "fedbench.commands.plan",
    "fedbench.commands.plot",
    "fedbench.commands.run",
    "fedbench.data",
    "fedbench.data.decode",
    "fedbench.disk",
    "fedbench.runner.estimate",
    "fedbench.runner.local",
    "fedbench_plugins.executors.ray",
    "fedbench.runner.elsewhere",
    "fedbench_plugins.executors.slurm",
    "fedbench_plugins.executors.flower",
    "fedbench.registry.facts",
    "fedbench.commands.data_check",
    "fedbench.runner.cells",
    "fedbench.registry.registry",
    "fedbench.commands.watch",
    "fedbench.results",
    "fedbench.runner.runner",
    "fedbench.seeding",
    "fedbench.suite",
    "fedbench.types",
]
# What makes tables takes pandas and scipy, and no torch.
TABLES = ["fedbench.report.style", "fedbench.report.run_scores", "fedbench.report.views.by_name"]


def test_the_contracts_of_pyproject_are_kept():
    """The order of rooms, see `[tool.importlinter]`; `tox -e lint` checks it, too."""
    pytest.importorskip("importlinter", reason="import-linter is not installed: it comes with the extra lint")
    lint = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_installed_is_everything():
    """An editable installation finds a folder that a wheel would leave out."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        file.parent.relative_to(ROOT)
        for top in ("fedbench", "plugins", "suites")
        for file in (ROOT / top).rglob("*.py")
    }
    folders.add(Path("plugins/backbones/weights"))
    assert sorted(packages) == sorted(
        ".".join(folder.parts).replace("plugins", "fedbench_plugins", 1).replace("suites", "fedbench_suites", 1)
        for folder in folders
    )


@pytest.mark.parametrize(
    ("names", "without"), [(NO_TORCH, {"torch", "timm", "pandas", "scipy"}), (TABLES, {"torch", "timm"})]
)
def test_what_starts_at_once_imports_no_torch(names, without):
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = {without!r} & set(sys.modules)\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_plugins_import_public_names_alone():
    """What a stranger's plugin may import: rooms the contract `public` leaves open, and no name that begins with _."""
    private = []
    for file in sorted((ROOT / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedbench"):
                names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [
                    part for alias in node.names if alias.name.startswith("fedbench") for part in alias.name.split(".")
                ]
            else:
                continue
            private += [f"{file.name}: {name}" for name in names if name.startswith("_")]
    assert not private
