"""Files to begin from: templates, what is filled into them, and how they come to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
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


def put(made: Mapping[Path, bytes], folder: Path = Path()) -> None:
    """Write files that are not there yet, all or none. Raises UserError, before anything is written, where one of them
    is; or where one cannot be written. A schema that is there stays as it is: it serves all suites of a folder."""
    there = {place for place in made if (folder / place).exists()}
    if taken := [str(folder / place) for place in made if place in there and place.name != SCHEMA]:
        raise UserError(f"{', '.join(taken)}: already there; nothing was written. Choose another place, or move it.")
    missing = {folder / place: content for place, content in made.items() if place not in there}
    anew = {above for file in missing for above in file.parents if not above.exists()}
    try:
        for file, content in missing.items():
            write_atomically(file, content, "Choose another place.")
    except BaseException:
        for file in missing:
            file.unlink(missing_ok=True)
        for empty in sorted(anew, key=lambda above: -len(above.parts)):
            with suppress(OSError):  # never made, or somebody else's files are in it
                empty.rmdir()
        raise


def _with(words: Mapping[str, str], text: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
