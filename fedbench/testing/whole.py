"""One check for any registered component: makes it with the options given, and calls the check of its kind."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from fedbench.models.backbone import Blocks, Source
from fedbench.registry.registry import Registry
from fedbench.results.choice import measure
from fedbench.testing import adapters, aggregators, allocations, assets, components, ignoring, methods
from fedbench.testing.executors import check_executor
from fedbench.testing.world import setup_of, tiny_vit

IMAGE_SIZE = 8
MOST = 5_000_000  # parameters of a backbone that is made again with other options


def check_component(registry: Registry, kind: str, name: str, **options: Any) -> None:
    """Check the component of that kind and name. Raises AssertionError; UserError where it cannot be made."""
    ref = {"name": name, **options}
    component = registry.catalogue.find(kind, name)
    fresh = partial(registry.again, component.plugin)
    if kind == "method":
        make = partial(_method, registry, ref)
        methods.check_method(make, registry, again=lambda: partial(_method, fresh(), ref))
        ignoring.check_ignores(make, component.ignores, registry)
    elif kind == "dataset":
        _check_dataset(registry, ref, fresh)
    elif kind == "backbone":
        _check_backbone(registry, ref, fresh)
    elif kind == "aggregator":
        setup = aggregators.setup_for_aggregators(registry)
        assert isinstance(setup.backbone, Blocks)
        made = registry.make(kind, ref, setup=setup)
        aggregators.check_aggregator(made, setup.backbone, lambda: fresh().make(kind, ref, setup=setup))
        ignoring.check_aggregator_ignores(lambda setup: registry.make(kind, ref, setup=setup), component.ignores)
    elif kind == "executor":
        check_executor(registry, ref)
    else:
        checks: dict[str, Callable[..., None]] = {
            "allocation": allocations.check_allocation,
            "adapter": adapters.check_adapter,
            "objective": components.check_objective,
            "partition": components.check_partition,
            "metric": partial(components.check_metric, percent=(component.unit or measure(name).unit) == "%"),
        }
        setup = setup_of(registry, tiny_vit(), [4, 3, 1])
        checks[kind](registry.make(kind, ref, setup=setup), again=lambda: fresh().make(kind, ref, setup=setup))
        if kind == "objective" and "setup" in inspect.signature(registry.component(kind, ref)[0]).parameters:
            ignoring.check_objective_ignores(lambda setup: registry.make(kind, ref, setup=setup), component.ignores)


def _method(registry: Registry, ref: dict[str, Any], setup: Any) -> Any:
    return registry.make("method", ref, setup=setup)


def _check_dataset(registry: Registry, ref: dict[str, Any], fresh: Callable[[], Registry]) -> None:
    def made(by: Registry = registry, image_size: int = IMAGE_SIZE, **other: Any) -> Any:
        return by.make("dataset", {**ref, **other}, image_size=image_size)

    def variants() -> Iterator[tuple[str, Callable[[], Any]]]:
        yield f"`image_size` {2 * IMAGE_SIZE}", partial(_suppressed, made, image_size=2 * IMAGE_SIZE)
        for what, other in _others(registry, "dataset", ref):
            yield what, partial(_suppressed, made, **other)

    make, component = registry.load(registry.catalogue.find("dataset", ref["name"]).plugin)["dataset", ref["name"]]
    sized = "image_size" in inspect.signature(make).parameters
    official = component.source is not None
    assets.check_dataset(made(), lambda: made(fresh()), variants(), IMAGE_SIZE if sized else None, official)


def _check_backbone(registry: Registry, ref: dict[str, Any], fresh: Callable[[], Registry]) -> None:
    """Weights that its plugin draws from torch's global generator are the seed's of the run: it stands still here."""

    def made(by: Registry = registry, load: bool = True, **other: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            return by.make("backbone", {**ref, **other}, load=load)

    source = made()
    small = isinstance(source, Source) and sum(p.numel() for p in source.model.parameters()) <= MOST
    others = _others(registry, "backbone", ref) if small else ()
    variants = ((what, partial(_suppressed, made, **other)) for what, other in others)
    assets.check_backbone(source, lambda load=True: made(fresh() if load else registry, load), variants)


def _others(registry: Registry, kind: str, ref: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The options that are numbers, each with another value."""
    for option, default in registry.catalogue.find(kind, ref["name"]).options.items():
        value = ref.get(option, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"`{option}` {value + 1}", {option: value + 1}


def _suppressed(make: Callable[..., Any], **options: Any) -> Any:
    """What is made of options that may be wrong, None where they are."""
    with suppress(Exception):
        return make(**copy.deepcopy(options))
    return None
