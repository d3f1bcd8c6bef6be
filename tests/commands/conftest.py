"""Folders for tests of `fedbench data`."""

from __future__ import annotations

import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty cache of the test's own, data sets in ./data, and none that a package of Debian's has put elsewhere."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "share"))
