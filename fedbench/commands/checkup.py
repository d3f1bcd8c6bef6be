"""A check-up of the machine: each finding with its mend."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench import __version__, disk, machine
from fedbench.commands.shelf import BUILT_IN, entries
from fedbench.data.sources import INCOMPLETE, MISSING, PACKED, READY, root_of
from fedbench.errors import NotApplicable, UserError
from fedbench.machine import package_version
from fedbench.registry.catalogue import REQUIRED
from fedbench.registry.registry import Registry
from fedbench.runs.plan import NUMERICAL
from fedbench.words import counted

ENOUGH_DISK_GIB = 2.0
ENOUGH_MEMORY_GIB = 2.0


@dataclass(frozen=True)
class Check:
    """One thing looked at. level: `ok`, `note` (a run would work, perhaps not as wished) or `STOP`."""

    level: str
    what: str
    found: str
    mend: str = ""


def checkup(plugin_files: Sequence[str] = (), results: str = "results") -> Iterator[Check]:
    """Look at everything a run needs, the cheap things first."""
    yield Check("ok", "fedbench", f"{__version__} on Python {sys.version.split()[0]}")
    yield from _packages()
    yield from _devices()
    yield from _plugins(plugin_files)
    yield from _weights(plugin_files)
    yield from _data(plugin_files)
    yield _folder("results", Path(results), "choose another with --results DIR")
    yield _folder("cache", disk.cache_dir(), "set FEDBENCH_CACHE to a folder that can be written to")


def _packages() -> Iterator[Check]:
    for name in NUMERICAL:
        version = package_version(name)
        if version is None:
            yield Check("STOP", name, "not installed", f"pip install {name}")
        else:
            yield Check("ok", name, version)


def _devices() -> Iterator[Check]:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    level = "ok" if free >= ENOUGH_MEMORY_GIB else "note"
    mend = "" if level == "ok" else f"less than {ENOUGH_MEMORY_GIB:g} GiB: use --jobs 1, or close other programs"
    yield Check(level, "cpu", f"{machine.cpu()}, {machine.cores()} cores, {free:.1f} GiB of memory free", mend)
    try:
        import torch
    except Exception as error:  # a broken build raises whatever it likes
        yield Check("STOP", "torch", f"does not import: {error}", "install torch again")
        return
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        yield Check("ok", "gpu", f"{torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    elif machine.has_gpu():
        yield Check(
            "note",
            "gpu",
            "a driver is there, but torch cannot use it",
            "install a CUDA build of torch that fits the driver",
        )
    else:
        yield Check("ok", "gpu", "none; runs use the CPU")


def _plugins(files: Sequence[str]) -> Iterator[Check]:
    registry = Registry(files)
    try:
        catalogue = registry.catalogue
    except UserError as error:
        yield Check("STOP", "plugins", str(error), "mend the file, or leave out --plugin")
        return
    yield Check(
        "ok", "plugins", f"{len(registry.entry_points)} installed, {counted(sum(1 for _ in catalogue), 'component')}"
    )
    for plugin, message in catalogue.broken.items():
        yield Check("note", "plugin", message, f"update or uninstall {registry.package(plugin)}")
    for message in catalogue.clashes.values():
        yield Check("note", "plugin", message)


def _weights(files: Sequence[str]) -> Iterator[Check]:
    registry = Registry(files)
    for name, component in registry.catalogue.components["backbone"].items():
        if name == "timm" or REQUIRED in component.options.values():  # whose weights a suite chooses
            continue
        try:
            with registry.blaming("backbone", name):
                registry.make("backbone", {"name": name})
            yield Check("ok", "weights", f"{name} loads")
        except (UserError, NotApplicable) as error:
            if component.package == "fedbench":
                yield Check("STOP", "weights", str(error), "install fedbench again")
            else:
                yield Check("note", "weights", str(error), f"update or uninstall {component.package}")


def _data(files: Sequence[str]) -> Iterator[Check]:
    found = entries(Registry(files))
    ready = [entry.name for entry in found if entry.status in (BUILT_IN, READY)]
    yield Check("ok", "data", f"at hand: {', '.join(ready)}")
    for entry in found:
        if entry.status == READY and entry.root != root_of(entry.name):
            yield Check("ok", "data", f"{entry.name} lies in {entry.root}")
        if entry.status == MISSING and entry.ways:
            yield Check("ok", "data", f"{entry.name} can be had: {'; or '.join(entry.ways)}")
        if entry.status in (PACKED, INCOMPLETE):
            yield Check(
                "note", "data", f"{entry.name}: {entry.status} in {entry.root}", f"fedbench data check {entry.name}"
            )


def _folder(what: str, folder: Path, mend: str) -> Check:
    there = disk.existing(folder)
    try:
        with tempfile.TemporaryDirectory(dir=there):  # rights alone promise little: /proc, a full quota
            pass
    except OSError:
        return Check("STOP", what, f"{folder} cannot be written to", mend)
    free = disk.free_disk(folder) / 2**30
    if free < ENOUGH_DISK_GIB:
        return Check("note", what, f"{folder}: only {free:.1f} GiB free", mend)
    return Check("ok", what, f"{folder}: {free:.0f} GiB free")
