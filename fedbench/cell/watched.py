"""What others' plugins do beside their work: chance drawn from where all draw, and who is to blame for a failure."""

from __future__ import annotations

import copy
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from fedbench.cell.chance import drawn, moved
from fedbench.cell.reasons import Diverged
from fedbench.cell.returned import fault_of_loss, fault_of_round, fault_of_state
from fedbench.cell.strangers import beginning, called, checked_by, strangers, suspicion
from fedbench.errors import NotApplicable, UserError
from fedbench.families.allocation import SEEDS, is_deaf, is_free
from fedbench.method import Method, State
from fedbench.registry.catalogue import Component
from fedbench.registry.registry import Registry
from fedbench.types import Report

WITHIN = ("adapter", "backbone")  # whose modules are at work inside what a method computes, call by call unseen


class Watched:
    """The components of others that a cell is made of, and what was noticed of them.

    warnings: one sentence for each thing, in order.
    """

    def __init__(self, registry: Registry, config: Mapping[str, Any]) -> None:
        self.registry, self.warnings = registry, list[str]()
        self.config, self.strangers = config, strangers(registry, config)
        self._error: BaseException | None = None
        self._blamed: Component | None = None  # for that error
        self._last: Component | None = None
        self._told: list[str] = []  # generators whose change has a name already

    @contextmanager
    def calling(self, kind: str, name: str) -> Iterator[None]:
        """Around a call of a component: what it draws from the generators that all share is a warning, and what it
        raises is its own."""
        component = self.strangers.get((kind, name))
        suspects = [component] if component else []
        if kind == "method":  # nothing of fedbench's own draws there
            suspects += [c for within in WITHIN for c in self.strangers.values() if c.kind == within]
        if not suspects:
            yield
            return
        before, told = drawn(), len(self._told)
        try:
            yield
        except BaseException as error:
            if component and self._error is not error:
                self._error, self._blamed = error, component
            raise
        self._last = component or self._last
        within = self._told[told:]
        if drew := [whose for whose in moved(before) if whose not in within]:
            self._told += drew
            self._warn_of_chance(suspects, drew)

    def _warn_of_chance(self, suspects: Sequence[Component], drew: Sequence[str]) -> None:
        """suspects: one of whom it was."""
        what = f"draws from a global generator (of {', '.join(drew)}), and what comes out may depend on what ran before"
        self.warn(suspects[0], what, suspects[1:])

    def warn(self, component: Component, what: str, others: Sequence[Component] = ()) -> None:
        """Note what a component does, or else one of the others; the same thing once."""
        who = ", or ".join(called(self.registry, one) for one in (component, *others)) + ("," if others else "")
        checks = dict.fromkeys(checked_by(one) for one in (component, *others))
        told = f"{who} {what}: {', '.join(checks)}"
        if told not in self.warnings:
            self.warnings.append(told)

    def wrapped(self, kind: str, name: str, made: Any) -> Any:
        """What was made of a component, each call of it watched; one of our own as it is."""
        component = self.strangers.get((kind, name))
        if component is None or not callable(made) or kind not in ("allocation", "aggregator", "objective"):
            return made
        if kind == "objective":
            return self._objective(name, made)
        if kind == "aggregator":
            return self._aggregator(name, made)
        pending = "generator" in inspect.signature(made).parameters

        def watched(*args: Any, **given: Any) -> Any:
            nonlocal pending
            others = copy.deepcopy({key: given[key] for key in given if key != "generator"}) if pending else {}
            with self.calling(kind, name):
                found = made(*args, **given)
            if pending and is_free(found):
                pending = False
                if is_deaf(lambda generator: made(**copy.deepcopy(others), generator=generator)):
                    self.warn(component, f"gives the same M for {SEEDS} seeds, though it takes a generator")
            return found

        return _like(made, watched)

    def round(self, method: Method, *given: Any) -> tuple[State, Report]:
        """A round of the cell's method."""
        with self.calling("method", self.config["method"]["name"]):
            made = method.round(*given)
            if wrong := fault_of_round(made):
                raise UserError(f"{wrong}{beginning(method.round)}")
        return made

    def _objective(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """An objective is called in every step of every client."""

        def watched(exits: Sequence[Tensor], *args: Any, **given: Any) -> Any:
            with self.calling("objective", name):
                loss = made(exits, *args, **given)
                if wrong := fault_of_loss(exits, loss):
                    raise UserError(f"{wrong}{beginning(made)}")
            return loss

        return _like(made, watched)

    def _aggregator(self, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        def watched(state: State, *args: Any, **given: Any) -> Any:
            with self.calling("aggregator", name):
                new = made(state, *args, **given)
                if wrong := fault_of_state(state, new):
                    raise UserError(f"{wrong}{beginning(made)}")
            return new

        return _like(made, watched)

    def metric(self, name: str, measure: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
        """A metric that is given a copy of its own, and gives one number."""
        component = self.strangers.get(("metric", name))

        def measured(logits: Tensor, y: Tensor) -> float:
            with self.calling("metric", name):
                value = measure(logits.clone(), y.clone())
                try:
                    return float(value)
                except (TypeError, ValueError, RuntimeError) as error:
                    if component is None:
                        raise
                    kind = type(value).__name__
                    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
                    raise TypeError(f"a metric returns one number, not a {kind}{shape}") from error

        return measured

    def blame(self, error: BaseException) -> str:
        """Whose fault an exception is likely to be, and how to find out: `; the metric 'f1' of mine.py: ...`; "" where
        nobody else's code is about."""
        culprit, guess = self._culprit(error), ""
        if isinstance(error, Diverged):  # by a learning rate, or by what trains
            return suspicion(self.registry, self.config)
        if culprit is None and not isinstance(error, UserError | NotApplicable):  # it came up in our own code
            culprit, guess = self._last or next(iter(self.strangers.values()), None), "perhaps "
        if culprit is None:
            return ""
        return f"; {guess}{called(self.registry, culprit)}: {checked_by(culprit)}"

    def _culprit(self, error: BaseException) -> Component | None:
        """Who raised it, or was called as it was raised, or is named by what is the suite's fault as well."""
        blamed = self._blamed if self._error is error else None
        files = {self.registry.module_file(c.plugin): c for c in self.strangers.values()}
        frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        raised = next((files[file] for file in reversed(frames) if file in files), None)
        if blamed or raised:
            return blamed or raised
        named = [c for c in self.strangers.values() if self.registry.package(c.plugin) in str(error)]
        return named[0] if named else None


def _like(made: Any, watched: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the attributes and the signature of what it stands for."""
    vars(watched).update(getattr(made, "__dict__", {}))
    watched.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
    return watched
