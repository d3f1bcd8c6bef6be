"""fedbench choose: which method for which device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fedbench.commands.choices import FORM, PLUGINS, TIMEOUT, Duration, ResultsPath, each, whole
from fedbench.commands.devices import fits_of, of_backbone
from fedbench.commands.output import put, tell_left_out, warn_of_lost
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
    "--devices",
    "given",
    required=True,
    metavar="NAME[:N],...",
    help="Devices, as `fedbench devices` lists them, and how many clients have each.",
)
@click.option(
    "--round", "seconds", type=Duration(), metavar="DURATION", help="The longest a round may take, e.g. 10min."
)
@click.option(
    "--accuracy",
    "results",
    type=ResultsPath(),
    metavar="NAME|DIR",
    help="Results with `evaluation: {sizes: true}`, which show how good each is, by their suite's name or path.",
)
@click.option("--scenario", metavar="NAME", help="The scenario of these results, if there are several.")
@click.option("--variant", metavar="NAME", help="The variant of these results, if there are several.")
@click.option("--method", "methods", multiple=True, metavar="NAME,...", callback=each, help="Only these methods.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a setting, e.g. train.batch_size=8.")
@click.option("--images", default=500, show_default=True, type=click.IntRange(1), help="Training images of a client.")
@PLUGINS
@TIMEOUT
@FORM
def choose(
    backbone: str,
    given: str,
    seconds: float | None,
    results: str | None,
    scenario: str | None,
    variant: str | None,
    methods: tuple,
    sets: tuple,
    images: int,
    plugins: tuple,
    timeout: float | None,
    form: str,
) -> None:
    """Show which size of each method fits each device, what a round costs there and, with results, how good the model
    of that size is and which method is best. Without results nothing is recommended: what is quick may be useless.
    No data are needed, and nothing is trained.

    \b
    fedbench choose --backbone vit_base_patch16_224 --devices phone_high,phone_low
    fedbench choose --backbone micro_vit --devices phone_high:4 --accuracy results

    Exit code: 0, or 1 if a plugin fails, which a note names.
    """
    from fedbench.report.views.choice import choice

    there = clients_by_device(given.split(","))
    registry = Registry(plugins, timeout=timeout)
    scored: Accuracies | None
    scored, notes, wrong = (None, [], ()) if results is None else _scored(results, scenario, variant, backbone)
    if seconds is not None:
        sets = (*sets, f"fit={{memory: true, seconds: {seconds:.17g}}}")
    suite = of_backbone(backbone, methods, list(there), registry, {"sets": sets})
    answer = fits_of(suite, ((), (), (), ()), CachedFacts(registry, suite.base), images, timeout or DEADLINE)
    (found,) = answer.found.values() or ({},)  # of the one scenario that `of_backbone` makes
    fits = {method: [one for one in own if one.device.name in there] for method, own in found.items()}
    matrix, cells = choice(
        backbone, fits, registry.catalogue.roles, scored, (answer.ruled, answer.how), [*notes, *answer.missing], there
    )
    put(cells if form in ("csv", "json") else matrix, form)
    lost = warn_of_lost(registry)
    tell_left_out(wrong)
    sys.exit(1 if lost or answer.failed else 0)


def _scored(
    results: str, scenario: str | None, variant: str | None, backbone: str
) -> tuple[Accuracies, list[str], Sequence[str]]:
    """The accuracies in a folder of results, notes on them, and which results have a checksum mismatch."""
    from fedbench.report.views.choice import accuracies
    from fedbench.results import examine

    loaded = examine([results]).read(("eval", "sizes"))
    scored = accuracies(loaded.results, scenario, variant)
    others = [name for name in scored.backbones if name != backbone]
    notes = [f"{results}: accuracies are those of {', '.join(others)}, not of {backbone}"] if others else []
    if unsized := [method for method, sizes in scored.scores.items() if set(sizes) == {None}]:
        notes.append(f"not scored at sizes, which takes `evaluation: {{sizes: true}}`: {', '.join(unsized)}")
    return scored, notes, loaded.wrong


def clients_by_device(given: Sequence[str]) -> dict[str, int]:
    """By name of a device, how many clients have it: `phone_high`, or `phone_high:4`. Raises UserError."""
    found: dict[str, int] = {}
    for one in given:
        name, colon, count = (part.strip() for part in one.partition(":"))
        if name not in SHIPPED:
            raise UserError(f"no device is called {shown(name)}{suggestion(name, SHIPPED, 'there are')}")
        clients = whole(count) if colon else 1
        if not clients:
            raise UserError(
                f"--devices {one.strip()}: after the colon stands how many clients have one, such as {name}:4"
            )
        found[name] = found.get(name, 0) + clients
    return found
