"""The command line: one command a file in `commands/`, imported when it is used; plugins may add their own."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from fedbench import __version__
from fedbench.commands import COMMANDS, GONE, MODULES
from fedbench.commands.terminal import require_current_folder, require_system, tidy_streams
from fedbench.errors import Interrupted, UserError
from fedbench.words import meant, visible

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fedbench.commands"
# For `gc.set_threshold`: imports and many cells make millions of objects that stay, and collecting them takes a quarter
# of the time of `compare`.
COLLECTED = (200_000, 50, 100)


class Commands(click.Group):
    """Finds commands by name, the built-in ones first; the user's mistakes end with one message and exit code 2."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing those of fedbench."""
        width = formatter.width - 6 - max(map(len, self.list_commands(context)))
        rows = [
            (name, COMMANDS.get(name) or self._short_help(context, name, width)) for name in self.list_commands(context)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _short_help(self, context: click.Context, name: str, width: int) -> str:
        command = self.get_command(context, name)
        return command.get_short_help_str(width) if command else ""

    def list_commands(self, context: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(_third_party(context))]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            return getattr(import_module(f"fedbench.commands.{MODULES.get(name, name)}"), name)
        point = _third_party(context).get(name)
        if point is None:
            return None
        try:
            return point.load()
        except Exception as error:  # of a third-party module, which must not take `--help` with it
            package = point.dist.name if point.dist else "an unknown package"
            message = f"command {name!r} of {package} does not load: {type(error).__name__}: {error}"
            return click.Command(name, callback=lambda: _fail(message), help=message, short_help="(does not load)")

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple:
        if args and args[0] in GONE:
            raise click.UsageError(f"{args[0]} is gone: {GONE[args[0]]}", context)
        if args and args[0] not in COMMANDS and args[0] not in (names := self.list_commands(context)):
            hint = meant(args[0], names, f"there are {', '.join(names)}")
            raise click.UsageError(f"no command is called {args[0]!r}; {hint}", context)
        return super().resolve_command(context, args)

    def main(self, *args: Any, **choices: Any) -> Any:
        gc.set_threshold(*COLLECTED)
        tidy_streams()
        try:
            require_system()
        except UserError as error:
            _fail(str(error))
        try:
            return super().main(*args, **choices)
        except OSError as error:  # not a pipe that was closed, which click leaves by itself
            if not _is_broken(sys.stdout):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            _fail(f"the output cannot be written: {error.strerror}", 1)

    def invoke(self, context: click.Context) -> object:
        for stream in (sys.stdout, sys.stderr):  # for a name of any plugin on a terminal without Greek letters
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        try:
            require_current_folder()
            return super().invoke(context)
        except UserError as error:
            _fail(str(error))
        except click.UsageError as error:
            if "--seed" in sys.argv and "unexpected extra argument" in error.message:
                message = f"{error.message}: several seeds are written --seed 0,1,2"
                raise click.UsageError(message, error.ctx) from error
            raise
        except OSError as error:  # a path that is too long, a folder that nobody may look into, a disk that is broken
            if error.filename is None:  # of the output, for which see `main`
                raise
            _fail(f"{os.fsdecode(error.filename)}: {error.strerror}")
        except KeyboardInterrupt as error:
            click.echo("\nInterrupted.", err=True)
            sys.exit(error.exit_code if isinstance(error, Interrupted) else 130)


def _third_party(context: click.Context) -> dict[str, EntryPoint]:
    """The commands of plugins by name, looked for once."""
    from fedbench.registry import installed

    if GROUP not in context.meta:
        context.meta[GROUP] = installed.by_name(GROUP, COMMANDS)[0]
    return context.meta[GROUP]


def _is_broken(output: TextIO) -> bool:
    """Whether nothing can be written: the disk below is full, say. What could be tried ends with a line break."""
    try:
        output.write("\n")
        output.flush()
    except OSError:
        return True
    return False


def _fail(message: str, code: int = 2) -> NoReturn:
    plain = False if os.environ.get("NO_COLOR") else None  # None: by whether a terminal reads it
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {visible(message)}", err=True, color=plain)
    sys.exit(code)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedbench")
def main() -> None:
    """Benchmark federated fine-tuning when clients are unequal.

    \b
    fedbench run quickstart              run a suite, here the quick one
    fedbench compare results/quickstart  its leaderboard
    fedbench plan extreme_hetero         what it would compute, and its cost
    fedbench init my_study               a folder for an idea of your own
    fedbench doctor                      what would stop a run, and the fix
    """
