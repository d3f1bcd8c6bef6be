"""fedbench board: other people's methods, checked, run again and shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedbench.commands.choices import DEVICE, JOBS, FilePath, workers
from fedbench.errors import Interrupted, UserError
from fedbench.words import command_line, counted

if TYPE_CHECKING:
    from fedbench.board.checks import Fault
    from fedbench.board.entries import Entry, Home

HOME = click.option(
    "--home", default="board", show_default=True, type=FilePath(), metavar="DIR", help="The board's folder."
)
BOARD = click.option("--board", metavar="NAME", help="Only this board of those that the entry is on.")


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
@click.option(
    "--from-plugin", "plugin", type=FilePath(), metavar="FILE", help="The .py file that registers the method."
)
@click.option("--board", "on", default="lite", show_default=True, metavar="NAME", help="The board.")
@click.option("--version", default=1, show_default=True, type=click.IntRange(min=1), help="The version of the entry.")
@click.option("--results", type=FilePath(), metavar="DIR", help="Results that are there, in place of a run.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="An author; by default git's user.name.")
@click.option("--licence", default="Apache-2.0", show_default=True, help="The licence of the code.")
@HOME
@DEVICE
@JOBS
def new(name: str, plugin: str | None, on: str, version: int, home: str, results: str | None, **given: Any) -> None:
    """Write board/entries/NAME/VERSION/entry.yaml for the method NAME, and compute its results on a board: of your
    plugin's file, or of a method that fedbench has. What is finished is kept; a second board is added to the entry.

    \b
    fedbench board new mine --from-plugin mine.py
    fedbench board new mine --board images
    """
    from fedbench.board import starting

    there = _home(home)
    starting.settle(there)
    entry = starting.begin(there, name, version, there.board(on), plugin, given["authors"], given["licence"])
    with _watched(given) as options:
        starting.finish(entry, there.board(on), results, options)
    _next(f"{(place := _short(entry.folder))} is written.", ["fedbench", "board", "check", place, *_at(home)])


@board.command(short_help="Check entries: code, settings, tuning, seeds, hashes.")
@click.argument("paths", nargs=-1, type=FilePath(), metavar="[ENTRY]...")
@click.option(
    "--format", "form", type=click.Choice(["rich", "json", "markdown"]), default="rich", show_default=True,
    help="The format of the output; markdown for a pull request.",
)  # fmt: skip
@BOARD
@HOME
def check(paths: tuple, form: str, board: str | None, home: str) -> None:
    """Check entries, all if none is named: what their files say, their code against its contract, and their results
    against the board's suite. All faults are told at once.

    \b
    fedbench board check
    fedbench board check board/entries/mine/1 --format markdown

    Exit code: 0 if all may stand on the board, 1 if some may not, 2 if a file cannot be read.
    """
    from fedbench.board.checks import Check

    there, entries = _entries(home, paths)
    _alone(entries)
    found: dict[Entry, list[Fault]] = {}
    known: dict[Path, Any] = {}
    for entry in entries:
        boards = [board] if board else []
        found[entry] = Check(there, entry, _files(entry), _kit, boards, known).faults()
    _tell(found, form)
    if form == "rich" and not any(found.values()) and len(paths) == 1:
        _next("", ["git", "add", paths[0]], ["git", "commit", "-m", f"Add {entries[0].name} to the board"],
              ["fedbench", "board", "rerun", paths[0], *_at(home)])  # fmt: skip
    sys.exit(1 if any(found.values()) else 0)


def _tell(found: Mapping[Entry, Sequence[Fault]], form: str) -> None:
    """Print what was found, each fault with its place."""
    from fedbench.board.checks import RULES

    if form == "json":
        entries = {
            entry.name: [{"rule": rule, "place": str(mark), "message": message} for rule, mark, message in faults]
            for entry, faults in found.items()
        }
        click.echo(
            json.dumps({"verdict": "refused" if any(found.values()) else "accepted", "entries": entries}, indent=1)
        )
        return
    for entry, faults in found.items():
        if form == "markdown":
            click.echo(f"### `{entry.name}`: {counted(len(faults), 'fault') if faults else 'accepted'}\n")
            lines = [f"| {rule} | `{mark}` | {message.replace('|', chr(92) + '|')} |" for rule, mark, message in faults]
            broken = {fault.rule for fault in faults}
            kept = ", ".join(rule for rule in RULES if rule not in broken)
            click.echo(
                "\n".join(["| rule | place | fault |", "|:--|:--|:--|", *lines, ""] if faults else [])
                + f"\nPassed: {kept}.\n"
            )
        else:
            click.echo(f"{'refused ' if faults else 'accepted'}  {entry.name}")
            for rule, mark, message in faults:
                click.echo(f"  {mark}: {rule}: {message}")


@board.command(short_help="Run entries again, on hidden seeds too.")
@click.argument("paths", nargs=-1, required=True, type=FilePath(), metavar="ENTRY...")
@click.option(
    "--cells", "count", type=click.IntRange(min=1), default=2, show_default=True, help="How many submitted cells."
)
@click.option("--all", "every", is_flag=True, help="All submitted cells.")
@click.option(
    "--salt", type=FilePath(), metavar="FILE", help="The maintainers' secret, from which hidden seeds follow."
)
@BOARD
@HOME
@DEVICE
@JOBS
@click.option("--quiet", is_flag=True, help="Show no progress.")
def rerun(
    paths: tuple, count: int, every: bool, salt: str | None, board: str | None, home: str, quiet: bool, **given: Any
) -> None:
    """Run entries again in a process without network, if bwrap or unshare can: some submitted cells, which must come
    out as they were, and on hidden seeds everything that ranks. What was run is written next to the entry.

    \b
    fedbench board rerun board/entries/mine/1
    fedbench board rerun board/entries/mine/1 --all --salt secret.txt

    Exit code: 0 if the entry ranks now, 1 if it does not, 2 if it cannot be run.
    """
    from fedbench.board.children import isolated
    from fedbench.board.entries import RANKED
    from fedbench.board.records import concluded
    from fedbench.board.rerun import Rerun
    from fedbench.board.seeds import salt_of

    there, entries = _entries(home, paths)
    ranked = [e for e in there.entries.values() if any(row["state"] in RANKED for row in e.boards.values())]
    _alone([*entries, *ranked], always=True)
    click.echo(f"Running {isolated()}.", err=True)
    code, wrong = {entry.name: _files(entry) for entry in there.entries.values()}, False
    with _watched({**given, "quiet": quiet}) as options:
        for entry in entries:
            for name in [board] if board else entry.boards:
                on = there.board(name)
                one = Rerun(there, entry, on, code, salt_of(on, Path(salt) if salt else None), isolated(), options)
                record = one.run(None if every else count)
                wrong |= bool(_conclude(entry, name, record, concluded(there, entry, name, record)))
    if not wrong:
        _next("", ["fedbench", "board", "build", "-o", "site", *_at(home)])
    sys.exit(1 if wrong else 0)


def _conclude(entry: Entry, name: str, record: Mapping[str, Any], objections: Sequence[str]) -> Sequence[str]:
    """Print what came of a re-run."""
    for row in record["drawn"]:
        click.echo(f"{entry.name} on {name}: seed {row['seed']}: {row['change']}")
    if "seeds" in record:
        click.echo(
            f"{entry.name} on {name}: {', '.join(record['rows'])} on hidden seeds {', '.join(map(str, record['seeds']))}"
        )
    if record.get("challenge"):
        click.echo(f"{entry.name} on {name}: {record['challenge']['verdict']} than what it challenges")
    for objection in objections:
        click.echo(f"{entry.name} on {name}: not ranked: {objection}")
    return objections


@board.command(short_help="Write the site of all boards.")
@click.option(
    "-o", "--output", default="site", show_default=True, type=FilePath(), metavar="DIR", help="The folder to write."
)
@HOME
def build(output: str, home: str) -> None:
    """Write a static site that opens offline: a page for each board and entry, with CSV, JSON and BibTeX.

    \b
    fedbench board build -o site
    """
    from fedbench.board.site import build as written
    from fedbench.registry.registry import Registry

    pages = written(_home(home), Path(output), Registry())
    click.echo(f"{counted(pages, 'page')} written; open {Path(output) / 'index.html'}")


# What the commands share


def _home(folder: str) -> Home:
    from fedbench.board.entries import Home

    return Home(Path(folder).absolute())


def _entries(home: str, paths: Sequence[str]) -> tuple[Home, list[Entry]]:
    """The board and the entries that are meant, all if none is named. Raises UserError with what is wrong in them."""
    from fedbench.board.entries import ENTRY

    there = _home(home if not paths else str(Path(paths[0]).absolute().parents[2]))
    named = {entry.folder.resolve(): entry for entry in there.entries.values()}
    wanted = [Path(path).resolve() for path in paths]
    for path, folder in zip(paths, wanted, strict=True):
        if folder not in named:
            raise UserError(f"{path}: no entry; expected a folder such as board/entries/mine/1, with an {ENTRY}")
    return there, [named[folder] for folder in wanted] if paths else list(named.values())


def _alone(entries: Iterable[Entry], always: bool = False) -> None:
    """Go on in a child without network where entries bring code, or always; the child has their packages."""
    from fedbench.board.children import again, isolated, packages_of
    from fedbench.board.entries import BUILT_IN

    foreign = [entry for entry in entries if entry.plugin != BUILT_IN]
    if (foreign or always) and not isolated():
        with packages_of(foreign) as code:
            sys.exit(again(sys.argv[1:], code))


def _files(entry: Entry) -> list[str]:
    return [str(entry.file)] if entry.file else []


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
        with raising(), Watch(Screen(stderr=True), bool(given.get("quiet"))) as watch:
            yield {"observe": watch, "device": given["device"], "jobs": workers(given["jobs"])}
    except Interrupted as interrupted:
        click.echo("\nInterrupted. What is finished is kept; the same command runs the rest.", err=True)
        sys.exit(interrupted.exit_code)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _at(home: str) -> list[str]:
    return [] if home == "board" else ["--home", home]


def _next(text: str, *commands: Sequence[str]) -> None:
    lines = [f"  {command_line(words)}" for words in commands]
    click.echo("\n".join([f"{text} Next:".strip(), *lines]))
