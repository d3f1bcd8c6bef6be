"""Entry points of packages that are well, broken and odd, as pip leaves them on disk."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fedbench.registry.catalogue import Catalogue
from fedbench.registry.installed import OURS, package_of, points
from fedbench.registry.registry import Registry

METADATA = b"Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """package(name, entry points, metadata) puts the metadata of a package on the path; returns their folder."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, text: bytes, metadata: bytes | None = None) -> Path:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_bytes(text)
        if metadata != b"":
            (info / "METADATA").write_bytes(metadata or METADATA % name.encode())
        importlib.invalidate_caches()
        return info

    return make


def named(group: str = "fedbench.tests") -> tuple[list[tuple[str, str]], dict[str, str]]:
    found, unusable = points(group)
    return [(point.name, point.value) for point in found], unusable


def test_points_of_a_group_are_found_with_their_package(package):
    package("well", b"[fedbench.tests]\none = os.path\ntwo = json:dumps\n[other]\nthree = re\n")
    assert named() == ([("one", "os.path"), ("two", "json:dumps")], {})
    assert points("fedbench.tests")[0][0].dist.name == "well"


@pytest.mark.parametrize("value", ["", ":", "..", "odd:", "this is no module", "odd-1", "odd [", "3", "a..b"])
def test_a_point_that_names_no_module_is_told_and_the_others_are_used(package, value):
    package("mixed", f"[fedbench.tests]\nbad = {value}\ngood = json\n".encode())
    found, unusable = named()
    assert found == [("good", "json")] and "names no module" in unusable["bad"]


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        (b"[fedbench.tests]\nno equals sign\n", None),
        (b"[fedbench.tests]\n\xff\xfe = json\n", None),
        (b"[fedbench.tests]\none = json\n", b"Name: \xff\xfe\n"),
    ],
)
def test_metadata_that_cannot_be_read_are_told_by_their_place(package, text, metadata):
    broken = package("broken", text, metadata)
    package("well", b"[fedbench.tests]\ntwo = json\n")
    found, unusable = named()
    assert found == [("two", "json")] and "cannot be read" in unusable[str(broken)]


def test_a_package_without_a_name_is_used(package):
    package("nameless", b"[fedbench]\nnameless = json\n", b"")
    registry = Registry()
    assert registry.package("nameless") == "an unknown package"
    assert "nameless" not in registry.catalogue.broken


@pytest.mark.parametrize(
    ("name", "value", "called"),
    [
        ("fedbench-heft", "fedbench_plugins.methods.fedra", OURS),
        ("fedbench", "their.plugin", "another project's fedbench"),
        ("fedbench-mine", "fedbench_mine", "fedbench-mine"),
    ],
)
def test_the_package_of_that_name_on_pypi_is_not_this_one(package, name, value, called):
    package(name, f"[fedbench.tests]\none = {value}\n".encode())
    (point,) = points("fedbench.tests")[0]
    assert package_of(point) == called


def test_the_registry_tells_of_packages_that_cannot_be_read(package):
    broken = package("broken", b"[fedbench]\nno equals sign\n")
    catalogue = Registry().catalogue
    assert isinstance(catalogue, Catalogue) and "cannot be read" in catalogue.broken[str(broken)]
    assert "fedra" in catalogue.components["method"]
