"""A folder in which an outside method has gone through all commands of the tutorial, and copies of it."""

from __future__ import annotations

import shutil

import pytest
from outsider import COMMANDS, follow, write_home

from fedbench.board.children import INSIDE
from fedbench.board.entries import Home


@pytest.fixture(scope="session")
def isolated():
    """Commands go on in this process, as in a child without network."""
    patch = pytest.MonkeyPatch()
    patch.setenv(INSIDE, "without network, in a test")
    yield
    patch.undo()


@pytest.fixture(scope="session")
def walked(tmp_path_factory, isolated, own_cache):
    """The folder in which the tutorial's method has gone from its file to the site, and what was done for it."""
    folder = write_home(tmp_path_factory.mktemp("outside"))
    return folder, follow(folder, COMMANDS[0])


@pytest.fixture
def home(walked, tmp_path):
    """A copy of that folder's board, to be forged."""
    shutil.copytree(walked[0], tmp_path / "copy", symlinks=True)
    return Home(tmp_path / "copy/board")
