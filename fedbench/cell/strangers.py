"""The components of others that a cell is made of, and how a person is told of one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedbench.registry.catalogue import Component
from fedbench.registry.named import references
from fedbench.registry.registry import Registry

OURS = "fedbench"  # the package whose components the tests of fedbench hold to their contracts
AT_WORK = ("aggregator", "objective", "method", "adapter", "allocation", "metric")  # the likeliest first


def strangers(registry: Registry, config: Mapping[str, Any]) -> dict[tuple[str, str], Component]:
    """Those of a configuration that are not fedbench's own, by kind and name."""
    found = [registry.catalogue.find(kind, ref["name"]) for kind, ref in references(config)]
    return {(c.kind, c.name): c for c in found if c.package != OURS}


def called(registry: Registry, component: Component) -> str:
    """Its kind, name and file. The folder is left out, so that a cell says the same wherever it is computed."""
    file = registry.module_file(component.plugin)
    return f"the {component.kind} {component.name!r} of {Path(file).name if file else component.package}"


def checked_by(component: Component) -> str:
    """The command that looks into it."""
    return f"fedbench plugins check {component.plugin}"


def beginning(made: Callable[..., Any]) -> str:
    """Where a function or a class begins, as ` (mine.py:12)`; "" where no file says so."""
    try:
        return f" ({Path(inspect.getfile(inspect.unwrap(made))).name}:{inspect.getsourcelines(made)[1]})"
    except (OSError, TypeError):
        return ""


def suspicion(registry: Registry, config: Mapping[str, Any]) -> str:
    """Who may be to blame where nothing else is known, in words that follow on a reason; "" where nobody's is at
    work but fedbench's own."""
    at_work = [component for component in strangers(registry, config).values() if component.kind in AT_WORK]
    if not at_work:
        return ""
    likeliest = min(at_work, key=lambda component: (AT_WORK.index(component.kind), component.name))
    return f"; perhaps {called(registry, likeliest)}: {checked_by(likeliest)}"
