"""The Dockerfile and the workflow: what they name is there, and what the image runs works on what is copied into it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "Dockerfile").read_text().splitlines()
STEPS = [tuple(line.split(" ", 1)) for line in LINES if line and not line.startswith("#")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"


def of(instruction: str) -> list[str]:
    return [given for name, given in STEPS if name == instruction]


def copied() -> set[str]:
    """What .dockerignore lets into the image."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    return {line[1:] for line in lines if line.startswith("!")}


def test_the_image_is_for_cpu_or_cuda_by_an_argument_and_runs_as_no_root():
    known = {"FROM", "ARG", "RUN", "COPY", "USER", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in STEPS} <= known and STEPS[0][0] == "FROM"
    assert of("ARG") == ["TORCH=cpu"] and sum("whl/${TORCH}" in run for run in of("RUN")) == 1
    assert "--build-arg TORCH=cu" in "\n".join(LINES)
    order = [name for name, _ in STEPS]
    assert of("USER") == ["fedbench"] and order.index("USER") < order.index("ENTRYPOINT")
    python = re.fullmatch(r"python:(\d\.\d+)\.\d+-slim-\w+", *of("FROM"))[1]
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    for extra in re.findall(r"/src\[(\w+)\]", " ".join(of("RUN"))):
        assert extra in PROJECT["optional-dependencies"]


def test_what_is_copied_is_there_and_no_more_than_is_needed():
    assert all((ROOT / name).exists() for name in copied())
    assert {"pyproject.toml", "fedbench", "plugins", "suites", "README.md", "LICENSE"} <= copied()
    assert not copied() & {"tests", "results", "docs", ".git", ".venv"}


@pytest.mark.slow  # a wheel is built
def test_the_steps_of_the_image_work_on_what_is_copied(tmp_path):
    source, site = tmp_path / "src", tmp_path / "site"
    source.mkdir()
    for name in copied():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    wheels = tmp_path / "wheels"
    subprocess.run([sys.executable, "-c", BUILD, wheels], cwd=source, check=True, capture_output=True)
    (wheel,) = wheels.glob("fedbench_heft-*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    program = tmp_path / "bin/fedbench"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom fedbench.cli import main\nmain()\n")
    program.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(site), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    (step,) = [run for run in of("RUN") if run.startswith("fedbench ")]
    done = subprocess.run(["sh", "-ec", f"{step}; fedbench suites show quickstart"], cwd=tmp_path, env=env,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and "suite: quickstart" in done.stdout, done.stderr


def test_the_workflow_runs_what_is_checked_here_on_versions_that_are_supported():
    workflow = YAML(typ="safe", pure=True).load(ROOT / ".github/workflows/test.yml")
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert workflow["permissions"] == {"contents": "read"}
    for step in job["steps"]:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
    assert os.access(ROOT / ".ci/run", os.X_OK)
    supported = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert set(job["strategy"]["matrix"]["python"]) <= set(supported)


def test_the_site_is_published_from_what_mkdocs_builds_by_pinned_actions():
    workflow = YAML(typ="safe", pure=True).load(ROOT / ".github/workflows/pages.yml")
    build, deploy = workflow["jobs"]["build"], workflow["jobs"]["deploy"]
    site = YAML(typ="safe", pure=True).load(ROOT / "mkdocs.yml")["site_dir"]
    assert [step["with"]["path"] for step in build["steps"] if "path" in step.get("with", {})] == [site]
    assert any("mkdocs build --strict" in step.get("run", "") for step in build["steps"])
    assert workflow["permissions"] == {"contents": "read"} and "permissions" not in build
    assert deploy["needs"] == "build" and deploy["permissions"] == {"pages": "write", "id-token": "write"}
    for step in [*build["steps"], *deploy["steps"]]:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))


def test_the_citation_has_the_version_and_what_cff_asks_for():
    citation = YAML(typ="safe", pure=True).load(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "abstract", "license", "references"} <= citation.keys()
    versions = re.findall(r"version = \{([\d.]+)\}", (ROOT / "README.md").read_text())
    source = (ROOT / "fedbench/__init__.py").read_text()
    assert [citation["version"], *versions] == re.findall(r'__version__ = "(.*)"', source) * 2


def test_the_oldest_versions_that_are_declared_are_those_that_are_tested():
    """Every dependency, and what the ordinary tests need besides where it draws or computes."""
    config = configparser.ConfigParser()
    config.read(ROOT / "tox.ini")
    pinned = dict(line.split("==") for line in config["testenv:oldest"]["deps"].split())
    lowest = dict(line.split(">=") for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plots"]])
    assert {name: Version(version) for name, version in pinned.items()} == {
        name: Version(version) for name, version in lowest.items()
    }
