"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

import click


@click.command(short_help="Print leaderboards from results.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is compared.")
@click.option(
    "--at",
    type=click.Choice(["final", "best", "last4"]),
    default="final",
    show_default=True,
    help="Which round counts.",
)
@click.option("--baseline", metavar="METHOD", help="What gaps are measured to; alllarge where it is there.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points, e.g. '*rank=4*'.")
@click.option("--paper", "beside", is_flag=True, help="Beside the paper's numbers that the suite names.")
@click.option("--hash", "hashes", is_flag=True, help="Only a hash of what each PATH says, without timings.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["rich", "csv", "json", "markdown", "latex"]),
    default="rich",
    show_default=True,
)
def compare(
    paths: tuple,
    metric: str,
    at: str,
    baseline: str | None,
    scenarios: tuple,
    methods: tuple,
    variants: tuple,
    beside: bool,
    hashes: bool,
    form: str,
) -> None:
    """Print a leaderboard for every scenario under PATH (results/ if none is given).

    \b
    fedbench compare results/quickstart
    fedbench compare results --scenario 'all_*' --baseline fedra
    fedbench compare results/fedra_table1 --paper
    fedbench compare results/quickstart --format csv > quickstart.csv
    """
    from rich.console import Console

    from fedbench.compare import leaderboards
    from fedbench.compare.grouping import select
    from fedbench.errors import UserError
    from fedbench.results import content_hash, load

    if hashes:
        for path in paths or ("results",):
            click.echo(f"{content_hash(path)}  {path}")
        return
    results = select(load(paths or ("results",)), scenarios, methods, variants=variants)
    if beside:
        from fedbench.compare.paper import comparisons
        from fedbench.compare.paper.formats import render, show

        if metric != "accuracy" or baseline is not None:
            raise UserError("--paper compares accuracies with printed ones: leave out --metric and --baseline")
        found = comparisons(results, at=at)
    else:
        from fedbench.compare.formats import render
        from fedbench.compare.tables import show

        found = leaderboards(results, metric=metric, at=at, baseline=baseline)
    if form == "rich":
        show(found, Console(highlight=False))
    else:
        click.echo(render(found, form), nl=False)
