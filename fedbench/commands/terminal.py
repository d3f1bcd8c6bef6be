"""What a command is started in, and prints to: standard streams, the size of a terminal, the current folder."""

from __future__ import annotations

import os
import sys

import click

from fedbench.errors import UserError
from fedbench.words import visible


def require_system() -> None:
    """Raises UserError on Windows, which has neither the locks nor the process groups that a run needs."""
    if sys.platform == "win32":
        raise UserError(
            "fedbench does not run on Windows itself. Install WSL 2 (`wsl --install` in PowerShell), and use the same "
            "commands there."
        )


def tidy_streams() -> None:
    """Make of what a process was started with something that it can print to.

    A standard stream that was closed (`>&-`) becomes the null device, so that no file that is opened takes its number.
    COLUMNS and LINES that are no numbers to Python are left out.
    """
    for number, name, way in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, way, closefd=False))  # noqa: SIM115 - to the end
    for name in ("COLUMNS", "LINES"):
        try:
            int(os.environ.get(name) or 0)
        except ValueError:
            del os.environ[name]


def require_current_folder() -> None:
    """Raises UserError where the current folder was deleted."""
    try:
        os.getcwd()
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        raise UserError(
            f"the current folder {'was deleted' if gone else f'cannot be read ({error.strerror})'}; change to another"
        ) from error


def say(text: object, err: bool = False) -> None:
    """Print a line with names of people's in it, none of which may steer the terminal."""
    click.echo(visible(str(text)), err=err)
