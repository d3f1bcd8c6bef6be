"""Files to begin from: templates, what is filled into them, and how they come to a folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.suite.editors import SCHEMA


def filled(kind: str, words: Mapping[str, str]) -> dict[Path, bytes]:
    """The files of a template by their places in the folder to come, each word in place of its name, one after the
    other, in paths as in texts: `NAME` and the like, which stand nowhere else."""
    top = Path(str(files("fedbench.scaffold"))) / kind
    return {
        Path(_with(words, file.relative_to(top).with_suffix("").as_posix())): _with(
            words, file.read_text("utf-8")
        ).encode()
        for file in sorted(top.rglob("*.template"))
    }


def put(made: Mapping[Path, bytes], folder: Path = Path(), spared: Collection[str] = (SCHEMA,)) -> None:
    """Write files that are not there yet. Raises UserError, before anything is written, where one of them is.

    spared: names of files that stay as they are where they are there, and stop nothing: what serves all suites of a
    folder.
    """
    there = {place for place in made if (folder / place).exists()}
    if taken := [str(folder / place) for place in made if place in there and place.name not in spared]:
        raise UserError(f"{', '.join(taken)}: already there; nothing was written. Choose another place, or move it.")
    for place, content in made.items():
        if place not in there:
            write_atomically(folder / place, content, "Choose another place.")


def _with(words: Mapping[str, str], text: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
