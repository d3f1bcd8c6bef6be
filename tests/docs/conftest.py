"""The examples of the page on plugins, loaded."""

from __future__ import annotations

import pytest
from pages import EXAMPLES, file_of

from fedbench.registry.registry import Registry


@pytest.fixture(scope="session")
def examples(tmp_path_factory, own_cache):
    """The installed plugins and every example of the page, each in a file of its own."""
    folder = tmp_path_factory.mktemp("examples")
    for block in EXAMPLES:
        (folder / file_of(block)).write_text(block.text)
    return Registry([str(folder / file_of(block)) for block in EXAMPLES], in_place=True)
