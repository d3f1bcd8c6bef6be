"""Slips of a plugin's author: parameters that suites would have to set, and that fedbench was probably meant to."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from fedbench.registry.catalogue import REQUIRED, Component, inputs_of
from fedbench.registry.made import CALLED


def slip(component: Component, given: Collection[str] = ()) -> str:
    """A sentence about what is wrong with the parameters of what was registered, whose options `given` somebody has
    set; "" where nothing looks wrong."""
    return _misspelt(component, given) or _unmade(component, needed(component, given))


def needed(component: Component, given: Collection[str]) -> list[str]:
    """The options without a default that nobody has set."""
    return [option for option, default in component.options.items() if default == REQUIRED and option not in given]


def _unmade(component: Component, lacks: Sequence[str]) -> str:
    """Where a function was registered in place of the one that makes it."""
    if len(lacks) < 2 or not set(lacks) <= set(CALLED.get(component.kind, ())):
        return ""
    return (
        f"it takes {', '.join(lacks)}, with which fedbench calls the {component.kind} itself: register a function that "
        "returns this one"
    )


def _misspelt(component: Component, given: Collection[str]) -> str:
    """Where an option looks like something that the core would have handed over."""
    handed = inputs_of(component.kind)
    for option, default in component.options.items():
        near = difflib.get_close_matches(option, handed, 1, 0.6 if default == REQUIRED else 0.85)
        if option == "t" and default == REQUIRED and "round" in handed:
            near = ["round"]
        unsaid = default is None or default == REQUIRED
        if option not in given and near and (unsaid or near[0].rstrip("s") != option.rstrip("s")):
            return (
                f"its parameter {option!r} is an option of suites, and looks like {near[0]!r}, which fedbench hands "
                f"over: call it {near[0]!r}, or otherwise if it is an option"
            )
    return ""
