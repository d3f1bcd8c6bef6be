"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fedbench.report.leaderboards import Leaderboard


@click.command(short_help="Print leaderboards from results.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is compared.")
@click.option(
    "--at",
    default="final",
    show_default=True,
    metavar="ROUND",
    help="Which round counts: final, best, last4; or bytes, flops, bytes=2GB, flops=1e15: the last one by which all "
    "clients together had spent no more (without an amount: than the cheapest method does in all).",
)
@click.option("--baseline", metavar="METHOD", help="What gaps are measured to; alllarge where it is there.")
@click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods.")
@click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points, e.g. '*rank=4*'.")
@click.option("--by", type=click.Choice(["client"]), help="A line for each client, where clients are tested.")
@click.option("--costs", is_flag=True, help="What leaves the clients, what they are sent, and who computes how much.")
@click.option("--paper", "beside", is_flag=True, help="Beside the paper's numbers that the suite names.")
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
    metric: str,
    at: str,
    baseline: str | None,
    scenarios: tuple,
    methods: tuple,
    variants: tuple,
    by: str | None,
    costs: bool,
    beside: bool,
    hashes: bool,
    form: str,
) -> None:
    """Print a leaderboard for every scenario under PATH (results/ if none is given).

    \b
    fedbench compare results/quickstart
    fedbench compare results --scenario 'all_*' --baseline fedra
    fedbench compare results/quickstart --at bytes=50MB
    fedbench compare results/quickstart --at flops --method fedra --method depthfl
    fedbench compare results/quickstart --costs
    fedbench compare results/fedra_table1 --paper
    fedbench compare results/quickstart --format csv > quickstart.csv
    """
    from fedbench.errors import UserError
    from fedbench.report.grouping import select
    from fedbench.results import content_hash, load

    if hashes:
        for path in paths or ("results",):
            click.echo(f"{content_hash(path)}  {path}")
        return
    if sum((by is not None, costs, beside)) > 1:
        raise UserError("--by, --costs and --paper are views of their own: choose one")
    results = select(load(paths or ("results",)), scenarios, methods, variants=variants)
    if beside:
        from fedbench.report.paper.comparison import comparisons
        from fedbench.report.paper.records import render, show

        if metric != "accuracy" or baseline is not None:
            raise UserError("--paper compares accuracies with printed ones: leave out --metric and --baseline")
        found = comparisons(results, at=at)
    else:
        from fedbench.report.leaderboards import leaderboards
        from fedbench.report.terminal import show
        from fedbench.report.text import render

        found = leaderboards(results, metric=metric, at=at, baseline=baseline)
        if by or costs:
            _view(found, costs, form)
            return
    if form == "rich":
        from rich.console import Console

        show(found, Console(highlight=False))
    else:
        click.echo(render(found, form), nl=False)


def _view(boards: list[Leaderboard], costs: bool, form: str) -> None:
    """The costs, or every client. In json, and in csv for clients, a leaderboard has all of it anyway."""
    from fedbench.report import clients, traffic
    from fedbench.report import page as sheets
    from fedbench.report.text import render

    legend = traffic.LEGEND if costs else clients.LEGEND
    found = [traffic.sheet(board) for board in boards] if costs else clients.sheets(boards)
    if form == "csv" and costs:
        click.echo(traffic.to_csv(boards), nl=False)
    elif form in ("csv", "json"):
        click.echo(render(boards, form), nl=False)
    elif form == "rich":
        from rich.console import Console

        sheets.show(found, legend, Console(highlight=False))
    else:
        click.echo(sheets.FORMATS[form](found, legend), nl=False)
