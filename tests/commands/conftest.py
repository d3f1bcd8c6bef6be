"""Folders for tests of `fedbench data`."""

from __future__ import annotations

import pytest


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty cache of the test's own, and data sets in ./data."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
