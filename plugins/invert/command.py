"""fedbench invert: what a split-learning server can rebuild of its clients' images."""

from __future__ import annotations

import click

from fedbench.commands.choices import PLUGINS


@click.command(short_help="Attack split methods: images from features.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--victims", type=click.IntRange(1), default=4, show_default=True, help="Training images to attack.")
@click.option(
    "--attack",
    "attacks",
    type=click.Choice(["match", "span", "cosine"]),
    multiple=True,
    help="Only these; cosine takes most of the time.",
)
@click.option("--steps", type=click.IntRange(1), default=300, show_default=True, help="Of the search for an image.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points.")
@click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds.")
@click.option("--images", metavar="FILE", help="Draw them: png, svg or pdf; needs the extra `plots`.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["rich", "csv", "json", "markdown"]),
    default="rich",
    show_default=True,
    help="Of what is printed.",
)
@PLUGINS
def invert(
    paths: tuple,
    victims: int,
    attacks: tuple,
    steps: int,
    images: str | None,
    form: str,
    plugins: tuple,
    **chosen,
) -> None:
    """Rebuild training images from what the clients of split methods sent, under PATH (results/ if none is given).

    \b
    fedbench invert results/personalised
    fedbench invert results/personalised --attack match --attack span --victims 16
    fedbench invert results/personalised --method fedv --images rebuilt.png

    Finished cells of FedV, FedVZ, FESTA and the like are attacked, on a CPU, some twenty seconds a victim. Nothing
    is written into them. A score near its controls says that this attack failed, not that another one would.
    """
    from fedbench.commands.output import put
    from fedbench.registry.registry import Registry
    from fedbench.report.grouping import select
    from fedbench.results import load

    from .attack import ATTACKS, Descent
    from .findings import Probe
    from .inversion_report import framed, reports

    draw = _drawing(images)
    results = select(load(paths or ("results",)), **chosen)
    found = reports(results, Registry(plugins), Probe(victims, attacks or ATTACKS, Descent(steps=steps)))
    put(framed(found), form)
    if images:
        draw(found, images)


def _drawing(images: str | None):
    """What draws to the file of that name. Raises: UserError, before anything is computed, where it could not."""
    if images is None:
        return None
    from importlib.util import find_spec
    from pathlib import Path

    from fedbench.errors import UserError

    if find_spec("matplotlib") is None:
        raise UserError("pictures need matplotlib: pip install 'fedbench-heft[plots]'")
    from fedbench.report.pictures.style import format_of, save

    from .inversion_report import reconstructions

    format_of(Path(images))
    return lambda found, file: save(reconstructions(found), Path(file))
