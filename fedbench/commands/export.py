"""fedbench export: a finished cell's model, for other libraries."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from fedbench.commands.choices import PLUGINS
from fedbench.commands.output import Screen
from fedbench.registry.registry import Registry


@click.command()
@click.argument("cell", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["peft", "loralib", "merged"]),
    required=True,
    help="peft, loralib: adapters and head; merged: a plain timm model.",
)
@click.option("--out", metavar="DIR", help="Where to; by default a folder here, named after cell and format.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@PLUGINS
def export(cell: str, form: str, out: str | None, force: bool, plugins: tuple) -> None:
    """Write the model of CELL, the folder of a finished cell, for another library.

    \b
    fedbench export results/quickstart/skew-fedra-0-4534df823ed3 --format peft
    fedbench export results/quickstart/skew-fedra-0-4534df823ed3 --format merged

    The cell's images are not needed. A cell that has no model yet (no `state.json`) gets one by `fedbench run --force`.
    """  # fmt: skip

    from fedbench.export import export as write

    written = write(cell, form, out or f"{Path(cell).resolve().name}-{form}", Registry(plugins), force)
    console = Screen()
    for name, size in written.files.items():
        console.print(Text(f"{size:>12,} bytes  {written.folder / name}"), soft_wrap=True)
    if written.note:
        console.print(Text(written.note, style="yellow"), soft_wrap=True)
    console.print(Text(f"\nTo load it:\n\n{written.loading}"), soft_wrap=True)
