"""fedbench backbones: how large backbones are, and how fast on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedbench.commands.choices import DEVICE, PLUGINS
from fedbench.commands.output import listing

if TYPE_CHECKING:
    from fedbench.models.sizes import BackboneSize


@click.command(short_help="Parameters, multiply-adds and images a second of backbones.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--classes", default=1000, show_default=True, type=click.IntRange(1), help="Of the linear classifier.")
@click.option("--batch", default=16, show_default=True, type=click.IntRange(1), help="Images of a timed pass.")
@DEVICE
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@PLUGINS
def backbones(names: tuple, classes: int, batch: int, device: str, as_json: bool, plugins: tuple) -> None:
    """Count the parameters and multiply-adds of backbones, and time their forward pass here.

    \b
    fedbench backbones micro_vit micro_cnn --classes 30
    fedbench backbones resnet50_gn deit_small_patch16_224 --batch 64

    Any name that a suite may give. No weights are read or fetched. FedV's Table 1 has these columns.
    """
    from dataclasses import asdict

    from fedbench.cell.worker import resolved
    from fedbench.models.sizes import measure
    from fedbench.registry.assets import Assets
    from fedbench.registry.registry import Registry

    registry, device = Registry(plugins), resolved(device)
    assets, found = Assets(registry), []
    for name in names:
        assets.source({"name": name})  # tells of names that nobody knows
        with registry.blaming("backbone", name):
            source = registry.make("backbone", {"name": name}, pretrained=False, load=False)
        found.append(measure(name, source, classes, batch, device))
    if as_json:
        import json

        click.echo(json.dumps([asdict(size) for size in found], indent=1))
    else:
        _show(found, classes, batch, device)


def _show(found: list[BackboneSize], classes: int, batch: int, device: str) -> None:
    """A line for each backbone, and what was timed."""
    from fedbench.commands.screen import Screen

    console = Screen()
    table = listing(("backbone", "pixels", "parameters", "GMACs", "images/s"), map(_row, found))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    threads = f"{found[0].threads} thread{'s' * (found[0].threads > 1)}"
    where = f"on {device}" + (f", {threads}" if device == "cpu" else "")
    console.print(
        f"Forward pass, {classes} classes, batches of {batch}, float32, {where}. Papers often call GMACs FLOPs.",
        style="dim",
        soft_wrap=True,
    )


def _row(size: BackboneSize) -> tuple[str, ...]:
    counts = (f"{size.parameters / 1e6:.2f} M", f"{size.macs / 1e9:.3g}", f"{size.images_per_second:.3g}")
    return size.name, str(size.image_size), *counts
