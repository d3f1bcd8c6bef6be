"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import BASELINE, FORM, METRIC, PATHS, SELECTION, Amount, takes
from fedbench.commands.output import put, tell_left_out
from fedbench.errors import UserError
from fedbench.report.grouping import select
from fedbench.report.run_scores import AT
from fedbench.results import Found, Result, examine, load
from fedbench.results.columns import HALVED, KEPT
from fedbench.results.diff import CellSummary, diff, shared
from fedbench.results.loading import hash_and_status
from fedbench.results.result import COMPARED
from fedbench.words import counted

if TYPE_CHECKING:
    from fedbench.report.changes import Changes

# Options that ask for another view than leaderboards, one at a time.
VIEWS = (
    *("summary", "boards", "by", "costs", "paper", "pairs", "ranks", "reach", "pareto", "sizes", "images", "tuning"),
    "changes",
)
DEFAULT = ("results",)  # where results are looked for without a PATH

# Tables that a view reads in addition to those of leaderboards.
MORE_TABLES = {"--images": ("right",), "--sizes": ("sizes", "deployed")}


@click.command()
@PATHS
@METRIC
@click.option(
    "--at",
    default="final",
    show_default=True,
    metavar="ROUND",
    help="Which round counts: final, best (on validation images), last4; or bytes=2GB, flops=1e15, joules=2kWh: the "
    "last one by which all clients together had spent no more; or seconds=1h: had taken no longer, simulated "
    "(without an amount: than the cheapest method, no control, does in all).",
)
@click.option(
    "--budget", metavar="AMOUNT", help="With --at bytes, flops, joules or seconds: how much, such as 2GB or 1h 30min."
)
@BASELINE
@takes(*SELECTION)
@click.option(
    "--summary",
    is_flag=True,
    help="Methods over scenarios: means, tie groups, mean ranks. Of more than 8 leaderboards this is what is printed "
    "where no view and no other format is asked for.",
)
@click.option("--boards", is_flag=True, help="Every leaderboard, however many there are.")
@click.option("--by", type=click.Choice(["client"]), help="A line for each client, where clients are tested.")
@click.option("--costs", is_flag=True, help="What leaves the clients, what they are sent, and who computes how much.")
@click.option("--paper", is_flag=True, help="Next to the paper's numbers that the suite names.")
@click.option(
    "--pairs", is_flag=True, help="Every two methods: better, worse, equal or inconclusive; or all with --baseline."
)
@click.option("--ranks", is_flag=True, help="Ranks over the scenarios of each suite, and tie groups over them.")
@click.option(
    "--reach",
    metavar="SCORE",
    help="What each method needed until its test score first was so good, e.g. 80%: rounds, bytes, FLOPs, and where "
    "clients have devices simulated seconds and joules.",
)
@click.option(
    "--pareto",
    type=click.Choice(["bytes", "flops", "seconds", "joules", "memory"]),
    help="Which methods nobody beats at both, the metric and this cost.",
)
@click.option("--sizes", is_flag=True, help="The models at every size, and what each client can run of them.")
@click.option("--tuning", is_flag=True, help="How methods were tuned: who won, and what fewer trials would have given.")
@click.option("--images", nargs=2, metavar="A B", help="Two methods' trained models, test image by test image.")
@click.option(
    "--changes",
    is_flag=True,
    help="What differs from the first of two PATHs to the second. Two that share names are set against each other so "
    "where no view and no other format is asked for.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["worse", "different"]),
    help="With --changes: exit code 1 where a method is worse or a cell fails that had not, or where anything differs.",
)
@click.option(
    "--equivalent",
    type=Amount(min=0),
    metavar="POINTS",
    help="What may be called equal where the interval lies inside.  [default: 1 of what is in percent]",
)
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only rows that fit: a column, an operator, a value, such as 'accuracy > 80' or 'memory <= 100MB'; all must "
    "hold.",
)
@click.option(
    "--sort",
    multiple=True,
    metavar="COLUMN",
    help="Sort rows by it, the best first; or COLUMN:asc, COLUMN:desc. Of several the first counts most.",
)
@click.option("--columns", multiple=True, metavar="A,B,...", help="Only these columns after the names, in this order.")
@click.option("--no-pager", is_flag=True, help="Print at once what is longer than the screen.")
@click.option("--hash", "hashes", is_flag=True, help="Only a hash of what each PATH says, without timings.")
@FORM
def compare(paths: tuple, hashes: bool, **asked: Any) -> None:
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
    fedbench compare results/quickstart --reach 60%
    fedbench compare results/quickstart --pareto bytes
    fedbench compare results/devices --sizes
    fedbench compare results/quickstart --images fedra depthfl
    fedbench compare results/feature_skew_tuned --tuning
    fedbench compare before after --fail-on worse
    fedbench compare results/fedra_table1 --paper
    fedbench compare results/quickstart --where 'accuracy > 80' --sort bytes
    fedbench compare results/quickstart --format csv > quickstart.csv
    """
    if not hashes:
        _show(paths, **asked)
        return
    context = click.get_current_context()
    for param in context.command.params:
        set_by = context.get_parameter_source(str(param.name))
        if set_by is click.core.ParameterSource.COMMANDLINE and param.name not in ("paths", "hashes", "no_pager"):
            raise UserError(f"--hash is of all results of a PATH: leave out {param.opts[0]}")
    _hashes(paths or DEFAULT)


def _show(
    paths: Sequence[str],
    *,
    scenarios: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[int],
    fail_on: str | None,
    form: str,
    where: Sequence[str],
    sort: Sequence[str],
    columns: Sequence[str],
    no_pager: bool,
    **asked: Any,
) -> None:
    """Print the view that is asked for. asked: VIEWS, and the arguments of `fedbench.report.views.chosen`."""
    from fedbench.report import filters, views
    from fedbench.report.changes import for_people, for_programs
    from fedbench.report.tuning_tables import undecided

    needed = {name: asked[name] for name in ("images", "reach", "pareto")}
    kind = _one([f"--{name}" for name in VIEWS if asked.pop(name)], fail_on)
    chosen = partial(select, scenarios=scenarios, methods=methods, variants=variants, seeds=seeds)
    wanted: dict[str, Any] = {"where": where, "sort": sort, "columns": columns}
    tell = partial(put, form=form, paged=not no_pager)
    asked["at"] = _at(asked["at"], asked.pop("budget"))
    two = not kind and form == "rich" and len(paths) == 2 and asked["baseline"] is None and not any(wanted.values())
    if (two or kind == "--changes") and (both := _changes(paths, chosen, asked, must=not two)):
        found, wrong = both
        tell(filters.chosen(for_people(found) if form in views.PEOPLE else for_programs(found), **wanted))
        tell_left_out(wrong)
        sys.exit(bool({"worse": found.worse, "different": found.different}.get(fail_on or "")))
    there = _found(paths or DEFAULT, chosen, kind)
    lacks = undecided(there, paths or DEFAULT)
    if there.results or form in ("csv", "json"):
        try:
            tell(views.chosen(there.results, kind, form=form, **wanted, **asked, **needed))
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


def _one(given: Sequence[str], fail_on: str | None) -> str:
    """The one view that is asked for, or "". Raises UserError for several."""
    given = list(given) or ["--changes"] * bool(fail_on)
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} are separate views: choose one")
    if fail_on and given != ["--changes"]:
        raise UserError("--fail-on judges --changes, and no other view")
    return given[0] if given else ""


def _found(paths: Sequence[str], chosen: Callable[[Sequence[Result]], list[Result]], kind: str) -> Found:
    """The results that a view shows, with the tables it needs. Of a tuning nothing is left out: without a candidate
    another could win."""
    if kind == "--tuning":
        return Found(chosen(load(paths, candidates=True)), [])
    return examine(paths).only(chosen).read((*COMPARED, *MORE_TABLES.get(kind, ())))


def _hashes(paths: Sequence[str]) -> None:
    """Print a line for each path, and on stderr which cells have no result: the hash has nothing of them."""
    for path in paths:
        found, statuses = hash_and_status(path)
        click.echo(f"{found}  {path}")
        if missing := {status: n for status, n in statuses.items() if status not in (*KEPT, HALVED)}:
            counts = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in missing.items())
            click.echo(f"{path}: no result of {counted(sum(missing.values()), 'cell')} is in it: {counts}", err=True)


def _changes(
    paths: Sequence[str],
    chosen: Callable[[Sequence[Result]], list[Result]],
    asked: Mapping[str, Any],
    must: bool,
) -> tuple[Changes, list[str]] | None:
    """What differs from the first to the second folder, and what is damaged; None where they share no name and need
    not."""
    from fedbench.report.changes import changes
    from fedbench.report.views import refuse

    if len(paths) != 2:
        raise UserError(f"--changes takes two PATHs, before and after, and not {len(paths)}")
    refuse("--changes", asked)
    there = [examine([path]) for path in paths]
    sides = [one.results for one in there]
    if not must and not (asked["at"] in AT and shared(*sides)):
        return None
    kept = set(map(id, chosen([*sides[0], *sides[1]])))
    before, after = ([CellSummary.of(result) for result in side if id(result) in kept] for side in sides)
    found = changes((paths[0], paths[1]), diff(before, after), asked["metric"], asked["at"], asked["equivalent"])
    return found, list(dict.fromkeys([*there[0].wrong, *there[1].wrong, *found.faults]))
