"""Folders for tests of `fedbench data`, and what shells find."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty cache of the test's own, data sets in ./data."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)


@pytest.fixture
def program(tmp_path):
    """`fedbench` as an installer writes it, in a folder for PATH."""
    file = tmp_path / "bin/fedbench"
    file.parent.mkdir()
    file.write_text(f"#!{sys.executable}\nfrom fedbench.cli import main\nmain()\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def home(tmp_path, monkeypatch):
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"
