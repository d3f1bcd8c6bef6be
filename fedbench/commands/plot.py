"""fedbench plot: pictures of results, one kind a subcommand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedbench.commands.choices import PLUGINS
from fedbench.commands.output import tell_left_out
from fedbench.commands.reading import keeping

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbench.report.drawn import Board
    from fedbench.results import Result

_COMMON = (
    click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]..."),
    click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Where to; plots/ otherwise."),
    click.option("--format", "form", type=click.Choice(["png", "svg", "pdf"]), help="Default: by --out, or png."),
    click.option("--dpi", type=click.IntRange(50, 1200), default=200, show_default=True, help="Of a png."),
    click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios."),
    click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods."),
    click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points."),
    click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds."),
)

WRONG = "fedbench.plot.wrong"  # under which click's context keeps what is left out of all pictures


def _common(command: Callable) -> Callable:
    for option in reversed(_COMMON):
        command = option(command)
    return command


@click.group(short_help="Draw pictures of results (png, svg or pdf).")
def plot() -> None:
    """Draw finished results under PATH (results/ if none is given); needs the extra `plots`.

    Pictures go into plots/ of the current folder, or where --out says. All kinds but `curves`, `pareto`, `sizes` and
    `ranks` draw one picture for each leaderboard, and add its name to the file's.

    \b
    fedbench plot curves results/quickstart
    fedbench plot allocation results/quickstart --out figure2.pdf
    """


@plot.result_callback()
@click.pass_context
def _drawn(context: click.Context, *_, **__) -> None:
    tell_left_out(context.meta.get(WRONG, ()))


@plot.command(short_help="A metric over rounds, or over what they cost.")
@_common
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is drawn.")
@click.option("--by-domain", is_flag=True, help="A panel for each domain, instead of the average.")
@click.option(
    "--over",
    "--x",
    "x",
    type=click.Choice(["rounds", "bytes", "flops", "seconds", "joules"]),
    default="rounds",
    show_default=True,
    help="Over rounds; over what all clients together have sent and received, computed, or drawn of energy; or over "
    "simulated seconds, where clients have devices.",
)
def curves(metric: str, by_domain: bool, x: str, **choices) -> None:
    """Draw a metric over rounds, or over what they cost: a panel for each leaderboard, a line for each method.

    Bands are one standard deviation over seeds.

    \b
    fedbench plot curves results/quickstart
    fedbench plot curves results/quickstart --by-domain --metric loss --format svg
    fedbench plot curves results/quickstart --over bytes
    """
    results = _results(choices)
    boards = _boards(results)
    from fedbench.report.pictures.curves import curves as draw

    kind = "curves" if x == "rounds" else f"curves-{x}"
    _write({"": draw(boards, metric, by_domain, x, _roles(results))}, _suites(boards), kind, choices)


@plot.command(short_help="A metric over what it costs, and the front.")
@_common
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is drawn.")
@click.option(
    "--over",
    type=click.Choice(["bytes", "flops", "seconds", "joules", "memory"]),
    default="bytes",
    show_default=True,
    help="What it costs, as of `fedbench compare --pareto`.",
)
def pareto(metric: str, over: str, **choices) -> None:
    """Draw a metric over what it costs: a panel for each leaderboard, a point for each method, steps along the front.

    Bars are one standard deviation over seeds; what somebody beats at both, told apart, is faint.

    \b
    fedbench plot pareto results/quickstart
    fedbench plot pareto results/quickstart --over flops
    """
    from fedbench.errors import UserError
    from fedbench.report.grouping import registered
    from fedbench.report.leaderboards import leaderboards
    from fedbench.report.pareto import fronts
    from fedbench.report.scenarios import titled

    results = _results(choices)
    roles = _roles(results)
    boards = leaderboards(results, metric, roles=roles)
    found = dict(zip(titled(boards), fronts(results, boards, over), strict=True))
    if not (panels := {title: points for title, points in found.items() if points}):
        raise UserError("no cell of these results has finished yet: there is nothing to draw")
    from fedbench.report.pictures.pareto import pareto as draw

    names = {r.entry.method: registered([r]) for r in results}
    suites = list(dict.fromkeys(board.place.suite for board in boards))
    _write({"": draw(panels, over, metric, names, roles)}, suites, f"pareto-{over}", choices)


@plot.command(short_help="A metric over the memory that models take to run.")
@_common
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is drawn.")
def sizes(metric: str, **choices) -> None:
    """Draw a metric over the memory it takes to answer one image: a line for each method, a point for each size of its
    model. Of suites with `evaluation: {sizes: true}`.

    \b
    fedbench plot sizes results/devices
    """
    from fedbench.report.deployed import deployed
    from fedbench.report.grouping import registered
    from fedbench.report.leaderboards import leaderboards
    from fedbench.report.scenarios import titled

    results = _results(choices, "sizes", "deployed")
    roles = _roles(results)
    boards = leaderboards(results, metric, roles=roles)
    panels = {title: rows for title, (_, rows) in zip(titled(boards), deployed(results, boards), strict=True)}
    from fedbench.report.pictures.sizes import sizes as draw

    names = {r.entry.method: registered([r]) for r in results}
    suites = list(dict.fromkeys(board.place.suite for board in boards))
    _write({"": draw(panels, metric, names, roles)}, suites, "sizes", choices)


@plot.command(short_help="Who trained which layer, how often.")
@_common
def allocation(**choices) -> None:
    """Draw which client trained which layer, how often, and how many did.

    \b
    fedbench plot allocation results/quickstart
    """
    boards = _boards(_results(choices))
    from fedbench.report.pictures.allocation import allocation as draw

    _write({board.title: draw(board) for board in boards}, _suites(boards), "allocation", choices)


@plot.command(short_help="How far every layer moved.")
@_common
def layers(**choices) -> None:
    """Draw how far every layer moved, and what averaging LoRA's factors lost.

    \b
    fedbench plot layers results/quickstart --method fedra --method inclusivefl
    """
    results = _results(choices, "layers")
    boards = _boards(results)
    from fedbench.report.pictures.layers import layers as draw

    roles = _roles(results)
    _write({board.title: draw(board, roles) for board in boards}, _suites(boards), "layers", choices)


@plot.command(short_help="Mean ranks over scenarios, and how far apart they are.")
@_common
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What methods are ranked by.")
def ranks(metric: str, **choices) -> None:
    """Draw mean ranks over the scenarios of each suite with Nemenyi's critical difference, and letters by paired tests.

    \b
    fedbench plot ranks results/extreme_hetero
    """
    from fedbench.report.leaderboards import leaderboards
    from fedbench.report.scenarios import standings

    results = _results(choices)
    found = standings(leaderboards(results, metric, roles=_roles(results)))
    from fedbench.report.pictures.ranks import diagram

    telling = len({one.profile for one in found}) > 1
    for one in found:
        name = f"{one.suite}-{one.profile}" if telling else one.suite
        _write({"" if len(found) == 1 else name: diagram(one)}, [one.suite], "ranks", choices)


@plot.command(short_help="Test images in the models' features.")
@_common
@PLUGINS
@click.option("--classes", type=click.IntRange(1), default=10, show_default=True, help="Images of the first classes.")
@click.option("--images", type=click.IntRange(3), default=600, show_default=True, help="At most so many images.")
def tsne(plugins: tuple, classes: int, images: int, **choices) -> None:
    """Draw test images by t-SNE of the global models' features, by class and by domain.

    \b
    fedbench plot tsne results/quickstart --method fedra --method inclusivefl
    """
    boards = _boards(_results(choices))
    from fedbench.registry.registry import Registry
    from fedbench.report.pictures.tsne import embedded
    from fedbench.report.pictures.tsne import tsne as draw

    registry = Registry(plugins)
    figures = {
        board.title: draw(
            {label: embedded(result, registry, classes, images) for label, result in board.one_seed().items()}
        )
        for board in boards
    }
    _write(figures, _suites(boards), "tsne", choices)


def _boards(results: Sequence[Result]) -> list[Board]:
    """What is to be drawn of them. Raises: UserError where nothing is."""
    from fedbench.report.drawn import boards

    return boards(results)


def _results(choices: dict, *also: str) -> list[Result]:
    """The results that are chosen, with the tables that are read of them; also: others than leaderboards have. Raises:
    UserError where they, matplotlib or a file's format are not to be had."""
    from importlib.util import find_spec

    from fedbench.errors import UserError
    from fedbench.report.grouping import select
    from fedbench.results import examine
    from fedbench.results.result import COMPARED

    if find_spec("matplotlib") is None:
        raise UserError("pictures need matplotlib: pip install 'fedbench[plots]'")
    from fedbench.report.pictures.style import format_of

    out, form = choices["out"], choices["form"]
    if out and form not in (None, format_of(Path(out))):
        raise UserError(f"--out {out}: its suffix is not .{form}, which --format asks for")
    names = [choices[name] for name in ("scenarios", "methods", "seeds", "variants")]
    with keeping() as kept:
        there = examine(choices["paths"] or ("results",), keeping=kept)
        found = there.only(lambda results: select(results, *names)).read((*COMPARED, *also))
    click.get_current_context().meta[WRONG] = found.wrong
    return found.results


def _roles(results: Sequence[Result]) -> dict[str, str]:
    from fedbench.registry.registry import Registry
    from fedbench.report.grouping import roles_of

    return roles_of(results, Registry().catalogue.roles)


def _suites(boards: Sequence[Board]) -> list[str]:
    return list(dict.fromkeys(board.suite for board in boards))


def _write(figures: dict[str, Figure], suites: Sequence[str], kind: str, choices: dict) -> None:
    """Every figure, by the name of its leaderboard ("" for all of them), to its file, whose path is printed."""
    from fedbench.report.drawn import slug
    from fedbench.report.pictures.style import save

    out, form = choices["out"], choices["form"] or "png"
    for name, figure in figures.items():
        path = Path(out or Path("plots") / f"{slug('-'.join(suites))}-{kind}.{form}")
        if name and (len(figures) > 1 or not out):
            path = path.with_stem(f"{path.stem}-{slug(name)}")
        save(figure, path, choices["dpi"])
        click.echo(path)
