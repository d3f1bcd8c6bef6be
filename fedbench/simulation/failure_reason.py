"""Reasons of failed cells: divergence, memory, and the place in a plugin's file that an exception came through."""

from __future__ import annotations

import inspect
import shlex
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedbench.errors import UserError
from fedbench.registry.catalogue import Component, references
from fedbench.registry.registry import Registry


class Diverged(Exception):
    """A training loss, an update or an answer is not finite, by no fault of the scenario."""


def place(error: BaseException, registry: Registry, config: Mapping[str, Any]) -> str:
    """The last line of a plugin's file in the traceback, the components of that file, and the command that checks it.

    Args:
        error: what a cell raised.
        registry: knows the files of the plugins.
        config: the cell's configuration. Only the components that it names are considered.

    Returns:
        Words that follow on the error's own: ` (mine.py:12), in the metric 'f1'; to check it: fedbench plugins check
        mine.py`. "" where no third-party file is in the traceback. The folder is left out, so that a cell says the same
        wherever it is computed.
    """
    try:
        named = [registry.catalogue.find(kind, ref["name"]) for kind, ref in references(config)]
    except (UserError, KeyError):  # of a component that is not there, which the error itself is about
        return ""
    components = {(c.kind, c.name): c for c in named if c.third_party}
    files = {plugin: registry.module_file(plugin) for plugin in {c.plugin for c in components.values()}}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        of_file = [c for c in components.values() if _is_part(frame.filename, files[c.plugin])]
        if of_file:
            names = " or ".join(f"the {c.kind} {c.name!r}" for c in of_file)
            return f" ({Path(frame.filename).name}:{frame.lineno}), in {names}{check_command(of_file[0])}"
    return ""


def _is_part(file: str, module: str | None) -> bool:
    """Whether a file is a plugin's module, or lies in its package."""
    if module is None:
        return False
    package = Path(module).parent
    return file == module or ((package / "__init__.py").is_file() and Path(file).is_relative_to(package))


def name_of(component: Component) -> str:
    """A component's kind, name and file, or package: `the metric 'f1' of mine.py`."""
    source = component.plugin if component.plugin.endswith(".py") else component.package
    return f"the {component.kind} {component.name!r} of {source}"


def check_command(component: Component) -> str:
    """How to check a third-party component, in words that follow on a reason; "" for one of fedbench's own."""
    return f"; to check it: fedbench plugins check {shlex.quote(component.plugin)}" if component.third_party else ""


def beginning(function: Callable[..., Any]) -> str:
    """Where a function or a class begins: ` (mine.py:12)`; "" where it has no file."""
    try:
        return f" ({Path(inspect.getfile(inspect.unwrap(function))).name}:{inspect.getsourcelines(function)[1]})"
    except (OSError, TypeError):
        return ""


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused; on a CPU torch says so by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
