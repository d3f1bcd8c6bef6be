"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fedbench.commands.choices import (
    BASELINE,
    FORM_OR_BIBTEX,
    METRIC,
    PATHS,
    SELECTION,
    Amount,
    gone,
    results_of,
    takes,
)
from fedbench.commands.output import put, tell_left_out
from fedbench.commands.terminal import say
from fedbench.errors import UserError
from fedbench.report.grouping import select
from fedbench.results import Loaded, Result, examine, load
from fedbench.results.columns import HALVED, KEPT
from fedbench.results.diff import shared
from fedbench.results.loading import hash_and_status
from fedbench.results.result import COMPARED
from fedbench.words import counted, nearest

if TYPE_CHECKING:
    import pandas

MORE_TABLES = {"sizes": ("sizes", "deployed"), "wire": ("wire",)}  # that a view reads besides those of leaderboards

AT = (
    click.option(
        "--at",
        default="final",
        show_default=True,
        metavar="ROUND",
        help="Which round counts: final, best (on validation examples), last4; or bytes=2GB, flops=1e15, joules=2kWh: "
        "the last one by which all clients together had spent no more; or seconds=1h: had taken no longer in simulated "
        "time. Without an amount it is what the cheapest method, which is no control, spends in all its rounds.",
    ),
    click.option(
        "--budget",
        metavar="AMOUNT",
        help="With --at bytes, flops, joules or seconds: how much, such as 2GB or 1h 30min.",
    ),
)
EQUIVALENT = click.option(
    "--equivalent",
    type=Amount(min=0),
    metavar="POINTS",
    help="The margin within which methods may be called equal.  [default: 1 for metrics in percent]",
)
OPTIONS = {"metric": (METRIC,), "at": AT, "baseline": (BASELINE,), "equivalent": (EQUIVALENT,)}
SHOWN = (
    *SELECTION,
    click.option(
        "--sort",
        multiple=True,
        metavar="COLUMN",
        help="Sort rows by a column, the best first; or COLUMN:asc, COLUMN:desc. The first of several counts most.",
    ),
    click.option(
        "--columns", multiple=True, metavar="A,B,...", help="Only these columns after the names, in this order."
    ),
    gone("--where", "sort rows with --sort, choose columns with --columns; `load()` and --format csv have all rows"),
    FORM_OR_BIBTEX,
)
COSTS = click.Choice(["bytes", "flops", "seconds", "joules", "memory"])
EVERY = ("metric", "at", "baseline", "equivalent")  # of OPTIONS
NO_BASELINE = ("metric", "at", "equivalent")
SCORE = ("metric", "at")


class View(NamedTuple):
    """What a view shows, which of OPTIONS it takes, its own arguments and options, and an example's words."""

    shows: str
    takes: tuple[str, ...] = SCORE
    own: tuple[Callable[[Callable], Callable], ...] = ()
    example: str = "results/quickstart"

    def help(self, name: str) -> str:
        return f"{self.shows}\n\n\b\nfedbench compare {name} {self.example}"


VIEWS = {
    "boards": View("All leaderboards, even if there are many.", EVERY),
    "summary": View("Methods over scenarios: means, tie groups, mean ranks.", NO_BASELINE),
    "pairs": View("Each pair of methods: better, worse, equal or inconclusive.", EVERY),
    "costs": View("What clients and the server send and compute.", ("metric",)),
    "pareto": View(
        "The Pareto front: methods that no other beats in metric and cost.",
        own=(click.argument("pareto", type=COSTS, metavar="bytes|flops|seconds|joules|memory"),),
        example="bytes results/quickstart",
    ),
    "reach": View(
        "The cost of each method to reach a score, such as 80%.",
        ("metric",),
        (click.argument("reach", metavar="SCORE"),),
        "60% results/quickstart",
    ),
    "ranks": View("Mean ranks over the scenarios of each suite, with tie groups.", NO_BASELINE),
    "clients": View("A line for each client, if clients are tested.", example="results/personalised_tuned"),
    "sizes": View(
        "The models at every size, and which of them each client can run.", ("metric",), example="results/devices"
    ),
    "wire": View(
        "What was measured of deployed cells, next to what is simulated.",
        ("metric",),
        example="results/two_machines",
    ),
    "tuning": View("The winner of each tuning, and what fewer trials would give.", (), example="results/field_tuned"),
    "paper": View("Results next to the numbers of a paper, if the suite has them."),
    "changes": View(
        "The differences between two PATHs; exit code 1 if scores differ.",
        ("metric", "equivalent"),
        (gone("--fail-on", "the exit code is 1 wherever scores differ by more than --equivalent"),),
        "before after",
    ),
}


GONE = {"images": "compare images is gone: `compare pairs` compares methods, over seeds"}  # views


class _Compare(click.Group):
    """A group whose first word may be a PATH in place of a view: then leaderboards are printed."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        options = bool(args) and args[0].startswith("-") and args[0] not in context.help_option_names
        return super().parse_args(context, ["leaderboards", *args] if options or not args else args)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if args[0] in GONE:
            raise UserError(GONE[args[0]])
        unknown = args[0] not in self.commands and not os.path.lexists(results_of(args[0], "results"))
        if unknown and (near := nearest(args[0], VIEWS)):
            raise UserError(f"{args[0]}: no such folder, and no view of that name; did you mean {near[0]}?")
        return super().resolve_command(context, args if args[0] in self.commands else ["leaderboards", *args])

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands["leaderboards"].format_options(context, formatter)
        self.format_commands(context, formatter)


@click.group(cls=_Compare, options_metavar="", subcommand_metavar="[VIEW] [PATH]... [OPTIONS]")
def compare() -> None:
    """Print a leaderboard for every scenario under PATH (results/ if none is given), a summary of many, or a VIEW.

    \b
    fedbench compare results/quickstart
    fedbench compare results --scenario 'all_*' --baseline fedra
    fedbench compare results/quickstart --at bytes=50MB
    fedbench compare results/quickstart --sort bytes --columns average,bytes
    fedbench compare results/quickstart --format csv > quickstart.csv
    fedbench compare pairs results/quickstart --baseline fedra
    fedbench compare reach 60% results/quickstart
    fedbench compare pareto bytes results/quickstart
    fedbench compare changes before after --equivalent 0.5

    If a folder has the name of a view, write ./pairs. `fedbench compare VIEW --help` shows the options of a view.
    """


class _NamedCompare(click.Context):
    """A context whose messages speak of `fedbench compare`, which is what people type."""

    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent else super().command_path


class _Leaderboards(click.Command):
    context_class = _NamedCompare


@compare.command(hidden=True, cls=_Leaderboards)
@takes(PATHS, *(option for options in OPTIONS.values() for option in options), *SHOWN)
def leaderboards(paths: tuple, **asked: Any) -> None:
    """Print a leaderboard for every scenario, or a summary of more than eight."""
    _show(paths, "", **asked)


def _add(name: str) -> None:
    """Add the command of a view."""
    view = VIEWS[name]
    options = (option for what in view.takes for option in OPTIONS[what])

    @compare.command(name, help=view.help(name))
    @takes(*view.own, PATHS, *options, *SHOWN)
    def command(paths: tuple, **asked: Any) -> None:
        _show(paths, name, **asked)


for _name in VIEWS:
    _add(_name)


@compare.command("hash")
@PATHS
def hashes(paths: tuple) -> None:
    """Only a hash of what each PATH says, without timings.

    \b
    fedbench compare hash results/quickstart
    """
    for path in paths:
        found, statuses = hash_and_status(path)
        say(f"{found}  {path}")
        # Of what has no result the hash has nothing.
        if missing := {status: n for status, n in statuses.items() if status not in (*KEPT, HALVED)}:
            counts = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in missing.items())
            say(f"{path}: no result of {counted(sum(missing.values()), 'cell')} is in it: {counts}", err=True)


def _show(
    paths: Sequence[str],
    kind: str,
    *,
    scenarios: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[int],
    form: str,
    sort: Sequence[str],
    columns: Sequence[str],
    budget: str | None = None,
    **asked: Any,
) -> None:
    """Print a view; "" for leaderboards. asked: the arguments of `fedbench.report.views.by_name.chosen`."""
    from fedbench.report import frames
    from fedbench.report.views import by_name
    from fedbench.report.views.costs import read_target
    from fedbench.report.views.tuning import undecided

    if kind == "reach":
        read_target(asked["reach"], asked["metric"])  # before a path that stands in its place is looked for
    chosen = partial(select, scenarios=scenarios, methods=methods, variants=variants, seeds=seeds)
    wanted: dict[str, Any] = {"sort": sort, "columns": columns}
    tell = partial(put, form=form)
    asked = {**by_name.USUAL, **asked}
    asked["at"] = _at(asked["at"], budget)
    usual = asked["at"] == "final" and asked["baseline"] is None and not any(wanted.values())
    two = not kind and form == "rich" and len(paths) == 2 and usual
    if (two or kind == "changes") and (both := _changes(paths, chosen, asked, must=not two)):
        from fedbench.report.views.changes import for_people

        found, wrong = both
        tell(frames.chosen(for_people(found) if form in by_name.PEOPLE else found, **wanted))
        tell_left_out(wrong)
        sys.exit(kind == "changes" and found.attrs["broken"])
    there = _found(paths, chosen, kind)
    lacks = undecided(there, paths)
    if there.results or form in ("csv", "json"):
        try:
            tell(by_name.chosen(there.results, kind, form=form, **wanted, **asked))
        except UserError as error:  # perhaps for want of what is left out
            left = (f"Left out: {line}" for line in there.wrong)
            raise UserError("\n".join(filter(None, [str(error), lacks, *left]))) from error
    tell_left_out(there.wrong, lacks)


def _at(at: str, budget: str | None) -> str:
    """The round that counts, with its budget. Raises UserError for a budget of nothing."""
    if budget is None:
        return at
    if at not in ("bytes", "flops", "joules", "seconds"):
        raise UserError("--budget needs --at bytes, --at flops, --at joules or --at seconds")
    return f"{at}={budget}"


def _found(paths: Sequence[str], chosen: Callable[[Sequence[Result]], list[Result]], kind: str) -> Loaded:
    """The results that a view shows, with the tables it needs. Of a tuning nothing is left out: without a candidate
    another could win."""
    if kind == "tuning":
        return Loaded(chosen(load(paths, candidates=True)), [])
    return examine(paths).only(chosen).read((*COMPARED, *MORE_TABLES.get(kind, ())))


def _changes(
    paths: Sequence[str],
    chosen: Callable[[Sequence[Result]], list[Result]],
    asked: Mapping[str, Any],
    must: bool,
) -> tuple[pandas.DataFrame, list[str]] | None:
    """What differs from the first to the second folder, and what is damaged; None where they share no name and need
    not."""
    from fedbench.report.views.changes import changes

    if len(paths) != 2:
        raise UserError(f"changes takes two PATHs, before and after, and not {len(paths)}")
    there = [examine([path]) for path in paths]
    sides = [one.results for one in there]
    if not must and not shared(*sides):
        return None
    kept = set(map(id, chosen([*sides[0], *sides[1]])))
    before, after = ([result for result in side if id(result) in kept] for side in sides)
    found = changes((paths[0], paths[1]), before, after, asked["metric"], asked["equivalent"] or 0.0)
    return found, list(dict.fromkeys([*there[0].wrong, *there[1].wrong, *found.attrs["faults"]]))
