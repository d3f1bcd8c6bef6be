"""fedbench plot: pictures of results, one kind a subcommand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import PLUGINS
from fedbench.commands.output import tell_left_out

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbench.report.leaderboards import Leaderboard
    from fedbench.report.plot_data import Board
    from fedbench.results import Result

_COMMON = (
    click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]..."),
    click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Where to; plots/ otherwise."),
    click.option("--format", "form", type=click.Choice(["png", "svg", "pdf"]), help="Default: by --out, or png."),
    click.option("--scenario", "scenarios", multiple=True, metavar="GLOB", help="Only these scenarios."),
    click.option("--method", "methods", multiple=True, metavar="NAME", help="Only these methods."),
    click.option("--variant", "variants", multiple=True, metavar="GLOB", help="Only these sweep points."),
    click.option("--seed", "seeds", multiple=True, type=int, metavar="N", help="Only these seeds."),
)
WRONG = "fedbench.plot.wrong"  # under which click's context keeps what is left out of all pictures
_METRIC = click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is drawn.")


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
@_METRIC
@click.option("--by-domain", is_flag=True, help="A panel for each domain, instead of the average.")
@click.option(
    "--over",
    type=click.Choice(["rounds", "bytes", "flops", "seconds", "joules"]),
    default="rounds",
    show_default=True,
    help="Over rounds; over what all clients together have sent and received, computed, or drawn of energy; or over "
    "simulated seconds, where clients have devices.",
)
def curves(metric: str, by_domain: bool, over: str, **choices: Any) -> None:
    """Draw a metric over rounds, or over what they cost: a panel for each leaderboard, a line for each method.

    Bands are one standard deviation over seeds.

    \b
    fedbench plot curves results/quickstart
    fedbench plot curves results/quickstart --by-domain --metric loss --format svg
    fedbench plot curves results/quickstart --over bytes
    """
    chosen = _Chosen(choices)
    from fedbench.report.pictures.curves import curves as draw

    figure = draw(chosen.boards, metric, by_domain, over, chosen.roles)
    chosen.write({"": figure}, "curves" if over == "rounds" else f"curves-{over}")


@plot.command(short_help="A metric over what it costs, and the front.")
@_common
@_METRIC
@click.option(
    "--over",
    type=click.Choice(["bytes", "flops", "seconds", "joules", "memory"]),
    default="bytes",
    show_default=True,
    help="What it costs, as of `fedbench compare --pareto`.",
)
def pareto(metric: str, over: str, **choices: Any) -> None:
    """Draw a metric over what it costs: a panel for each leaderboard, a point for each method, steps along the front.

    Bars are one standard deviation over seeds; methods that another beats at both are faint.

    \b
    fedbench plot pareto results/quickstart
    fedbench plot pareto results/quickstart --over flops
    """
    from fedbench.errors import UserError
    from fedbench.report.frames import PLACE
    from fedbench.report.pareto import pareto as fronts
    from fedbench.report.scenarios import titled

    chosen = _Chosen(choices)
    boards = chosen.leaderboards(metric)
    found = fronts(boards, over)
    points = dict(list(found.groupby(list(PLACE), sort=False)))
    if not (panels := {title: points[board.place] for title, board in titled(boards).items() if board.place in points}):
        raise UserError("no cell of these results has finished yet: there is nothing to draw")
    from fedbench.report.pictures.pareto import pareto as draw

    chosen.write({"": draw(panels, over, metric, chosen.registered, chosen.roles)}, f"pareto-{over}")


@plot.command(short_help="A metric over the memory that models take to run.")
@_common
@_METRIC
def sizes(metric: str, **choices: Any) -> None:
    """Draw a metric over the memory it takes to answer one image: a line for each method, a point for each size of its
    model. Of suites with `evaluation: {sizes: true}`.

    \b
    fedbench plot sizes results/devices
    """
    from fedbench.report.scenarios import titled

    chosen = _Chosen(choices, "sizes", "deployed")
    panels = titled(chosen.leaderboards(metric))
    from fedbench.report.pictures.sizes import sizes as draw

    chosen.write({"": draw(panels, metric, chosen.registered, chosen.roles)}, "sizes")


@plot.command(short_help="Who trained which layer, how often.")
@_common
def allocation(**choices: Any) -> None:
    """Draw which client trained which layer, how often, and how many did.

    \b
    fedbench plot allocation results/quickstart
    """
    chosen = _Chosen(choices)
    from fedbench.report.pictures.allocation import allocation as draw

    chosen.write({board.title: draw(board) for board in chosen.boards}, "allocation")


@plot.command(short_help="How far every layer moved.")
@_common
def layers(**choices: Any) -> None:
    """Draw how far every layer moved, and what averaging LoRA's factors lost.

    \b
    fedbench plot layers results/quickstart --method fedra --method inclusivefl
    """
    chosen = _Chosen(choices, "layers")
    from fedbench.report.pictures.layers import layers as draw

    chosen.write({board.title: draw(board, chosen.roles) for board in chosen.boards}, "layers")


@plot.command(short_help="Mean ranks over scenarios, and how far apart they are.")
@_common
@_METRIC
def ranks(metric: str, **choices: Any) -> None:
    """Draw mean ranks over the scenarios of each suite with Nemenyi's critical difference, and letters by paired tests.

    \b
    fedbench plot ranks results/extreme_hetero
    """
    from fedbench.report.scenarios import standings

    chosen = _Chosen(choices)
    found = standings(chosen.leaderboards(metric))
    from fedbench.report.pictures.ranks import diagram

    several = len({one.profile for one in found}) > 1
    for one in found:
        name = f"{one.suite}-{one.profile}" if several else one.suite
        chosen.write({"" if len(found) == 1 else name: diagram(one)}, "ranks", [one.suite])


@plot.command(short_help="Test images in the models' features.")
@_common
@PLUGINS
@click.option("--classes", type=click.IntRange(1), default=10, show_default=True, help="Images of the first classes.")
@click.option("--images", type=click.IntRange(3), default=600, show_default=True, help="At most so many images.")
def tsne(plugins: tuple, classes: int, images: int, **choices: Any) -> None:
    """Draw test images by t-SNE of the global models' features, by class and by domain.

    \b
    fedbench plot tsne results/quickstart --method fedra --method inclusivefl
    """
    chosen = _Chosen(choices)
    from fedbench.registry.registry import Registry
    from fedbench.report.pictures.tsne import embedded
    from fedbench.report.pictures.tsne import tsne as draw

    registry = Registry(plugins)
    figures = {}
    for board in chosen.boards:
        points = {label: embedded(one, registry, classes, images) for label, one in board.one_seed().items()}
        figures[board.title] = draw(points)
    chosen.write(figures, "tsne")


class _Chosen:
    """The results that a command draws.

    Args:
        choices: What the command line has of _COMMON.
        more: Tables to read that leaderboards do not need.

    Raises:
        UserError: The results, matplotlib or the format of the file are not to be had.
    """

    def __init__(self, choices: Mapping[str, Any], *more: str) -> None:
        from importlib.util import find_spec

        from fedbench.errors import UserError
        from fedbench.report.grouping import select
        from fedbench.results import examine
        from fedbench.results.result import COMPARED

        if find_spec("matplotlib") is None:
            raise UserError("pictures need matplotlib: pip install 'fedbench[plots]'")
        from fedbench.report.pictures.style import format_of

        self.out, self.form = choices["out"], choices["form"]
        if self.out and self.form not in (None, format_of(Path(self.out))):
            raise UserError(f"--out {self.out}: its suffix is not .{self.form}, which --format asks for")
        names = [choices[name] for name in ("scenarios", "methods", "seeds", "variants")]
        there = examine(choices["paths"] or ("results",))
        found = there.only(lambda results: select(results, *names)).read((*COMPARED, *more))
        self.results: Sequence[Result] = found.results
        click.get_current_context().meta[WRONG] = found.wrong

    @cached_property
    def boards(self) -> list[Board]:
        """What is drawn of them. Raises: UserError where nothing has finished."""
        from fedbench.report.plot_data import boards

        return boards(self.results)

    def leaderboards(self, metric: str) -> list[Leaderboard]:
        from fedbench.report.leaderboards import leaderboards

        return leaderboards(self.results, metric, roles=self.roles)

    @cached_property
    def roles(self) -> dict[str, str]:
        """Of methods, by name."""
        from fedbench.registry.registry import Registry
        from fedbench.report.grouping import roles_of

        return roles_of(self.results, Registry().catalogue.roles)

    @property
    def registered(self) -> dict[str, str]:
        """By label, the name of a method."""
        from fedbench.report.grouping import registered

        return {r.entry.method: registered([r]) for r in self.results}

    def write(self, figures: Mapping[str, Figure], kind: str, suites: Sequence[str] = ()) -> None:
        """Every figure, by the name of its leaderboard ("" for all of them), to its file, whose path is printed."""
        from fedbench.report.pictures.style import save
        from fedbench.report.plot_data import slug

        names = suites or list(dict.fromkeys(r.suite for r in self.results))
        for name, figure in figures.items():
            path = Path(self.out or Path("plots") / f"{slug('-'.join(names))}-{kind}.{self.form or 'png'}")
            if name and (len(figures) > 1 or not self.out):
                path = path.with_stem(f"{path.stem}-{slug(name)}")
            save(figure, path)
            click.echo(path)
