"""fedbench compare: leaderboards from results on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import FORM, Amount
from fedbench.commands.output import put, tell_left_out
from fedbench.commands.reading import uncollected
from fedbench.errors import UserError

if TYPE_CHECKING:
    from fedbench.report.frames import Frame
    from fedbench.results import Found, Result

# By parameter, the options that ask for something else than leaderboards, one at a time.
VIEWS = {
    "summary": "--summary",
    "boards": "--boards",
    "by": "--by",
    "costs": "--costs",
    "beside": "--paper",
    "pairs": "--pairs",
    "ranks": "--ranks",
    "reach": "--reach",
    "pareto": "--pareto",
    "sizes": "--sizes",
    "images": "--images",
    "tuning": "--tuning",
    "changes": "--changes",
}

# Tables that a view reads beside those of boards.
MORE_TABLES = {"--images": ("right",), "--sizes": ("sizes", "deployed")}


@click.command(short_help="Print leaderboards from results.")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[PATH]...")
@click.option("--metric", default="accuracy", show_default=True, metavar="M", help="What is compared.")
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
    if hashes:
        _alone()
        _hashes(_in(paths))
    else:
        with uncollected():
            _show(paths, **asked)


def _show(
    paths: Sequence[str],
    *,
    scenarios: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[str],
    fail_on: str | None,
    form: str,
    where: Sequence[str],
    sort: Sequence[str],
    columns: Sequence[str],
    no_pager: bool,
    **asked: Any,
) -> None:
    """Print what is asked for. asked: as of `fedbench.report.views.chosen`, and by parameter those of VIEWS."""
    from fedbench.report import filters, views
    from fedbench.report.grouping import select
    from fedbench.report.tuning import undecided

    needed = {name: asked[name] for name in ("images", "reach", "pareto")}
    kinds = {option: asked.pop(name) for name, option in VIEWS.items()}
    given = _one([option for option, value in kinds.items() if value], fail_on)
    chosen = partial(select, scenarios=scenarios, methods=methods, variants=variants)
    wanted: dict[str, Any] = {"where": where, "sort": sort, "columns": columns}
    tell = partial(put, form=form, paged=not no_pager)
    asked["at"] = _at(asked["at"], asked.pop("budget"))
    two = not given and form == "rich" and len(paths) == 2 and asked["baseline"] is None and not any(wanted.values())
    if two or given == ["--changes"]:
        asking = partial(_changes, paths, chosen, fail_on, asked, must=not two)
        if asking(tell=lambda found: tell(filters.chosen(found, **wanted)), people=form in views.PEOPLE):
            return
    found = _found(_in(paths), chosen, given)
    lacks = undecided(found, _in(paths))
    if found.results or form in ("csv", "json"):
        try:
            kind = given[0] if given else ""
            tell(views.chosen(found.results, kind, form=form, **wanted, **asked, **needed))
        except UserError as error:  # perhaps for want of what is left out
            left = (f"Left out: {line}" for line in found.wrong)
            raise UserError("\n".join(filter(None, [str(error), lacks, *left]))) from error
    tell_left_out(found.wrong, lacks)


def _at(at: str, budget: str | None) -> str:
    """The round that counts, with its budget. Raises: UserError for a budget of nothing."""
    if budget is None:
        return at
    if at not in ("bytes", "flops", "joules", "seconds"):
        raise UserError("--budget needs --at bytes, --at flops, --at joules or --at seconds")
    return f"{at}={budget}"


def _one(given: Sequence[str], fail_on: str | None) -> list[str]:
    """The one view that is asked for, or none. Raises: UserError for several."""
    given = list(given) or ["--changes"] * bool(fail_on)
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} are views of their own: choose one")
    if fail_on and given != ["--changes"]:
        raise UserError("--fail-on judges --changes, and no other view")
    return given


def _in(paths: Sequence[str]) -> Sequence[str]:
    return paths or ("results",)


def _found(paths: Sequence[str], chosen: Callable[[Sequence[Result]], list[Result]], given: Sequence[str]) -> Found:
    """What is compared, its tables read as far as a view needs them. Of a tuning nothing is left out: without a
    candidate another could win."""
    from fedbench.results import Found, examine, load
    from fedbench.results.result import COMPARED

    if "--tuning" in given:
        return Found(chosen(load(paths, candidates=True)), [])
    more = [table for view in given for table in MORE_TABLES.get(view, ())]
    return examine(paths).only(chosen).read((*COMPARED, *more))


def _alone() -> None:
    """Raises: UserError where anything is asked for beside --hash, which is of all that a PATH says."""
    context = click.get_current_context()
    given = [
        param.opts[0]
        for param in context.command.params
        if param.name not in (None, "paths", "hashes", "no_pager")
        and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise UserError(f"--hash is of all that a PATH says, and prints nothing else: leave out {', '.join(given)}")


def _hashes(paths: Sequence[str]) -> None:
    """A line for each path; where a cell has no result, a word on stderr, for then the hash says nothing of it."""
    from fedbench.results.loading import hash_and_status
    from fedbench.results.status import HALVED, KEPT
    from fedbench.words import counted

    for path in paths:
        found, statuses = hash_and_status(path)
        click.echo(f"{found}  {path}")
        if missing := {status: n for status, n in statuses.items() if status not in (*KEPT, HALVED)}:
            told = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in missing.items())
            click.echo(f"{path}: no result of {counted(sum(missing.values()), 'cell')} is in it: {told}", err=True)


def _changes(
    paths: Sequence[str],
    chosen: Callable[[Sequence[Result]], list[Result]],
    fail_on: str | None,
    asked: Mapping[str, Any],
    *,
    tell: Callable[[Frame], None],
    people: bool,
    must: bool,
) -> bool:
    """Set two folders against each other, and end with exit code 1 as asked; False where it need not be and they share
    no name."""
    from fedbench.report.changes import changes, for_people, for_programs
    from fedbench.report.run_scores import AT
    from fedbench.report.views import refuse
    from fedbench.results import examine
    from fedbench.results.diff import CellSummary, diff, shared

    if len(paths) != 2:
        raise UserError(f"--changes takes two PATHs, before and after, and not {len(paths)}")
    refuse("--changes", asked)
    there = [examine([path]) for path in paths]
    sides = [one.results for one in there]
    if not must and not (asked["at"] in AT and shared(*sides)):
        return False
    kept = set(map(id, chosen([*sides[0], *sides[1]])))
    before, after = ([CellSummary.of(result) for result in side if id(result) in kept] for side in sides)
    found = changes((paths[0], paths[1]), diff(before, after), asked["metric"], asked["at"], asked["equivalent"])
    tell(for_people(found) if people else for_programs(found))
    tell_left_out(list(dict.fromkeys([*there[0].wrong, *there[1].wrong, *found.faults])))
    if (fail_on == "worse" and found.worse) or (fail_on == "different" and found.different):
        sys.exit(1)
    return True
