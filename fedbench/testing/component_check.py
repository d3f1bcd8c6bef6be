"""Checks of registered components: what a name stands for, and whether each component keeps its contract."""

from __future__ import annotations

import copy
import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import fedbench
from fedbench.data import root_of
from fedbench.errors import UserError
from fedbench.models.backbone import Blocks, Source
from fedbench.registry.catalogue import KINDS, Component
from fedbench.registry.contracts import fault_of_parameters, unset_options
from fedbench.registry.registry import LIFECYCLE, Registry
from fedbench.results.scores import measure
from fedbench.simulation.failure_reason import beginning
from fedbench.suite.values import A_NAME, NAMED
from fedbench.testing import (
    adapter_check,
    aggregator_check,
    backbone_check,
    dataset_check,
    function_check,
    ignores_check,
    method_check,
)
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.words import meant

IMAGE_SIZE = 8
OK, SKIPPED, BROKEN = "ok", "skipped", "BROKEN"
MOST = 5_000_000  # parameters of a backbone that is made again with other options
OURS = Path(fedbench.__file__).parent

# Settings of the process that a component must leave as they are. Honest imports change none of them.
SETTINGS: dict[str, Callable[[], Any]] = {
    "current folder": os.getcwd,
    "default of torch": lambda: (torch.get_default_dtype(), torch.get_default_device()),
    "gradients": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
    "determinism": lambda: (torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()),
    "numpy's errors": np.geterr,
}


class Verdict(NamedTuple):
    """Whether something keeps its contract.

    Attributes:
        verdict: OK, SKIPPED or BROKEN.
        what: a component or a plugin, as in `allocation strided`.
        why: in a sentence, unless it is OK.
    """

    verdict: str
    what: str
    why: str = ""


def check_component(registry: Registry, kind: str, name: str, **options: Any) -> None:
    """Check the component of that kind and name. Raises AssertionError; UserError where it cannot be made."""
    ref = {"name": name, **options}
    component = registry.catalogue.find(kind, name)
    fresh = partial(registry.again, component.plugin)
    if kind == "method":
        make = partial(_method, registry, ref)
        method_check.check_method(make, registry, again=lambda: partial(_method, fresh(), ref))
        ignores_check.check_ignores(make, component.ignores, registry)
    elif kind == "dataset":
        _check_dataset(registry, ref, fresh)
    elif kind == "backbone":
        _check_backbone(registry, ref, fresh)
    elif kind == "aggregator":
        setup = aggregator_check.setup_for_aggregators(registry)
        assert isinstance(setup.backbone, Blocks)
        made = registry.make(kind, ref, setup=setup)
        aggregator_check.check_aggregator(made, setup.backbone, lambda: fresh().make(kind, ref, setup=setup))
        ignores_check.check_aggregator_ignores(lambda setup: registry.make(kind, ref, setup=setup), component.ignores)
    elif kind == "executor":
        registry.make(kind, ref, workers=1, most=None, timeout=None, memory_limit=None, gpu=0.0, gpus=[])
    else:
        checks: dict[str, Callable[..., None]] = {
            "allocation": function_check.check_allocation,
            "adapter": adapter_check.check_adapter,
            "objective": function_check.check_objective,
            "partition": function_check.check_partition,
            "metric": partial(function_check.check_metric, percent=(component.unit or measure(name).unit) == "%"),
        }
        setup = setup_of(registry, tiny_vit(), [4, 3, 1])
        checks[kind](registry.make(kind, ref, setup=setup), again=lambda: fresh().make(kind, ref, setup=setup))
        if kind == "objective" and "setup" in inspect.signature(registry.component(kind, ref)[0]).parameters:
            ignores_check.check_objective_ignores(
                lambda setup: registry.make(kind, ref, setup=setup), component.ignores
            )


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
    dataset_check.check_dataset(made(), lambda: made(fresh()), variants(), IMAGE_SIZE if sized else None, official)


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
    backbone_check.check_backbone(source, lambda load=True: made(fresh() if load else registry, load), variants)


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


def found(asked: Mapping[str, Any], tell: object = None) -> dict[str, Any]:
    """What a name stands for.

    Args:
        asked: `name`, of a file, a component, a plugin or a package, and `plugins`, files that are loaded too.
        tell: not used; the supervisor passes it.

    Returns:
        `components`, see `fedbench.commands.verdicts.CheckedComponent`, and `verdicts` on plugins that register
        none.

    Raises:
        UserError: where nothing has that name.
    """
    name, plugins = asked["name"], asked["plugins"]
    if name.endswith(".py"):
        made = _of_file(name, plugins)
    else:
        registry = Registry(plugins)
        broken = [Verdict(BROKEN, f"plugin {plugin}", why) for plugin, why in _broken(registry, name)]
        made = [*_named(registry, name, bool(broken)), *broken]
    return {
        "components": [
            {"kind": c.kind, "name": c.name, "plugin": c.plugin, "options": list(c.options), "open": c.open}
            for c in made
            if isinstance(c, Component)
        ],
        "verdicts": [one for one in made if isinstance(one, Verdict)],
    }


def judged(asked: Mapping[str, Any], tell: object = None) -> Verdict:
    """Return how a component keeps its contract, or why not.

    A component that needs options, or data that are not here, cannot be checked.

    Args:
        asked: its `kind`, `name` and `plugin`; `options` for it, where it has them; `plugins`, the files to load.
        tell: not used; the supervisor passes it.
    """
    torch.set_num_threads(1)
    kind, name, options = asked["kind"], asked["name"], asked["options"]
    registry = Registry(asked["plugins"], in_place=True)
    what, (make, component) = f"{kind} {name}", registry.load(asked["plugin"])[kind, name]
    file = registry.module_file(asked["plugin"])
    refused = component.package != "fedbench" and "; ".join(registry.catalogue.refusals({(kind, name)}))
    if clash := registry.catalogue.clashes.get(what) or refused:
        return Verdict(BROKEN, what, clash)
    if not NAMED.fullmatch(name):
        return Verdict(BROKEN, what, f"suites and filters cannot name it: a name has {A_NAME}")
    own = {key: value for key, value in options.items() if component.open or key in component.options}
    if message := fault_of_parameters(component, own):
        return Verdict(BROKEN, what, message)
    if unset := unset_options(component, own):
        sets = " ".join(f"--set {key}=..." for key in unset)
        return Verdict(SKIPPED, what, f"it needs {', '.join(unset)}: give {sets}")
    root = own.get("root") or root_of(name)
    if component.source and (lacks := component.source.lacks(name, root)):
        return Verdict(SKIPPED, what, lacks.partition("\n")[0])
    before = {name: setting() for name, setting in SETTINGS.items()}
    try:
        check_component(registry, kind, name, **own)
    except KeyboardInterrupt:
        raise
    except AssertionError as error:
        return Verdict(BROKEN, what, str(error) if _is_ours(error) else _in_one_line(error, make, file))
    except BaseException as error:  # whatever the component raises, SystemExit among it
        if kind == "executor" and isinstance(error, UserError):  # what it needs is not on this machine
            return Verdict(SKIPPED, what, str(error))
        return Verdict(BROKEN, what, _in_one_line(error, make, file))
    if changed := sorted(name for name, setting in SETTINGS.items() if setting() != before[name]):
        return Verdict(BROKEN, what, f"it changes settings of the process ({', '.join(changed)}): set them back")
    return Verdict(OK, what)


def _of_file(file: str, plugins: Sequence[str]) -> Sequence[Component | Verdict]:
    """The components that a file registers, or a verdict where it registers none."""
    registry, plugin = Registry([*plugins, file]), Path(file).name
    try:
        made = registry.load(plugin)
    except UserError as error:
        return [Verdict(BROKEN, f"plugin {plugin}", str(error))]
    if made:
        return [component for _, component in made.values()]
    if any(hasattr(registry.manager.get_plugin(plugin), hook) for hook in LIFECYCLE):
        return [Verdict(OK, f"tracker {plugin}")]
    hooks = ", ".join(KINDS.values())
    why = f"it registers nothing: write a function called as one of {hooks}, with @fedbench.hookimpl above it"
    return [Verdict(BROKEN, f"plugin {plugin}", why)]


def _named(registry: Registry, name: str, is_broken: bool) -> list[Component]:
    """Every component of that name, and all of the plugin or the package of that name.

    Raises:
        UserError: where there is none, unless plugins of that name are broken.
    """
    catalogue = registry.catalogue
    known = [*catalogue, *catalogue.refused]
    components = [c for c in known if name in (c.name, c.plugin, c.package)]
    if not components and not is_broken:
        names = {word for c in known for word in (c.name, c.plugin, c.package)}
        hint = meant(name, sorted(names), "`fedbench plugins list --components` lists what there is")
        raise UserError(f"no component is called {name!r}, and no plugin or package; {hint}")
    return components


def _broken(registry: Registry, name: str) -> Iterator[tuple[str, str]]:
    """The plugins of that name, or of a package of that name, that do not load, and why."""
    for plugin, why in registry.catalogue.broken.items():
        if plugin == name or (plugin in registry.entry_points and registry.package(plugin) == name):
            yield plugin, why


def _is_ours(error: AssertionError) -> bool:
    """Whether a check has raised it, and nothing that was checked."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent == Path(__file__).parent


def _in_one_line(error: BaseException, make: Callable[..., Any], file: str | None) -> str:
    """An exception in one line, with the last place in the plugin's own file and with its notes.

    Where fedbench raised it, the place is that where `make`, what is registered, begins.
    """
    frames = traceback.extract_tb(error.__traceback__)
    message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    if own := [frame for frame in frames if frame.filename == file]:
        place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})"
    elif Path(frames[-1].filename).is_relative_to(OURS):
        place = beginning(make)
    else:
        place = f" ({frames[-1].filename}:{frames[-1].lineno})"
    return "; ".join([f"{message}{place}", *getattr(error, "__notes__", ())])
