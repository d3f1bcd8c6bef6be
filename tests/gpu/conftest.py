"""Tests that need a CUDA device: `tox -e gpu`, or `pytest -m gpu`. Elsewhere they are skipped."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="torch finds no CUDA device here"))
