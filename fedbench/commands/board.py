"""fedbench board: other people's methods, checked, run again and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, JOBS, FilePath, output, workers
from fedbench.errors import Interrupted, UserError
from fedbench.words import command_line, counted

if TYPE_CHECKING:
    from fedbench.board.checks import Fault
    from fedbench.board.entries import Entry, Home

HOME = click.option("--home", default="board", metavar="DIR", type=FilePath(), help="The board's folder.  [board]")
ONLY = click.option("--board", "only", metavar="NAME", help="Only this board of those that the entry is on.")
QUIET = click.option("--quiet", is_flag=True, help="Show no progress.")
FORMS = click.Choice(["rich", "json", "markdown"])


@click.group()
def board() -> None:
    """Put a method on the board: write an entry, check it, run it again, and build the site.

    \b
    fedbench board new mine --from-plugin mine.py
    fedbench board check board/entries/mine/1
    fedbench board rerun board/entries/mine/1
    fedbench board build -o site
    """


@board.command(short_help="Write an entry, and compute its results.")
@click.argument("name")
@click.option("--from-plugin", "plugin", type=FilePath(), metavar="FILE", help="The .py file that registers it.")
@click.option("--board", "on", default="lite", show_default=True, metavar="NAME", help="The board.")
@click.option("--version", default=1, show_default=True, type=click.IntRange(min=1), help="Of the entry.")
@click.option("--results", type=FilePath(), metavar="DIR", help="Results that are there, in place of a run.")
@HOME
@DEVICE
@JOBS
@QUIET
def new(name: str, plugin: str | None, on: str, version: int, results: str | None, home: str, **given: Any) -> None:
    """Write board/entries/NAME/VERSION/entry.yaml for the method NAME, of your plugin's file or of fedbench, and
    compute its results on a board. What is finished is kept. A second board is added to the entry.

    \b
    fedbench board new mine --from-plugin mine.py
    fedbench board new mine --board images
    """
    from fedbench.board import starting
    from fedbench.board.entries import ENTRIES, ENTRY

    there = _home(home)
    starting.copy_boards(there)
    entry = starting.begin_entry(there.folder / ENTRIES / name / str(version) / ENTRY, name, there.board(on), plugin)
    with _watched(given) as options:
        starting.add_results(entry, there.board(on), results, options)
    click.echo(f"{entry.name} is on {on}. Authors, paper and licence stand in its {ENTRY}.")
    _next(["fedbench", "board", "check", _short(entry.folder)])


@board.command(short_help="Check entries: code, settings, tuning, seeds, hashes.")
@click.argument("paths", nargs=-1, type=FilePath(), metavar="[ENTRY]...")
@click.option("--format", "form", type=FORMS, default="rich", show_default=True, help="markdown: for a pull request.")
@ONLY
@HOME
def check(paths: tuple, form: str, only: str | None, home: str) -> None:
    """Check entries, all if none is named: what their files say, their code against its contract, and their results
    against the board's suite. All faults are listed at once.

    \b
    fedbench board check
    fedbench board check board/entries/mine/1 --format markdown

    Exit code: 0 if all may stand on the board, 1 if some may not, 2 if a file cannot be read.
    """
    from fedbench.board.checks import Check

    there, entries = _entries(home, paths, only)
    boards = [only] if only else list(there.boards)
    _isolate([entry for entry in entries if entry.is_foreign])
    found: dict[str, list[Fault]] = {}
    known: dict[Path, Any] = {}
    for entry in entries:
        found[entry.name] = Check(there, entry, entry.files, _kit, boards, known=known).faults()
    _tell(found, form)
    if form == "rich" and paths and not any(found.values()):
        commit = ["git", "commit", "-m", f"Add {', '.join(found)} to the board"]
        _next(["git", "add", *paths], commit, ["fedbench", "board", "rerun", *paths])
    sys.exit(1 if any(found.values()) else 0)


def _tell(found: Mapping[str, Sequence[Fault]], form: str) -> None:
    """Print what was found, each fault with its place."""
    if form == "json":
        rows = {name: [dict(fault._asdict(), mark=str(fault.mark)) for fault in found[name]] for name in found}
        verdict = "refused" if any(found.values()) else "accepted"
        click.echo(json.dumps({"verdict": verdict, "entries": rows}, indent=1))
        return
    heading, item = (
        ("### {1} {0}\n", "- `{1}`: **{0}**: {2}") if form == "markdown" else ("{0}  {1}", "  {1}: {0}: {2}")
    )
    for name, faults in found.items():
        click.echo(heading.format("refused" if faults else "accepted", name))
        for fault in faults:
            click.echo(item.format(*fault))


@board.command(short_help="Run entries again, on hidden seeds too.")
@click.argument("paths", nargs=-1, required=True, type=FilePath(), metavar="ENTRY...")
@click.option("--cells", default=2, show_default=True, type=click.IntRange(min=1), help="How many submitted cells.")
@click.option("--all", "every", is_flag=True, help="All submitted cells.")
@click.option("--salt", type=FilePath(), metavar="FILE", help="The maintainers' secret, from which seeds follow.")
@ONLY
@HOME
@DEVICE
@JOBS
@QUIET
def rerun(paths: tuple, cells: int, every: bool, salt: str | None, only: str | None, home: str, **given: Any) -> None:
    """Run entries that `check` accepts again, without network if bwrap or unshare can: some submitted cells, which must
    come out as they were, and on hidden seeds all that ranks. What was run is written next to the entry.

    \b
    fedbench board rerun board/entries/mine/1
    fedbench board rerun board/entries/mine/1 --all --salt secret.txt

    Exit code: 0 if the entry ranks now, 1 if it does not, 2 if it cannot be run.
    """
    from fedbench.board.checks import STATE, Check
    from fedbench.board.children import isolated
    from fedbench.board.records import concluded
    from fedbench.board.rerun import Rerun
    from fedbench.board.seeds import salt_of

    there, entries = _entries(home, paths, only)
    _isolate([*entries, *(entry for entry in there.entries.values() if entry.ranks)])
    click.echo(f"Running {isolated()}.", err=True)
    wrong = False
    with _watched(given) as options:
        for entry in entries:
            for name in [only] if only else entry.boards:
                if not there.has_current(entry, name):
                    click.echo(f"{entry.name} on {name}: not run, as it is withdrawn or of an older version")
                    continue
                check = Check(there, entry, entry.files, lambda names: [], [name], blind=False)
                if faults := [fault for fault in check.faults() if fault.rule != STATE]:
                    _tell({entry.name: faults}, "rich")
                    wrong = True
                    continue
                secret = salt_of(there.board(name), Path(salt) if salt else None)
                one = Rerun(there, entry, there.board(name), secret, isolated(), options)
                record = one.run(None if every else cells)
                lines = [f"submitted seed {row['seed']}: {row['change']}" for row in record["drawn"]]
                lines += [f"hidden seeds: {', '.join(map(str, record['seeds']))}"] if "seeds" in record else []
                lines += [f"{record['challenge']['verdict']} than what it challenges"] if "challenge" in record else []
                objections = concluded(there, entry, name, record)
                for line in (*lines, *(f"not ranked: {objection}" for objection in objections)):
                    click.echo(f"{entry.name} on {name}: {line}")
                wrong |= bool(objections)
    if not wrong:
        _next(["fedbench", "board", "build", "-o", "site"])
    sys.exit(1 if wrong else 0)


@board.command(short_help="Write the site of all boards.")
@output("DIR", "The folder.", "site")
@HOME
def build(out: str, home: str) -> None:
    """Write a static site that opens offline: a page for each board and entry, with CSV, JSON and BibTeX.

    \b
    fedbench board build -o site
    """
    from fedbench.board import site
    from fedbench.registry.registry import Registry

    pages = site.build(_home(home), Path(out), Registry())
    click.echo(f"{counted(pages, 'page')} written; open {Path(out) / 'index.html'}")


# What the commands share


def _home(folder: str) -> Home:
    from fedbench.board.entries import Home

    return Home(Path(folder).absolute())


def _entries(home: str, paths: Sequence[str], only: str | None) -> tuple[Home, list[Entry]]:
    """The board and the entries that are meant, all if none is named, or all on one board. Raises UserError with what
    is wrong in them, and where one that is named is not on that board."""
    there = _home(home)
    named = {entry.folder.resolve(): entry for entry in there.entries.values()}
    for path in paths:
        if Path(path).resolve() not in named:
            raise UserError(f"{path}: not an entry of {home}; expected a folder such as board/entries/mine/1")
    found = [named[Path(path).resolve()] for path in paths] or list(named.values())
    if only and there.board(only):
        if paths and (lost := [entry for entry in found if only not in entry.boards]):
            raise UserError(f"{lost[0].name} is not on {only}; it is on {', '.join(lost[0].boards) or 'no board'}")
        found = [entry for entry in found if only in entry.boards]
    return there, found


def _isolate(entries: Iterable[Entry]) -> None:
    """Go on in a child without network, where there are such entries; the child has their packages."""
    from fedbench.board.children import again, isolated, packages_of

    if (entries := list(entries)) and not isolated():
        with packages_of(entries) as code:
            sys.exit(again(sys.argv[1:], code))


def _kit(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What `fedbench plugins check` says."""
    from fedbench.commands.verdicts import PluginCheck

    yield from PluginCheck(names).verdicts()


@contextmanager
def _watched(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The options of runs, with the bars of `fedbench run`; Ctrl-C ends with the usual exit code."""
    from fedbench.commands.output import Screen
    from fedbench.commands.watch import Watch
    from fedbench.processes.signals import raising

    try:
        with raising(), Watch(Screen(stderr=True), given["quiet"]) as watch:
            yield {"observe": watch, "device": given["device"], "jobs": workers(given["jobs"])}
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _next(*commands: Sequence[str]) -> None:
    """Print what to do next, in the same board."""
    home = click.get_current_context().params["home"]
    at = [] if home == "board" else ["--home", home]
    click.echo("Next:")
    for words in commands:
        click.echo(f"  {command_line([*words, *at] if words[0] == 'fedbench' else words)}")
