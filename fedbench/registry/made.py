"""What the makers of components return: held to what their kinds are before anybody works with it."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.catalogue import Component

# What the function that such a component makes is called with.
CALLED = {
    "aggregator": ("state", "uploads", "plan", "cohort"),
    "objective": ("exits", "y", "t"),
    "partition": ("y", "domain", "num_domains", "generator"),
    "metric": ("logits", "y"),
    "adapter": ("backbone",),
    "executor": ("jobs", "on_event"),
}

# What the others make; imported when there is one, for some of these come with torch.
INSTANCES = {
    "backbone": "fedbench.models.backbone.Source",
    "dataset": "fedbench.types.Dataset",
    "method": "fedbench.method.Method",
}


class Misfit(UserError):
    """What was made of a component is nothing of its kind."""


def fit(component: Component, made: Any) -> Any:
    """What was made of a component. Raises Misfit."""
    if fault := _fault(component.kind, made):
        raise Misfit(f"the {component.kind} {component.name!r} of {component.package}: {fault}")
    return made


def _fault(kind: str, made: Any) -> str:
    """What is wrong with it, in a sentence; "" where nothing is."""
    if kind in CALLED:
        return _fault_of_function(made, CALLED[kind])
    module, _, name = INSTANCES[kind].rpartition(".")
    if isinstance(made, getattr(import_module(module), name)):
        return ""
    return f"what is registered must return a {INSTANCES[kind]}, not {type(made).__name__}"


def _fault_of_function(made: Any, given: tuple[str, ...]) -> str:
    told = f"what is registered must return a function of ({', '.join(given)})"
    if not callable(made):
        return f"{told}, not {type(made).__name__}"
    try:
        takes = inspect.signature(made)
    except ValueError:  # of what is written in C
        return ""
    try:
        takes.bind(*given)
    except TypeError as error:
        return f"{told}, not of {takes}: {error}"
    return ""
