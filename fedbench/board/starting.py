"""New entries: their files, the results of a board's suite, and the hashes of both."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.board import plans
from fedbench.board.entries import (
    BOARDS,
    BUILT_IN,
    ENTRIES,
    ENTRY,
    SUBMITTED,
    Board,
    Entry,
    Home,
    found_in,
    hash_of_code,
    hash_of_rows,
    read_entry,
    rows_of,
)
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.suite.node import Problems
from fedbench.suite.shipped import folder as suites

CODE = "plugin"  # the folder of an entry's code
UNKNOWN = "0" * 64  # stands for a hash until it is known


def settle(home: Home) -> None:
    """Copy the boards of the installed fedbench, where it lies in a clone, to a home that has none."""
    ours, theirs = suites().parent / "board" / BOARDS, home.folder / BOARDS
    if not theirs.exists() and ours.is_dir():
        shutil.copytree(ours, theirs)
        shutil.copy(ours.parent / ".gitignore", home.folder)


def begin(
    home: Home, name: str, version: int, board: Board, plugin: str | None, authors: Sequence[str], licence: str
) -> Entry:
    """Write an entry without hashes, or add a board to one that is there.

    Raises:
        UserError: The entry is on that board, or no such method is registered.
    """
    folder = home.folder / ENTRIES / name / str(version)
    row = f"  {board.board}: {{version: {board.version}, state: {SUBMITTED}}}\n"
    file = folder / ENTRY
    if file.exists():
        there = _read(file)
        if there.boards.get(board.board, {}).get("sha256"):
            raise UserError(f"{file}: it is on {board.board} already; a new version is --version {version + 1}")
        if board.board not in there.boards:
            write_atomically(file, (file.read_text("utf-8").rstrip() + "\n" + row).encode())
        return _read(file)
    registry = Registry([plugin] if plugin else [])
    methods = registry.catalogue.components["method"]
    listed = [one if isinstance(one, str) else one["name"] for one in plans.suite_of(board)["methods"]]
    if plugin is None and name not in (*methods, *listed):
        raise UserError(f"no method is called {name!r}; a method of your own is --from-plugin FILE")
    if plugin is not None and (name not in methods or not registry.is_third_party(methods[name].plugin)):
        raise UserError(f"{plugin} registers no method {name!r}, as fedbench_register_methods would")
    lines = [f"method: {name}", f"version: {version}", f"licence: {json.dumps(licence)}"]
    if plugin is None:
        lines.append(f"plugin: {BUILT_IN}")
    else:
        (folder / CODE).mkdir(parents=True)
        copy = shutil.copy(plugin, folder / CODE)
        if Registry([copy]).version(Path(copy).name) != registry.version(Path(plugin).name):
            raise UserError(f"{plugin} imports modules next to it; copy them to {folder / CODE} and repeat the command")
        by = list(authors) or [_me()]
        key = "{" + name
        lines += [
            f"authors: {json.dumps(by, ensure_ascii=False)}",
            "paper: unpublished  # a citation on one line",
            f"bibtex: |\n  @misc{key},\n    author = {{{' and '.join(by)}}},\n    title = {{{name}}}\n  }}",
            f"plugin: {{file: {CODE}/{Path(plugin).name}, sha256: '{UNKNOWN}'}}",
        ]
    write_atomically(file, ("\n".join([*lines, "boards:"]) + "\n" + row).encode())
    return _read(file)


def finish(entry: Entry, board: Board, results: str | None, options: Mapping[str, Any]) -> None:
    """Compute the entry's results on a board, or take those of a folder, and write the hashes into its file."""
    plugins = [str(entry.file)] if entry.file else []
    registry = Registry(plugins)
    text = plans.text_of(board, [entry], space=entry.boards[board.board].get("space"))
    suite = plans.loaded(board, text, registry)
    if results is None:
        plans.run(board, text, [entry.method], board.seeds, entry.results(board.board), plugins=plugins, **options)
    folder = Path(results).absolute() if results else entry.results(board.board)
    own = rows_of(found_in(folder)[0], entry.method, board, suite.variants[0])
    if not own:
        raise UserError(f"{folder}: no results of {entry.method} in {board.scenario} of {board.suite}")
    facts = {"sha256": hash_of_rows([one for one in own if one.manifest and not one.fault])}
    if results:
        facts = {"results": folder.relative_to(entry.home.parent).as_posix(), **facts}
    file, head = entry.folder / ENTRY, f"  {board.board}: {{version: {board.version}, state: {SUBMITTED}"
    text = file.read_text("utf-8").replace(
        f"{head}}}", ", ".join([head, *(f"{k}: {v!r}" for k, v in facts.items())]) + "}"
    )
    if entry.file:
        text = text.replace(UNKNOWN, hash_of_code(entry))
    write_atomically(file, text.encode())


def _read(file: Path) -> Entry:
    problems = Problems()
    entry = read_entry(file, problems)
    problems.raise_any()
    assert entry is not None
    return entry


def _me() -> str:
    """What git calls the user."""
    try:
        name = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True).stdout.strip()
    except OSError:
        name = ""
    return name or "your name"
