"""fedbench plot: pictures of results, one kind a subcommand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import METRIC, PATHS, PLUGINS, SELECTION, gone, output, takes
from fedbench.commands.output import tell_left_out
from fedbench.commands.terminal import say
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import Result, examine
from fedbench.results.result import COMPARED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbench.report.leaderboards import Leaderboard
    from fedbench.report.plot_data import Board

# The modules of `fedbench.report.pictures` that are not called like a kind of picture.
MODULES = {
    **dict.fromkeys(("curves", "pareto", "sizes"), "panels"),
    **dict.fromkeys(("allocation", "layers"), "heatmaps"),
    "ranks": "rank_diagram",
}
WRONG = "fedbench.plot.wrong"  # under which click's context keeps what is left out of all pictures
_common = takes(
    PATHS,
    output("FILE", "The file to write; by default in plots/."),
    gone("--out", "it is called -o or --output now"),
    click.option("--format", "form", type=click.Choice(["png", "svg", "pdf"]), help="Default: by --output, or png."),
    *SELECTION,
)


@click.group()
def plot() -> None:
    """Draw finished results under PATH (results/ if none is given); needs the extra `plots`.

    Figures are written to plots/ in the current folder, or to --output. All kinds but `curves`, `pareto`, `sizes` and
    `ranks` draw one figure for each leaderboard, and add its name to the file's.

    \b
    fedbench plot curves results/quickstart
    fedbench plot allocation results/quickstart -o figure2.pdf
    """


@plot.result_callback()
@click.pass_context
def _drawn(context: click.Context, *_, **__) -> None:
    tell_left_out(context.meta.get(WRONG, ()))


@plot.command(short_help="A metric over rounds, or over what they cost.")
@_common
@METRIC
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
    fedbench plot curves results/quickstart --by-domain --format svg
    fedbench plot curves results/quickstart --over bytes
    """
    chosen = _Chosen("curves", choices)
    figure = chosen.pictures.curves(chosen.boards, metric, by_domain, over, chosen.roles)
    chosen.write({"": figure}, "" if over == "rounds" else f"-{over}")


@plot.command(short_help="A metric over its cost, with the Pareto front.")
@_common
@METRIC
@click.option(
    "--over",
    type=click.Choice(["bytes", "flops", "seconds", "joules", "memory"]),
    default="bytes",
    show_default=True,
    help="The cost, as in `fedbench compare pareto`.",
)
def pareto(metric: str, over: str, **choices: Any) -> None:
    """Draw a metric over its cost: a panel for each leaderboard, a point for each method, and steps along the Pareto
    front.

    Bars are one standard deviation over seeds; methods that another beats in both are faint.

    \b
    fedbench plot pareto results/quickstart
    fedbench plot pareto results/quickstart --over flops
    """
    from fedbench.report.frames import tables
    from fedbench.report.standings import titled
    from fedbench.report.views.costs import pareto as fronts

    chosen = _Chosen("pareto", choices)
    found = chosen.leaderboards(metric)
    front = fronts(found, over)
    points = {key: front.iloc[places] for key, places in tables(front).items()}
    if not (panels := {title: points[board.place] for title, board in titled(found).items() if board.place in points}):
        raise UserError("no cell of these results has finished yet: there is nothing to draw")
    chosen.write({"": chosen.pictures.pareto(panels, over, metric, chosen.registered, chosen.roles)}, f"-{over}")


@plot.command(short_help="A metric over the memory that models take to run.")
@_common
@METRIC
def sizes(metric: str, **choices: Any) -> None:
    """Draw a metric over the memory it takes to classify one image: a line for each method, a point for each size of
    its model. Of suites with `evaluation: {sizes: true}`.

    \b
    fedbench plot sizes results/devices
    """
    from fedbench.report.standings import titled

    chosen = _Chosen("sizes", choices, "sizes", "deployed")
    panels = titled(chosen.leaderboards(metric))
    chosen.write({"": chosen.pictures.sizes(panels, metric, chosen.registered, chosen.roles)})


@plot.command(short_help="How often each client trained each layer.")
@_common
def allocation(**choices: Any) -> None:
    """Draw which client trained which layer, how often, and how many did.

    \b
    fedbench plot allocation results/quickstart
    """
    chosen = _Chosen("allocation", choices)
    chosen.write({board.title: chosen.pictures.allocation(board) for board in chosen.boards})


@plot.command(short_help="How far each layer moved.")
@_common
def layers(**choices: Any) -> None:
    """Draw how far every layer moved, and what averaging LoRA's factors lost.

    \b
    fedbench plot layers results/quickstart --method fedra --method inclusivefl
    """
    chosen = _Chosen("layers", choices, "layers")
    chosen.write({board.title: chosen.pictures.layers(board, chosen.roles) for board in chosen.boards})


@plot.command(short_help="Mean ranks over scenarios, and how far apart they are.")
@_common
@METRIC
def ranks(metric: str, **choices: Any) -> None:
    """Draw mean ranks over the scenarios of each suite with Nemenyi's critical difference, and letters by paired tests.

    \b
    fedbench plot ranks results/extreme_hetero --method fedra,depthfl,head_only
    """
    from fedbench.report.standings import standings

    chosen = _Chosen("ranks", choices)
    found = standings(chosen.leaderboards(metric))
    several = len({one.profile for one in found}) > 1
    for one in found:
        name = f"{one.suite}-{one.profile}" if several else one.suite
        several_suites = len(found) > 1
        drawn = {name if several_suites else "": chosen.pictures.diagram(one)}
        chosen.write(drawn, suites=[one.suite], several=several_suites)


@plot.command(short_help="Test images in the models' features.")
@_common
@PLUGINS
@click.option("--classes", type=click.IntRange(1), default=10, show_default=True, help="Images of the first classes.")
@click.option("--images", type=click.IntRange(3), default=600, show_default=True, help="The most images.")
def tsne(plugins: tuple, classes: int, images: int, **choices: Any) -> None:
    """Draw test images by t-SNE of the global models' features, by class and by domain.

    \b
    fedbench plot tsne results/quickstart --method fedra --method inclusivefl
    """
    chosen, registry = _Chosen("tsne", choices), Registry(plugins)
    drawn = {}
    for board in chosen.boards:
        results = board.one_seed().items()
        points = {label: chosen.pictures.embedded(one, registry, classes, images) for label, one in results}
        drawn[board.title] = chosen.pictures.tsne(points)
    chosen.write(drawn)


class _Chosen:
    """The results that a command draws, and the module that draws them.

    Args:
        kind: of picture.
        choices: the values of the options in `_common`.
        more: tables to read that leaderboards do not need.

    Raises:
        UserError: for results that cannot be read, without matplotlib, and for an unknown format of the file.
    """

    def __init__(self, kind: str, choices: Mapping[str, Any], *more: str) -> None:
        if find_spec("matplotlib") is None:
            raise UserError("pictures need matplotlib: pip install 'fedbench-heft[plots]'")
        from fedbench.report.grouping import in_pictures, select
        from fedbench.report.pictures import style

        self.pictures = import_module(f"fedbench.report.pictures.{MODULES.get(kind, kind)}")
        self.kind, self._save = kind, style.save
        self.out, self.form = choices["out"], choices["form"]
        if self.out and self.form not in (None, style.format_of(Path(self.out))):
            raise UserError(f"--output {self.out}: its suffix is not .{self.form}, which --format asks for")
        names = [choices[name] for name in ("scenarios", "methods", "seeds", "variants")]
        there = examine(choices["paths"])
        found = there.only(lambda results: select(results, *names)).read((*COMPARED, *more))
        self.results: Sequence[Result] = found.results
        if kind in ("curves", "pareto") and not choices["methods"]:
            self.results = in_pictures(self.results, self.roles)
        click.get_current_context().meta[WRONG] = found.wrong

    @cached_property
    def boards(self) -> list[Board]:
        """What is drawn of each leaderboard. Raises UserError where nothing has finished."""
        from fedbench.report.plot_data import boards

        return boards(self.results)

    def leaderboards(self, metric: str) -> list[Leaderboard]:
        from fedbench.report.leaderboards import leaderboards

        return leaderboards(self.results, metric, roles=self.roles)

    @cached_property
    def roles(self) -> dict[str, str]:
        """The roles of methods, by name."""
        from fedbench.report.grouping import roles_of

        return roles_of(self.results, Registry().catalogue.roles)

    @property
    def registered(self) -> dict[str, str]:
        """The registered names of methods, by label."""
        from fedbench.report.grouping import registered

        return {r.entry.method: registered([r]) for r in self.results}

    def write(
        self, figures: Mapping[str, Figure], suffix: str = "", suites: Sequence[str] = (), several: bool = False
    ) -> None:
        """Save figures and print their paths.

        figures: by the name of their leaderboard, "" for all of them. several: whether others are written, too.
        """
        from fedbench.report.plot_data import slug

        names = suites or list(dict.fromkeys(r.suite for r in self.results))
        for name, figure in figures.items():
            path = Path(self.out or Path("plots") / f"{slug('-'.join(names))}-{self.kind}{suffix}.{self.form or 'png'}")
            if name and (several or len(figures) > 1 or not self.out):
                path = path.with_stem(f"{path.stem}-{slug(name)}")
            self._save(figure, path)
            say(path)
