"""A suite that has a paper's numbers."""

from __future__ import annotations

import pytest
from papers import numbers

from fedbench.results.index import write_expected


@pytest.fixture
def suite(tmp_path):
    """A suite's folder with the paper's numbers."""
    write_expected(tmp_path / "s", "s", numbers())
    return tmp_path / "s"
