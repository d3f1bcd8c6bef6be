"""fedbench schema: the JSON Schema of suites, for editors, and its way into a folder of suites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench import scaffold
from fedbench.commands.choices import PLUGINS, FilePath
from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.registry.catalogue import Catalogue
from fedbench.registry.registry import Registry
from fedbench.suite import json_schema

if TYPE_CHECKING:
    from fedbench.registry.catalogue import Catalogue

MEND = "Choose another folder."


@click.command()
@click.option("--install", metavar="DIR", type=FilePath(file_okay=False), help="Write it next to the suites of DIR.")
@click.option("--built-in", is_flag=True, help="Only with what comes with fedbench.")
@PLUGINS
def schema(install: str | None, built_in: bool, plugins: tuple) -> None:
    """Print the JSON Schema of suites, with every component that is installed; or with --install write it next to the
    suites of a folder, each of which then names it in a comment: editors complete keys and names there, say what they
    mean, and underline what is wrong. Again when a plugin is new: what is as it should be is left alone.

    \b
    fedbench schema --install .
    fedbench schema --install . --plugin mine.py
    fedbench schema > suite.schema.json
    """
    catalogue = Registry(plugins).catalogue
    text = scaffold.dumped(json_schema(_own(catalogue) if built_in else catalogue))
    if install is None:
        click.echo(text, nl=False)
        return
    for file, changed in installed(Path(install), text):
        click.echo(f"{file}: {'written' if changed else 'was so already'}")


def installed(folder: Path, schema: bytes) -> Iterator[tuple[Path, bool]]:
    """Write a schema into a folder and its line into every suite there that names none; each file, and whether it was
    changed. Raises UserError for a folder that is not there or cannot be written to."""
    if not folder.is_dir():
        raise UserError(f"--install: there is no folder {folder}")
    wanted = {folder / scaffold.SCHEMA: schema}
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        text = _text(file)
        if scaffold.is_suite(text):
            wanted[file] = (text if scaffold.has_line(text) else scaffold.with_schema_line(text)).encode()
    for file, content in wanted.items():
        changed = not file.exists() or file.read_bytes() != content
        if changed:
            write_atomically(file.resolve(), content, MEND)
        yield file, changed


def _text(file: Path) -> str:
    """What a file says, "" for one that is not UTF-8. Line breaks stay as they are."""
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError:
        return ""


def _own(catalogue: Catalogue) -> Catalogue:
    own: Any = Catalogue()
    own.add(component for component in catalogue if component.package == "fedbench")
    return own
