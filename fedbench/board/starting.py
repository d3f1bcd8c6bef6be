"""New entries: their files, the results of a board's suite, and the hashes of both."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.board import plans
from fedbench.board.entries import (
    BOARDS,
    BUILT_IN,
    CODE,
    ENTRY,
    SUBMITTED,
    Board,
    Entry,
    Home,
    found_in,
    hash_of_code,
    hash_of_rows,
    named_rows,
    read_entry,
    with_row,
)
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.scaffold import filled
from fedbench.suite.shipped import folder as suites
from fedbench.suite.yaml import Problems


def copy_boards(home: Home) -> None:
    """Copy the boards of the installed fedbench, where it lies in a clone, to a home that has none."""
    ours, theirs = suites().parent / "board", home.folder / BOARDS
    if not theirs.exists() and (ours / BOARDS).is_dir():
        shutil.copytree(ours / BOARDS, theirs)
        shutil.copy(ours / ".gitignore", home.folder)


def begin_entry(file: Path, name: str, board: Board, plugin: str | None) -> Entry:
    """Write an entry of a method, or a further row into one that is there; both lack the hash of their results.

    Raises:
        UserError: The entry has results on that board, or no such method is registered; nothing has been written.
    """
    there = _entry(file) if file.exists() else None
    if there and board.board in there.boards and there.boards[board.board].sha256:
        raise UserError(f"{file}: it has results on {board.board}; a new version is --version {there.version + 1}")
    text = file.read_text("utf-8") if there else _text(file.parent, name, board, plugin)
    text = with_row(text, board.board, version=board.version, state=SUBMITTED)
    entry = _entry(file, text)
    write_atomically(file, text.encode())
    return entry


def _entry(file: Path, text: str | None = None) -> Entry:
    """The entry in a file, or in a text that is to be there. Raises UserError with all that is wrong in it."""
    problems = Problems()
    entry = read_entry(file, problems, text)
    problems.raise_any()
    assert entry is not None
    return entry


def _text(folder: Path, name: str, board: Board, plugin: str | None) -> str:
    """The text of a new entry without rows. Raises UserError where no such method is registered."""
    registry = Registry([plugin] if plugin else [])
    methods = registry.catalogue.components["method"]
    listed = {one if isinstance(one, str) else one["name"] for one in plans.suite_of(board)["methods"]}
    if plugin is None and name not in {*methods, *listed}:
        raise UserError(f"no method is called {name!r}; a method of your own is --from-plugin FILE")
    if plugin and (name not in methods or methods[name].plugin not in registry.files):
        raise UserError(f"{plugin} registers no method {name!r}, as fedbench_register_methods would")
    if plugin:
        return _with_code(folder, name, Path(plugin), registry)
    return f"method: {name}\nversion: {folder.name}\nlicence: Apache-2.0\nplugin: {BUILT_IN}\nboards:\n"


def _with_code(folder: Path, name: str, plugin: Path, registry: Registry) -> str:
    """Copy a plugin's file into the folder of an entry; returns the text of the entry. Raises UserError where it needs
    modules next to it, which are the author's to copy."""
    (folder / CODE).mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(plugin, folder / CODE)
    if Registry([str(copy)]).version(plugin.name) != registry.version(plugin.name):
        raise UserError(f"{plugin} imports modules next to it; copy them to {folder / CODE} and repeat the command")
    me = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True).stdout.strip()
    words = {"NAME": name, "VERSION": folder.name, "FILE": plugin.name, "AUTHORS": json.dumps([me or "your name"])}
    return filled("entry", {**words, "CODE": hash_of_code(folder / CODE)})[Path(ENTRY)].decode()


def add_results(entry: Entry, board: Board, results: str | None, options: Mapping[str, Any]) -> None:
    """Compute the entry's results on a board, or take those of a folder, and write their hash into its file."""
    plans.require_own_options(board, entry)
    text = plans.text_of(board, [entry])
    plans.loaded(board, text, Registry(entry.files))
    folder = Path(results).absolute() if results else entry.results(board.board)
    if results and not folder.is_relative_to(entry.home.parent):
        raise UserError(f"--results {results}: outside {entry.home.parent}, which has the board; copy it there")
    if results is None:
        plans.run(board, text, [entry.method], board.seeds, folder, plugins=entry.files, **options)
    own = named_rows(found_in(folder)[0], entry.method, board, plans.variant_of(board))
    if not own:
        raise UserError(f"{folder}: no results of {entry.method} in {board.scenario} of {board.suite}")
    facts = {"results": folder.relative_to(entry.home.parent).as_posix()} if results else {}
    entry.put(board.board, **facts, sha256=hash_of_rows([one for one in own if one.manifest]))
