"""The page of the command line, made from `--help`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from fedbench.cli import main
from fedbench.commands import COMMANDS

EXITS = """\
Exit codes: 0 is success, 2 is wrong input; commands that use 1 explain it. `-h` and `--help` print this page's text.
"""


_SIGN = re.compile(r"[*_<\[\]]")


def page() -> str:
    """Every command with its usage, its help, its examples and its options, as Markdown."""
    parts = ["# The command line", "Made from `fedbench --help` when these pages were built.", EXITS]
    for path, context in walk():
        hashes = "#" * (1 + len(path))
        parts.append(f"{hashes} {' '.join(('fedbench', *path))}")
        parts.append(f"```text\n{context.command.get_usage(context).removeprefix('Usage: ')}\n```")
        parts += _help(context.command.help or "")
        parts += _options(context)
    return "\n\n".join(parts) + "\n"


def walk() -> Iterator[tuple[tuple[str, ...], click.Context]]:
    """Every command of fedbench itself, a group before its own: the words that call it, and its context."""
    above = click.Context(main, info_name="fedbench")
    for name in COMMANDS:
        command = main.get_command(above, name)
        assert command is not None, name
        yield from _below((name,), command, above)


def _below(
    path: tuple[str, ...], command: click.Command, above: click.Context
) -> Iterator[tuple[tuple[str, ...], click.Context]]:
    context = click.Context(command, info_name=path[-1], parent=above)
    yield path, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            own = command.get_command(context, name)
            assert own is not None, name
            if own.hidden:
                continue
            yield from _below((*path, name), own, context)


def _help(text: str) -> Iterator[str]:
    """Paragraphs as they are; those that click prints line by line as blocks, for commands or for others."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).strip()):
        if not paragraph.startswith("\b"):
            yield escaped(paragraph)
            continue
        lines = "\n".join(paragraph.splitlines()[1:])
        yield f"```{'sh' if lines.startswith(('fedbench', 'eval')) else 'text'}\n{lines}\n```"


def _options(context: click.Context) -> Iterator[str]:
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    rows = [row for row in (one.get_help_record(context) for one in options) if row]
    if rows:
        lines = [f"| `{cell(name)}` | {escaped(about)} |" for name, about in rows]
        yield "\n".join(["| option | what it does |", "|---|---|", *lines])


def cell(text: str) -> str:
    """A text as a cell of a Markdown table, within backticks."""
    return " ".join(text.split()).replace("|", "\\|")


def escaped(text: str) -> str:
    """A text of the program's as Markdown: what stands in backticks is code, and no other sign means anything."""
    parts = cell(text).split("`")
    return "`".join(part if number % 2 else _SIGN.sub(r"\\\g<0>", part) for number, part in enumerate(parts))
