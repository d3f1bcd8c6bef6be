"""What a plugin's module gets wrong about its hooks, said before any of them is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from fedbench import hookspecs
from fedbench.words import meant

PREFIX = "fedbench_"
HOOKS = {name: value for name, value in vars(hookspecs).items() if name.startswith(PREFIX)}


def faults(module: ModuleType) -> Iterator[str]:
    """One sentence for each function of the module that looks like a hook and would not be called, or not as it is
    written."""
    for name, value in list(vars(module).items()):
        if not (name.startswith(PREFIX) and inspect.isroutine(value)):
            continue
        marked = getattr(value, "fedbench_impl", None) is not None
        if not marked and getattr(value, "__module__", None) != module.__name__:
            continue  # imported, and not meant as a hook of this plugin
        if name not in HOOKS:
            yield f"fedbench has no hook {name}; {meant(name, HOOKS, 'docs/plugins.md lists the hooks')}"
        elif not marked:
            yield f"{name} is not marked as a hook and would never be called: write @fedbench.hookimpl above it"
        else:
            yield from _parameters(name, value)


def _parameters(name: str, hook: Any) -> Iterator[str]:
    given, taken = list(inspect.signature(HOOKS[name]).parameters), list(inspect.signature(hook).parameters)
    for parameter in taken:
        if parameter not in given:
            yield f"{name} takes {parameter!r}, which no hook is given; it may take {', '.join(given)}"
    if given == ["register"] and not taken:
        yield f"{name} can register nothing without its argument: def {name}(register): register(NAME, ...)"
