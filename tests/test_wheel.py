"""What a user gets without the repository: the wheel and the source distribution have all that runs."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import fedbench
from fedbench.registry import installed

ROOT = Path(fedbench.__file__).resolve().parent.parent
BUILD = "import sys; out = sys.argv[1]; from setuptools import build_meta as b; b.build_wheel(out); b.build_sdist(out)"
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with both, built from a copy, so that nothing is left here."""
    copy, out = tmp_path_factory.mktemp("source") / "fedbench", tmp_path_factory.mktemp("built")
    for part in ("docs", "fedbench", "plugins", "suites"):
        shutil.copytree(ROOT / part, copy / part, ignore=LEFT_OUT)
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, copy)
    done = subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


def in_repository(*endings: str) -> set[str]:
    """The files of the three packages, as a wheel calls them."""
    found = set()
    for top, package in (("fedbench", "fedbench"), ("plugins", "fedbench_plugins"), ("suites", "fedbench_suites")):
        for file in (ROOT / top).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and file.suffix in endings:
                found.add(f"{package}/{file.relative_to(ROOT / top).as_posix()}")
    return found


def test_the_wheel_has_every_file_that_runs(built):
    (wheel,) = built.glob("*.whl")
    there = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = in_repository(
        ".py",
        ".yaml",
        ".json",
        ".csv",
        ".txt",
        ".safetensors",
        ".template",
        ".toml",
        ".typed",
        ".md",
        ".html",
        ".css",
        ".js",
    )
    assert there == wanted | {name for name in there if name.endswith("LICENSE")}


def test_its_version_and_its_readme_are_those_of_the_repository(built):
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Name"] == installed.DISTRIBUTION and metadata["Version"] == fedbench.__version__
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "# fedbench" in str(metadata.get_payload())


def test_the_source_has_what_the_wheel_is_built_from_and_what_people_read(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "docs/plugins.md"} <= names
    assert {"suites/quickstart.yaml", "fedbench/cli.py", "plugins/methods/fedra.py"} <= names
    assert not any(name.startswith(("results/", "tests/")) for name in names)
