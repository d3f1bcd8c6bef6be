"""Reasons of failed cells: divergence, memory, exceptions in a plugin's file, and wrong results of plugins."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.data.checked import of_what
from fedbench.errors import UserError, text_of
from fedbench.method import Method, State
from fedbench.models.param_paths import places
from fedbench.registry.catalogue import Component, references
from fedbench.registry.registry import Registry
from fedbench.types import Report, SummedMetric
from fedbench.words import quoted


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


def check_command(component: Component) -> str:
    """How to check a third-party component, in words that follow on a reason; "" for one of fedbench's own."""
    return f"; to check it: fedbench plugins check {quoted(component.plugin)}" if component.third_party else ""


def beginning(function: Callable[..., Any]) -> str:
    """Where a function or a class begins: ` (mine.py:12)`; "" where it has no file."""
    try:
        return f" ({Path(inspect.getfile(inspect.unwrap(function))).name}:{inspect.getsourcelines(function)[1]})"
    except (OSError, TypeError):
        return ""


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused; on a CPU torch says so by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text_of(error)


class PluginFault(UserError):
    """A plugin returned something of the wrong shape or type."""


def plugin_fault(component: Component, fault: str, function: Callable[..., Any]) -> PluginFault:
    """The error for a wrong result.

    Args:
        component: the plugin's component that returned it.
        fault: what is wrong with it, in a sentence.
        function: what was called; the message says where it begins.
    """
    source = component.plugin if component.plugin.endswith(".py") else component.package
    who = f"the {component.kind} {component.name!r} of {source}"
    return PluginFault(f"{who}{beginning(function)}: {fault}{check_command(component)}")


def checked(component: Component, made: Any) -> Any:
    """An aggregator or an objective whose results are checked; of any other kind what was made, as it is.

    fedbench's own components are left as they are, since its tests check them.

    Raises:
        PluginFault: from the function that is returned, for a result of the wrong shape or type.
    """
    if not component.third_party or component.kind not in ("aggregator", "objective"):
        return made
    fault_of = fault_of_state if component.kind == "aggregator" else fault_of_loss

    def checking(given: Any, *args: Any, **named: Any) -> Any:
        result = made(given, *args, **named)
        if fault := fault_of(given, result):
            raise plugin_fault(component, fault, made)
        return result

    vars(checking).update(getattr(made, "__dict__", {}))  # an aggregator says by attributes what it needs
    checking.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
    return checking


def checked_round(component: Component, method: Method, *given: Any) -> tuple[State, Report]:
    """A round of a method: the next state and its report.

    Raises:
        PluginFault: where the method returns something else.
    """
    made = method.round(*given)
    if fault := fault_of_round(made):
        raise plugin_fault(component, fault, method.round)
    return made


def checked_metric(component: Component, measure: Callable[[Tensor, Tensor], Any]) -> Callable[..., float]:
    """A metric that gets its own copy of logits and labels, and returns one number.

    Raises:
        PluginFault: from the function that is returned, where the metric returns something else.
    """
    if isinstance(measure, SummedMetric):
        read, sums = _number_of(component, measure.value), measure.sums
        return SummedMetric(lambda logits, y: sums(logits.clone(), y.clone()), read, measure.task)
    read = _number_of(component, measure)
    return lambda logits, y: read(logits.clone(), y.clone())


def _number_of(component: Component, measure: Callable[..., Any]) -> Callable[..., float]:
    def measured(*given: Tensor) -> float:
        value = measure(*given)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            fault = f"a metric returns one number, not {of_what(value)}"
            raise plugin_fault(component, fault, measure) from None

    return measured


def fault_of_state(given: State, made: Any) -> str:
    """What is wrong with the state that an aggregator returns, in a sentence; "" where nothing is.

    Its layers and what they share must have tensors of the same names, shapes and types as in the given state.
    """
    if not isinstance(made, Mapping):
        return f"it returned {of_what(made)} instead of a state, a dict with all that it was given"
    if not _laid_out(given):
        return ""  # of a method whose state has another layout
    if lacks := [part for part in ("r", "shared") if part not in made]:
        return f"it returned a state without {lacks[0]!r}: begin with dict(state)"
    if not _laid_out(made) or len(made["r"]) != len(given["r"]):
        return (
            'it returned a state in another layout: state["r"] is a list with a dict of tensors for each of '
            f'{len(given["r"])} layers, state["shared"] a dict of tensors'
        )
    was, new = dict(places(given)), dict(places(made))
    for place in [*was, *new]:
        if place not in new:
            return f"it returned a state without {place}, which it was given"
        if place not in was:
            return f"it returned a state with {place}, which it was not given"
        if not _same_kind(new[place], was[place]):
            return f"it returned {of_what(new[place])} for {place}, where {of_what(was[place])} is right"
    return ""


def fault_of_round(made: Any) -> str:
    """What is wrong with what a method's round returns, in a sentence; "" where nothing is."""
    if not isinstance(made, tuple) or len(made) != 2:
        return f"a round returns (state, Report), not {of_what(made)}"
    state, report = made
    if not isinstance(state, Mapping) or not isinstance(report, Report):
        return f"a round returns (state, Report), not ({of_what(state)}, {of_what(report)})"
    return ""


def fault_of_loss(exits: Sequence[Tensor], loss: Any) -> str:
    """What is wrong with the loss of a client's logits, in a sentence; "" where nothing is."""
    if not isinstance(loss, Tensor) or loss.dim():
        return f"the loss must be a scalar tensor, not {of_what(loss)}; take a mean over the batch"
    if torch.is_grad_enabled() and any(logits.requires_grad for logits in exits) and not loss.requires_grad:
        return "the loss has no gradient: do not detach it"
    return ""


def _same_kind(one: Any, other: Tensor) -> bool:
    return isinstance(one, Tensor) and (one.shape, one.dtype) == (other.shape, other.dtype)


def _laid_out(made: Mapping[str, Any]) -> bool:
    layers, shared = made.get("r"), made.get("shared")
    return isinstance(layers, list | tuple) and all(isinstance(part, Mapping) for part in (*layers, shared))
