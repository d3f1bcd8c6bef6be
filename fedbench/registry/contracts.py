"""Checks of registered components: their parameters, and the type and signature of what they make."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from fedbench import hookspecs
from fedbench.errors import UserError
from fedbench.registry.catalogue import REQUIRED, Component, inputs_of
from fedbench.types import Dataset
from fedbench.words import is_text, meant

PREFIX = "fedbench_"
HOOKS = {name: value for name, value in vars(hookspecs).items() if name.startswith(PREFIX)}

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

# Symbols of the papers and other usual names of what the core passes to an allocation.
USUAL_NAMES = {
    "t": "round",
    "L": "num_layers",
    "n_layers": "num_layers",
    "L_n": "capacities",
    "rng": "generator",
    "gen": "generator",
}


class Misfit(UserError):
    """What was made of a component does not have the type or the signature of its kind."""


def fit(component: Component, made: Any) -> Any:
    """What was made of a component, as it is.

    Raises:
        Misfit: where it does not have the type or the signature of the component's kind.
    """
    if fault := _fault(component.kind, made):
        raise Misfit(f"the {component.kind} {component.name!r} of {component.package}: {fault}")
    return made


def _fault(kind: str, made: Any) -> str:
    """What is wrong with it, in a sentence; "" where nothing is."""
    if kind in CALLED:
        return _fault_of_function(made, CALLED[kind])
    module, _, name = INSTANCES[kind].rpartition(".")
    if isinstance(made, getattr(import_module(module), name)):
        return _fault_of_dataset(made) if kind == "dataset" else ""
    return f"what is registered must return a {INSTANCES[kind]}, not {type(made).__name__}"


def _fault_of_dataset(made: Dataset) -> str:
    """Which domain or class has a name that no result can hold, as folders may have, or that there is one class alone;
    "" where nothing is wrong."""
    for noun, names in (("domain", made.domains), ("class", made.classes)):
        if odd := [name for name in names if not is_text(str(name))]:
            return f"the name of the {noun} {odd[0]!r} is not UTF-8, as names in results are; rename its folder"
    from fedbench.data.checked import fault_of_classes  # here, so that lists import no numpy

    return fault_of_classes(made)


def _fault_of_function(made: Any, given: tuple[str, ...]) -> str:
    wanted = f"what is registered must return a function of ({', '.join(given)})"
    if not callable(made):
        return f"{wanted}, not {type(made).__name__}"
    try:
        takes = inspect.signature(made)
    except ValueError:  # of what is written in C
        return ""
    try:
        takes.bind(*given)
    except TypeError as error:
        return f"{wanted}, not of {takes}: {error}"
    return ""


def unset_options(component: Component, given: Collection[str]) -> list[str]:
    """The options without a default that are not among those given."""
    return [option for option, default in component.options.items() if default == REQUIRED and option not in given]


def fault_of_parameters(component: Component, given: Collection[str] = ()) -> str:
    """What is wrong with the parameters of what was registered, in a sentence; "" where nothing looks wrong.

    Args:
        component: every parameter that the core does not pass is an option of it.
        given: the options that somebody has set, which are options without doubt.
    """
    return _misspelt_input(component, given) or _missing_maker(component, given)


def _missing_maker(component: Component, given: Collection[str]) -> str:
    """Whether a function was registered in place of the one that makes it."""
    unset = unset_options(component, given)
    if len(unset) < 2 or not set(unset) <= set(CALLED.get(component.kind, ())):
        return ""
    return (
        f"it takes {', '.join(unset)}, with which fedbench calls the {component.kind} itself: register a function that "
        "returns this one"
    )


def _misspelt_input(component: Component, given: Collection[str]) -> str:
    """Whether an option looks like something that the core passes under another name."""
    inputs = inputs_of(component.kind)
    for option, default in component.options.items():
        undecided = default is None or default == REQUIRED
        near = difflib.get_close_matches(option, inputs, 1, 0.6 if default == REQUIRED else 0.85)
        if undecided and USUAL_NAMES.get(option) in inputs:
            near = [USUAL_NAMES[option]]
        if option not in given and near and (undecided or near[0].rstrip("s") != option.rstrip("s")):
            return (
                f"its parameter {option!r} is an option of suites; did you mean {near[0]!r}, which fedbench passes? "
                f"Call it {near[0]!r}, or otherwise if it is an option"
            )
    return ""


def hook_faults(module: ModuleType) -> Iterator[str]:
    """One sentence for each function of a module that looks like a hook and would not be called as it is written."""
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
            yield from _faults_of_parameters(name, value)


def _faults_of_parameters(name: str, hook: Any) -> Iterator[str]:
    given, taken = list(inspect.signature(HOOKS[name]).parameters), list(inspect.signature(hook).parameters)
    for parameter in taken:
        if parameter not in given:
            yield f"{name} takes {parameter!r}, which no hook is given; it may take {', '.join(given)}"
    if given == ["register"] and not taken:
        yield f"{name} can register nothing without its argument: def {name}(register): register(NAME, ...)"
