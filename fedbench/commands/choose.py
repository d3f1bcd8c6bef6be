"""fedbench choose: which method for which device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import FORM, PLUGINS, TIMEOUT, FilePath
from fedbench.commands.devices import fits_of, of_backbone
from fedbench.commands.output import put, warn_of_lost
from fedbench.devices.table import SHIPPED
from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.estimate import DEADLINE
from fedbench.words import shown, suggestion

if TYPE_CHECKING:
    from fedbench.report.views.choice import Accuracies


@click.command()
@click.option("--backbone", required=True, metavar="NAME", help="The model that is fine-tuned.")
@click.option(
    "--devices", "given", required=True, metavar="NAME,...", help="Devices, as `fedbench devices` lists them."
)
@click.option(
    "--accuracy",
    "results",
    type=FilePath(),
    metavar="DIR",
    help="Results with `evaluation: {sizes: true}`, which show how good each is.",
)
@click.option("--scenario", metavar="NAME", help="The scenario of these results, if there are several.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting, e.g. train.batch_size=8.")
@click.option("--images", default=500, show_default=True, type=click.IntRange(1), help="Training images of a client.")
@PLUGINS
@TIMEOUT
@FORM
def choose(
    backbone: str,
    given: str,
    results: str | None,
    scenario: str | None,
    methods: tuple,
    sets: tuple,
    images: int,
    plugins: tuple,
    timeout: float | None,
    form: str,
) -> None:
    """Show which size of each method fits each device, what a round costs there and, with results, how good the model
    of that size is, and recommend a method. No data are needed, and nothing is trained.

    \b
    fedbench choose --backbone vit_base_patch16_224 --devices phone_high,phone_low
    fedbench choose --backbone micro_vit --devices laptop --accuracy results

    Exit code: 0, or 1 if a plugin fails, which a note names.
    """
    from fedbench.report.views.choice import accuracies, choice
    from fedbench.results import examine

    there = named(given.split(","))
    registry = Registry(plugins, timeout=timeout)
    scored: Accuracies = {}
    notes: list[str] = []
    if results is not None:
        found = examine([results]).read(("eval", "sizes"))
        scored = accuracies(found.results, scenario)
        others = sorted({one.entry.backbone for one in found.results} - {backbone})
        notes += [f"{results}: accuracies are those of {', '.join(others)}, not of {backbone}"] if others else []
    suite = of_backbone(backbone, methods, there, registry, {"sets": sets})
    answer = fits_of(suite, ((), (), (), ()), CachedFacts(registry, suite.base), images, timeout or DEADLINE)
    fits = {method: [one for one in own if one.device.name in there] for method, own in _only(answer.found).items()}
    matrix, cells = choice(backbone, fits, registry.catalogue.roles, scored, answer.how, [*notes, *answer.missing])
    put(cells if form in ("csv", "json") else matrix, form)
    sys.exit(1 if warn_of_lost(registry) or answer.failed else 0)


def named(names: Sequence[str]) -> list[str]:
    """The names of devices, each once. Raises UserError for one that there is not."""
    for name in names:
        if name.strip() not in SHIPPED:
            raise UserError(
                f"no device is called {shown(name.strip())}{suggestion(name.strip(), SHIPPED, 'there are')}"
            )
    return list(dict.fromkeys(name.strip() for name in names))


def _only(found: Any) -> Any:
    """What fits in the one scenario that there is."""
    return next(iter(found.values()), {})
