"""fedbench doctor: what would stop a run, and the fix."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.text import Text

from fedbench import __version__, disk, machine
from fedbench.commands.choices import PLUGINS, RESULTS
from fedbench.commands.dataset_check import BUILT_IN, INCOMPLETE, PACKED, READY, entries
from fedbench.commands.output import Screen
from fedbench.errors import NotApplicable, UserError
from fedbench.machine import package_version
from fedbench.registry.catalogue import REQUIRED
from fedbench.registry.registry import Registry
from fedbench.results.identity import NUMERICAL
from fedbench.words import counted

if TYPE_CHECKING:
    from fedbench.registry.registry import Registry

ENOUGH_GIB = 2.0  # of memory, and of disk


class Check(NamedTuple):
    """One thing that was checked. level: `ok`, `note` (a run would work, perhaps not as wished) or `STOP`."""

    level: str
    what: str
    found: str
    fix: str = ""


@click.command()
@PLUGINS
@RESULTS
def doctor(plugins: tuple, results: str) -> None:
    """Check versions, devices, plugins, weights, folders and free disk; say what would stop a run, and the fix.

    \b
    fedbench doctor
    fedbench doctor --results /scratch/results --plugin mine.py

    Exit code: 0 all fine, 1 something would stop a run.
    """

    console, stops = Screen(), 0
    styles = {"ok": "green", "note": "yellow", "STOP": "red"}
    for check in checks(plugins, results):
        stops += check.level == "STOP"
        level = (f"{check.level:5}", styles[check.level])
        console.print(Text.assemble(level, f"{check.what:9} {check.found}"), soft_wrap=True)
        if check.fix:
            console.print(Text(f"{'':15}-> {check.fix}"), soft_wrap=True)
    console.print(f"{counted(stops, 'thing') if stops else 'Nothing'} would stop a run.", style="bold")
    sys.exit(1 if stops else 0)


def checks(plugins: tuple[str, ...], results: str) -> Iterator[Check]:
    """Check everything that a run needs, the cheap things first."""

    yield Check("ok", "fedbench", f"{__version__} on Python {sys.version.split()[0]}")
    for name in NUMERICAL:
        version = package_version(name)
        yield Check("ok", name, version) if version else Check("STOP", name, "not installed", f"pip install {name}")
    yield from _devices()
    registry = Registry(plugins)
    try:
        yield from _plugins(registry)
    except UserError as error:
        yield Check("STOP", "plugins", str(error), "correct the file, or leave out --plugin")
    else:
        yield from _weights(registry)
        yield from _data(registry)
    yield _folder("results", Path(results), "choose another with --results DIR")
    yield _folder("cache", disk.cache_dir(), "set FEDBENCH_CACHE to a folder that can be written to")


def _devices() -> Iterator[Check]:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    level, fix = ("ok", "") if free >= ENOUGH_GIB else ("note", "use --jobs 1, or close other programs")
    yield Check(level, "cpu", f"{machine.cpu()}, {machine.cores()} cores, {free:.1f} GiB of memory free", fix)
    try:
        import torch
    except Exception as error:  # a broken build raises anything
        yield Check("STOP", "torch", f"does not import: {error}", "install torch again")
        return
    if torch.cuda.is_available():
        free, total = (count / 2**30 for count in torch.cuda.mem_get_info())
        yield Check("ok", "gpu", f"{torch.cuda.get_device_name()}, {free:.1f} of {total:.1f} GiB free")
    elif machine.has_gpu():
        fix = "install a CUDA build of torch that fits the driver"
        yield Check("note", "gpu", "a driver is there, but torch cannot use it", fix)
    else:
        yield Check("ok", "gpu", "none; runs use the CPU")


def _plugins(registry: Registry) -> Iterator[Check]:
    catalogue, packages = registry.catalogue, len(registry.entry_points)
    yield Check("ok", "plugins", f"{packages} installed, {counted(sum(1 for _ in catalogue), 'component')}")
    for plugin, message in catalogue.broken.items():
        yield Check("note", "plugin", message, f"update or uninstall {registry.package(plugin)}")
    yield from (Check("note", "plugin", message) for message in catalogue.clashes.values())


def _weights(registry: Registry) -> Iterator[Check]:

    for name, component in registry.catalogue.components["backbone"].items():
        if name == "timm" or REQUIRED in component.options.values():  # a suite chooses their weights
            continue
        try:
            with registry.blaming("backbone", name):
                registry.make("backbone", {"name": name})
            yield Check("ok", "weights", f"{name} loads")
        except (UserError, NotApplicable) as error:
            own = component.package == "fedbench"
            fix = "install fedbench again" if own else f"update or uninstall {component.package}"
            yield Check("STOP" if own else "note", "weights", str(error), fix)


def _data(registry: Registry) -> Iterator[Check]:

    ready = [one.name for one in entries(registry) if one.status in (BUILT_IN, READY)]
    yield Check("ok", "data", f"at hand: {', '.join(ready)}")
    for one in entries(registry):
        if one.status in (PACKED, INCOMPLETE):
            yield Check("note", "data", f"{one.name}: {one.status} in {one.root}", f"fedbench data check {one.name}")


def _folder(what: str, folder: Path, fix: str) -> Check:
    there = disk.existing(folder)
    try:  # rights promise little: think of /proc, or of a full quota
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError:
        return Check("STOP", what, f"{folder} cannot be written to", fix)
    scarce = (free := disk.free_disk(folder) / 2**30) < ENOUGH_GIB
    return Check("note" if scarce else "ok", what, f"{folder}: {free:.1f} GiB free", fix if scarce else "")
