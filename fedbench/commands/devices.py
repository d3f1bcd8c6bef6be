"""fedbench devices: which there are, and which size of each method fits them."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import FORM, TIMEOUT, SuiteFile, cells
from fedbench.commands.output import put, warn_of_lost
from fedbench.commands.terminal import say
from fedbench.devices.assignment import server_of
from fedbench.devices.feasibility import Outlook
from fedbench.devices.table import SERVER, SHIPPED, device_of
from fedbench.disk import hash_of_json
from fedbench.errors import UnknownName, UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.estimate import DEADLINE, cost_estimates
from fedbench.suite import load
from fedbench.suite.shipped import found
from fedbench.words import human_bytes, human_flops, lasting, nearest

if TYPE_CHECKING:
    from fedbench.report.views.devices import Outlooks, Where
    from fedbench.suite import Suite
    from fedbench.types import Device

ALL = "all_devices"  # the scenario of a backbone without a suite
MEASURE = "fedbench.deployment.measuring:measured_device"
BACKBONE = """suite: devices
defaults: {{backbone: "{name}", data: {{name: strokes6}}}}
scenarios: {{{ALL}: {{devices: {{{devices}}}}}}}
methods: [{methods}]
"""


@click.command()
@click.argument("suite", type=SuiteFile(), required=False, metavar="[SUITE|DEVICE]")
@cells
@click.option("--backbone", metavar="NAME", help="Show all methods with this backbone, instead of a suite.")
@click.option("--measure", is_flag=True, help="Describe this machine as a device, in YAML for a suite.")
@click.option("--images", default=500, show_default=True, type=click.IntRange(1), help="Training images of a client.")
@TIMEOUT
@FORM
def devices(
    suite: str | None,
    backbone: str | None,
    measure: bool,
    images: int,
    timeout: float | None,
    form: str,
    plugins: tuple,
    scenarios: tuple,
    methods: tuple,
    seeds: tuple,
    variants: tuple,
    **choices: Any,
) -> None:
    """List the devices that come with fedbench, or show one; with SUITE or --backbone, the largest size of each method
    that each device can train, and how long a round takes there. No data are needed, and nothing is trained.

    \b
    fedbench devices
    fedbench devices phone_high
    fedbench devices --backbone vit_base_patch16_224 --method fedra --method flora
    fedbench devices suites/extreme_hetero.yaml --format markdown
    fedbench devices --measure > this_machine.yaml

    If a scenario gives its clients no devices, all devices that come with fedbench are shown, ordered by memory.

    Exit code: 0, or 1 if a plugin fails, which a note names.
    """
    from fedbench.report.views.devices import listed

    if measure:
        if suite is not None:
            raise UserError("devices: a suite or --measure, not both")
        click.echo(measured(backbone or "micro_vit", timeout))
        return
    if suite is None and backbone is None:
        put(listed(list(SHIPPED.values())), form)
        return
    if suite in SHIPPED and not Path(str(suite)).exists():
        put(listed([SHIPPED[str(suite)]]), form)
        return
    if suite is not None and backbone is not None:
        raise UserError("devices: a suite or --backbone, not both")
    from fedbench.report.views.devices import fitting, shared

    registry = Registry(plugins, timeout=timeout)
    if suite is None:
        loaded = of_backbone(str(backbone), methods, list(SHIPPED), registry, choices)
    else:
        loaded = load(_suite_file(suite), registry.catalogue, **choices)
    chosen, facts = (scenarios, methods, seeds, variants), CachedFacts(registry, loaded.base)
    answer = fits_of(loaded, chosen, facts, images, timeout or DEADLINE)
    fits = fitting(loaded.name, answer.found, answer.missing, images, answer.ruled, answer.how)
    put(fits if form in ("csv", "json") else shared(fits), form)
    sys.exit(1 if warn_of_lost(registry) or answer.failed else 0)


def _suite_file(given: str) -> str:
    """The file of a suite. Raises UnknownName with the nearest suites and devices."""
    try:
        return found(given)
    except UnknownName as error:
        near = [*error.near, *nearest(given, SHIPPED, most=2)]
        named = f"{given}: no device, shipped suite or file has this name; `fedbench devices` lists devices"
        raise UnknownName(named, near) from None


def measured(backbone: str, timeout: float | None) -> str:
    """This machine as the `devices` of a suite, in YAML. Raises UserError where it cannot be measured."""
    from fedbench.processes.signals import raising
    from fedbench.processes.supervisor import ChildFailed, call

    given = {"backbone": json.dumps({"name": backbone}), "steps": 4, "batch": 16}
    try:
        with raising():
            found = call(MEASURE, given, timeout=timeout, on_event=lambda event: say(event.get("line", ""), err=True))
    except ChildFailed as error:
        raise UserError(f"devices --measure: it {error.reason}") from error
    numbers = {key: float(f"{value:.3g}") for key, value in found["numbers"].items()}
    by_method = "; ".join(
        f"{precision}: {', '.join(f'{method} {human_flops(value)}/s' for method, value in own.items())}"
        for precision, own in found["flops"].items()
    )
    lines = [f"    {key}: {value:.3e}" if value > 1e4 else f"    {key}: {value:g}" for key, value in numbers.items()]
    return "\n".join(
        [
            "devices:",
            "  this_machine:",
            *lines,
            f"    source: measured with {backbone} on one core",
            f"# {by_method}.",
            "# memory is half of the machine's; down and up are not measured, but those of fixed lines in the USA.",
            *([busy] if (busy := _busy()) else []),
        ]
    )


def _busy() -> str:
    """A comment where other programs have the processors; "" where they do not."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores:
        return ""
    return f"# The load was {load:.1f} on {cores} cores: a message takes less on an idle machine."


def of_backbone(
    name: str, methods: Sequence[str], there: Sequence[str], registry: Any, choices: Mapping[str, Any]
) -> Suite:
    """A suite of one backbone and many methods on these devices."""
    known = methods or registry.catalogue.components["method"]
    text = BACKBONE.format(
        name=name, ALL=ALL, methods=", ".join(known), devices=", ".join(f"{one}: 1" for one in there)
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "devices.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, registry.catalogue, **choices)


@dataclass(frozen=True)
class Fits:
    """What fits by scenario, variant, backbone and method.

    Attributes:
        missing: notes on methods without a size.
        ruled: what sizes must fit into.
        how: a sentence on how clients train.
        failed: whether a plugin has failed.
    """

    found: Mapping[Where, Outlooks]
    missing: list[str]
    ruled: str
    how: str
    failed: bool


def fits_of(loaded: Suite, chosen: tuple, facts: Any, images: int, timeout: float) -> Fits:
    """What of a suite fits its devices. chosen: scenarios, methods, seeds and variants."""
    points: dict[tuple[Where, str], str] = {}
    devices: dict[str, list[dict[str, Any]]] = {}
    cells: dict[str, Mapping[str, Any]] = {}
    rules: dict[str, None] = {}
    ways: dict[str, None] = {}
    for point in loaded.points(*chosen):
        key = ((point.scenario, point.variant, point.backbone), point.method)
        if key in points:
            continue  # another seed
        there = [asdict(one) for one in _devices_of(point.config.get("devices"))]
        points[key] = id = hash_of_json([point.config, there, images])[:24]
        devices[id], cells[id] = there, point.config
        rules[_limits(point.config.get("fit", {"memory": True}))] = None
        ways[_way(point.config)] = None
    function = "fedbench.runner.estimate:feasible"
    given: dict[str, Any] = {"kind": "fits", "function": function, "devices": devices, "images": images}
    answered = cost_estimates(list(cells.items()), facts, timeout, **given)
    found: dict[Where, dict[str, Any]] = {}
    missing: dict[str, None] = {}
    failed = False
    for (where, method), id in points.items():
        answer = answered[id]
        if refused := answer.get("refused"):
            raise UserError(refused)
        if "rows" in answer:
            found.setdefault(where, {})[method] = [Outlook.from_json(one) for one in answer["rows"]]
            continue
        (kind, reason), *_ = answer.items()
        failed |= kind != "not_applicable"
        missing[f"{method}: {kind.replace('_', ' ')}: {reason}"] = None
    return Fits(found, list(missing), "; ".join(rules), f"Clients train {'; or '.join(ways)}.", failed)


def _way(config: Mapping[str, Any]) -> str:
    """How clients train: batch, micro-batch, precision and optimiser."""
    train, optimizer = config["train"], config["train"]["optimizer"]
    given = train.get("micro_batch", None if config.get("devices") else "auto")
    parts = {"auto": "in as few micro-batches as fit", None: "as a whole"}.get(given, f"in micro-batches of {given}")
    again = ", with activation checkpointing" if train.get("checkpointing") else ""
    kind, momentum = {"sgd": "SGD", "adamw": "AdamW"}[optimizer["name"]], optimizer["momentum"]
    with_momentum = f" with momentum {momentum:g}" if optimizer["name"] == "sgd" and momentum else ""
    return f"on batches of {train['batch_size']} {parts}{again}, in {config['precision']}, by {kind}{with_momentum}"


def _devices_of(given: Mapping[str, Any] | None) -> list[Device]:
    """The devices of a scenario, by default all that come with fedbench, and the server's."""
    if not given:
        return [*SHIPPED.values(), SHIPPED[SERVER]]
    named = given.get("by_client") or given.get("by_domain") or given["shares"]
    return [*(device_of(name, given["known"][name]) for name in dict.fromkeys(named)), server_of(given)]


def _limits(fit: Mapping[str, Any]) -> str:
    """What sizes must fit into."""
    limits = ["the device's memory"] * bool(fit.get("memory"))
    limits += [f"rounds of {lasting(fit['seconds'])}"] if "seconds" in fit else []
    limits += [f"{human_bytes(fit['bytes'])} a round"] if "bytes" in fit else []
    return " and ".join(limits)
