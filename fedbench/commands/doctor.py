"""fedbench doctor: what would stop a run, and the fix."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
from rich.text import Text

from fedbench import __version__, disk, machine
from fedbench.commands import COMMANDS
from fedbench.commands.choices import PLUGINS, RESULTS
from fedbench.commands.output import Screen
from fedbench.errors import CannotWrite, UserError
from fedbench.machine import package_version
from fedbench.processes.supervisor import ChildFailed, call
from fedbench.registry.installed import DISTRIBUTION, OURS
from fedbench.registry.registry import Registry
from fedbench.results.identity import NUMERICAL
from fedbench.words import counted

ENOUGH_GIB = 2.0  # of memory, and of disk
STARTING = 120.0  # seconds that a worker may take to start, with torch


class Diagnosis(NamedTuple):
    """One thing that was checked.

    Attributes:
        level: `ok`, `note` (a run would work, perhaps not as wished) or `STOP`.
        what: was checked, in at most nine letters.
        found: the result.
        fix: what to do about it.
    """

    level: str
    what: str
    found: str
    fix: str = ""


@click.command()
@PLUGINS
@RESULTS
def doctor(plugins: tuple, results: str) -> None:
    """Check devices, plugins, folders, locks, disk and workers; say what would stop a run.

    \b
    fedbench doctor
    fedbench doctor --results /scratch/results --plugin mine.py

    Exit code: 0 if all is fine, 1 if something would stop a run.
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


def checks(plugins: tuple[str, ...], results: str) -> Iterator[Diagnosis]:
    """Check everything that a run needs, the cheap things first."""
    versions = ", ".join(f"{name} {package_version(name) or '(not installed)'}" for name in NUMERICAL)
    yield Diagnosis("ok", "fedbench", f"{__version__} on Python {sys.version.split()[0]}, {versions}")
    if sys.platform != "linux":
        yield Diagnosis("note", "system", f"{sys.platform}: fedbench is tested on Linux alone; others are untried")
    if other := package_version(OURS):
        found = f"`fedbench` {other} is installed, which is another project's, or this one before 0.2.0"
        fix = f"pip uninstall {OURS} && pip install --force-reinstall --no-deps {DISTRIBUTION}, or `.` in a clone"
        yield Diagnosis("note", "fedbench", found, fix)
    yield from _devices()
    try:
        yield from _plugins(Registry(plugins))
    except UserError as error:
        yield Diagnosis("STOP", "plugins", str(error), "correct the file, or leave out --plugin")
    yield _folder("results", Path(results), "choose another with --results DIR")
    yield _folder("cache", disk.cache_dir(), "set FEDBENCH_CACHE to a folder that can be written to")
    with suppress(OSError):  # there is none: no worker starts either
        yield _folder("temporary", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written to")
    yield _worker()


def _devices() -> Iterator[Diagnosis]:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    level, fix = ("ok", "") if free >= ENOUGH_GIB else ("note", "use --jobs 1, or close other programs")
    yield Diagnosis(level, "cpu", f"{machine.cpu()}, {machine.cores()} cores, {free:.1f} GiB of memory free", fix)
    try:
        import torch
    except Exception as error:  # a broken build raises anything
        yield Diagnosis("STOP", "torch", f"does not import: {error}", "install torch again")
        return
    if torch.cuda.is_available():
        free, total = (count / 2**30 for count in torch.cuda.mem_get_info())
        yield Diagnosis("ok", "gpu", f"{torch.cuda.get_device_name()}, {free:.1f} of {total:.1f} GiB free")
    elif machine.has_gpu():
        fix = "install a CUDA build of torch that fits the driver"
        yield Diagnosis("note", "gpu", "a driver is there, but torch cannot use it", fix)
    else:
        yield Diagnosis("ok", "gpu", "none; runs use the CPU")


def _plugins(registry: Registry) -> Iterator[Diagnosis]:
    catalogue, packages = registry.catalogue, len(registry.entry_points)
    yield Diagnosis("ok", "plugins", f"{packages} installed, {counted(sum(1 for _ in catalogue), 'component')}")
    for plugin, message in catalogue.broken.items():
        if plugin not in registry.troubles:
            yield Diagnosis("note", "plugin", message, f"update or uninstall {registry.package(plugin)}")
    for message in (*registry.refused(COMMANDS), *catalogue.refusals()):
        yield Diagnosis("note", "plugin", message, "correct or uninstall that package")
    yield from (Diagnosis("note", "plugin", message) for message in catalogue.clashes.values())


def _folder(what: str, folder: Path, fix: str) -> Diagnosis:
    """Whether files can be written and locked in a folder, and how much room there is."""
    try:
        disk.try_folder(folder, "")
    except CannotWrite as error:
        return Diagnosis("STOP", what, str(error).rstrip(), fix)
    scarce = (free := disk.free_disk(folder) / 2**30) < ENOUGH_GIB
    return Diagnosis("note" if scarce else "ok", what, f"{folder}: {free:.1f} GiB free", fix if scarce else "")


def _worker() -> Diagnosis:
    """Whether a worker process starts as those of a run do: socket, server, fork and answer."""
    try:
        call("fedbench.commands.doctor:answer", None, timeout=STARTING)
    except UserError as error:
        return Diagnosis("STOP", "workers", str(error))
    except ChildFailed as error:
        return Diagnosis("STOP", "workers", f"a worker {error.reason}", "see the limits of processes and memory")
    return Diagnosis("ok", "workers", "a worker process starts and answers")


def answer(argument: None, tell: object) -> str:
    """What a worker does for `doctor`."""
    return "here"
