"""fedbench devices: which there are, and which size of each method fits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import FORM, SuiteFile, cells
from fedbench.commands.output import put
from fedbench.errors import NotApplicable, UserError

if TYPE_CHECKING:
    from fedbench.report.gear import Found, Where
    from fedbench.suite import Suite

ALL = "all_devices"  # the scenario of a backbone without a suite
BACKBONE = """suite: devices
defaults: {{backbone: "{name}", data: {{name: strokes6}}}}
scenarios: {{{ALL}: {{}}}}
methods: [{methods}]
"""


@click.command(short_help="Which devices there are, and which size of each method fits them.")
@click.argument("suite", type=SuiteFile(), required=False)
@cells
@click.option("--backbone", metavar="NAME", help="All methods with this backbone, in place of a suite.")
@click.option("--images", default=500, show_default=True, type=click.IntRange(1), help="Training images of a client.")
@FORM
def devices(
    suite: str | None,
    backbone: str | None,
    images: int,
    form: str,
    plugins: tuple,
    scenarios: tuple,
    methods: tuple,
    seeds: tuple,
    variants: tuple,
    **choices: Any,
) -> None:
    """List the devices that come with fedbench; with SUITE or --backbone, the largest size of each method that each
    device can train, and how long a round takes there. No data are needed, and nothing is trained.

    \b
    fedbench devices
    fedbench devices --backbone vit_base_patch16_224 --method fedra --method flora
    fedbench devices suites/extreme_hetero.yaml --format markdown

    Scenarios that give their clients no devices are shown on all devices that come with fedbench, by memory.
    """
    from fedbench.devices.table import SHIPPED
    from fedbench.report.gear import listed

    if suite is None and backbone is None:
        put(listed(list(SHIPPED.values())), form)
        return
    if suite is not None and backbone is not None:
        raise UserError("devices: a suite or --backbone, not both")
    from fedbench.registry.assets import Assets
    from fedbench.registry.registry import Registry
    from fedbench.report.gear import fitting
    from fedbench.suite import load

    registry = Registry(plugins)
    if suite is None:
        loaded = _of_backbone(str(backbone), methods, registry, choices)
    else:
        loaded = load(suite, registry.catalogue, **choices)
    found, missing, ruled = _found(loaded, (scenarios, methods, seeds, variants), Assets(registry, loaded.base), images)
    put(fitting(loaded.name, found, missing, images, ruled), form)


def _of_backbone(name: str, methods: Sequence[str], registry: Any, choices: Mapping[str, Any]) -> Suite:
    """A suite of one backbone and many methods."""
    import tempfile
    from pathlib import Path

    from fedbench.suite import load

    known = methods or registry.catalogue.components["method"]
    text = BACKBONE.format(name=name, ALL=ALL, methods=", ".join(known))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "devices.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, registry.catalogue, **choices)


def _found(loaded: Suite, chosen: tuple, assets: Any, images: int) -> tuple[dict[Where, Found], list[str], str]:
    """What fits by scenario, variant, backbone and method; notes on those without a size; what sizes must fit into."""
    from fedbench.cell.outlook import outlooks
    from fedbench.devices.dealt import server_of
    from fedbench.devices.table import SERVER, SHIPPED, device_of

    found: dict[Where, dict[str, Any]] = {}
    missing: dict[str, None] = {}
    rules: dict[str, None] = {}
    for point in loaded.points(*chosen):
        given = point.config.get("devices")
        where = point.scenario, point.variant, point.backbone
        if point.method in found.setdefault(where, {}):
            continue  # another seed
        there, server = list(SHIPPED.values()), SHIPPED[SERVER]
        if given:
            named = given.get("by_client") or given.get("by_domain") or given["shares"]
            there, server = [device_of(name, given["known"][name]) for name in dict.fromkeys(named)], server_of(given)
        rules[_told(point.config.get("fit", {"memory": True}))] = None
        try:
            found[where][point.method] = outlooks(point.config, assets, there, server, images)
        except NotApplicable as reason:
            missing[f"{point.method}: not applicable: {reason}"] = None
    return {where: rows for where, rows in found.items() if rows}, list(missing), "; ".join(rules)


def _told(fit: Mapping[str, Any]) -> str:
    """What sizes must fit into."""
    from fedbench.words import human_bytes, lasting

    told = ["the device's memory"] * bool(fit.get("memory"))
    told += [f"rounds of {lasting(fit['seconds'])}"] if "seconds" in fit else []
    told += [f"{human_bytes(fit['bytes'])} a round"] if "bytes" in fit else []
    return " and ".join(told)
