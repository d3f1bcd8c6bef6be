"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

from typing import Any

import click

from fedbench.commands.output import put
from fedbench.errors import UserError

# By parameter, the options that ask for something else than leaderboards, one at a time.
VIEWS = {
    "summary": "--summary",
    "boards": "--boards",
    "by": "--by",
    "costs": "--costs",
    "beside": "--paper",
    "pairs": "--pairs",
    "ranks": "--ranks",
    "images": "--images",
    "tuning": "--tuning",
}


@click.command(short_help="Print leaderboards from results.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is compared.")
@click.option(
    "--at",
    default="final",
    show_default=True,
    metavar="ROUND",
    help="Which round counts: final, best (on validation images), last4; or bytes, flops, bytes=2GB, flops=1e15: the "
    "last one by which all clients together had spent no more "
    "(without an amount: than the cheapest method does in all).",
)
@click.option("--baseline", metavar="METHOD", help="What gaps are measured to; a ceiling where there is one.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points, e.g. '*rank=4*'.")
@click.option(
    "--summary",
    is_flag=True,
    help="Methods over scenarios: means, tie groups, mean ranks. Of more than 8 leaderboards this is what is printed "
    "where no view and no other format is asked for.",
)
@click.option("--boards", is_flag=True, help="Every leaderboard, however many there are.")
@click.option("--by", type=click.Choice(["client"]), help="A line for each client, where clients are tested.")
@click.option("--costs", is_flag=True, help="What leaves the clients, what they are sent, and who computes how much.")
@click.option("--paper", "beside", is_flag=True, help="Beside the paper's numbers that the suite names.")
@click.option(
    "--pairs", is_flag=True, help="Every two methods: better, worse, equal or not told; or all with --baseline."
)
@click.option("--ranks", is_flag=True, help="Ranks over the scenarios of each suite, and who is told apart over them.")
@click.option("--tuning", is_flag=True, help="How methods were tuned: who won, and what fewer trials would have given.")
@click.option("--images", nargs=2, metavar="A B", help="Two methods' trained models, test image by test image.")
@click.option(
    "--equivalent",
    type=click.FloatRange(min=0),
    metavar="POINTS",
    help="What may be called equal where the interval lies inside.  [default: 1 of what is in percent]",
)
@click.option("--hash", "hashes", is_flag=True, help="Only a hash of what each PATH says, without timings.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["rich", "csv", "json", "markdown", "latex"]),
    default="rich",
    show_default=True,
    help="Of what is printed.",
)
def compare(
    paths: tuple,
    scenarios: tuple,
    methods: tuple,
    variants: tuple,
    hashes: bool,
    form: str,
    **asked: Any,
) -> None:
    """Print a leaderboard for every scenario under PATH (results/ if none is given), or a summary of many.

    \b
    fedbench compare results/quickstart
    fedbench compare results --scenario 'all_*' --baseline fedra
    fedbench compare results/quickstart --at bytes=50MB
    fedbench compare results/quickstart --at flops --method fedra --method depthfl
    fedbench compare results/extreme_hetero --summary
    fedbench compare results/quickstart --costs
    fedbench compare results/quickstart --pairs --baseline fedra
    fedbench compare results/extreme_hetero --ranks
    fedbench compare results/quickstart --images fedra depthfl
    fedbench compare results/feature_skew_tuned --tuning
    fedbench compare results/fedra_table1 --paper
    fedbench compare results/quickstart --format csv > quickstart.csv
    """
    from fedbench.report.grouping import select
    from fedbench.report.views import chosen
    from fedbench.results import content_hash, load

    if hashes:
        for path in paths or ("results",):
            click.echo(f"{content_hash(path)}  {path}")
        return
    images = asked["images"]
    kinds = {option: asked.pop(name) for name, option in VIEWS.items()}
    given = [option for option, value in kinds.items() if value]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} are views of their own: choose one")
    found = load(paths or ("results",), candidates="--tuning" in given)
    results = select(found, scenarios, methods, variants=variants)
    put(chosen(results, *given, form=form, images=images, **asked), form)
