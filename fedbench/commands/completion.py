"""fedbench completion: names completed by bash, zsh and fish, and the one command that sets it up."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import click

PROGRAM = "fedbench"
SHELLS = ("bash", "zsh", "fish")
BEGIN, END = "# >>> fedbench completion >>>", "# <<< fedbench completion <<<"
_BLOCK = re.compile(rf"^{BEGIN}$.*?^{END}$\n?".encode(), re.MULTILINE | re.DOTALL)

# What a shell does when it starts. bash before 4.4, as macOS has it, has no way to keep the order of what is offered;
# zsh defines nothing before its own completion is loaded.
STARTS = {
    "bash": "[ -r {file} ] && [ $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1])) -ge 404 ] && . {file}",
    "zsh": "(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}\n[ -r {file} ] && . {file}",
}


@click.command(short_help="Let bash, zsh or fish complete names.")
@click.option("--shell", type=click.Choice(SHELLS), help="Which; by default the one that $SHELL names.")
@click.option("--install", is_flag=True, help="Set it up for every new shell; said again, it changes nothing.")
@click.option("--print", "printed", is_flag=True, help="Print the script, as without --install.")
def completion(shell: str | None, install: bool, printed: bool) -> None:
    """Let the shell complete commands, options and names: of suites, their scenarios and methods, of components, data
    sets and cells.

    \b
    fedbench completion --install
    fedbench completion --install --shell fish
    eval "$(fedbench completion)"

    bash (4.4 or later) and zsh get a script in the user's data folder and a few marked lines at the end of ~/.bashrc or
    ~/.zshrc, fish one file in its own folder. Each file that is changed is named, and changed whole or not at all.
    """
    from fedbench.errors import UserError

    if install and printed:
        raise UserError("--install, --print: one of them")
    chosen = shell or _own_shell()
    if not install:
        click.echo(script(chosen), nl=False)
        return
    for file, changed in installed(chosen):
        click.echo(f"{file}: {'written' if changed else 'was so already'}")
    click.echo(f"New shells complete `{PROGRAM} ...`; this one does after `exec {chosen}`.")


def script(shell: str) -> str:
    """What defines the completion in a shell."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None, shell
    return made(click.Command(PROGRAM), {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()


def installed(shell: str) -> Iterator[tuple[Path, bool]]:
    """Write what a shell needs; each file, and whether it was changed. The script comes first: what starts it finds it.

    Raises: UserError for a file that cannot be written.
    """
    wanted = script(shell).encode()
    if shell == "fish":
        yield _write(_folder("XDG_CONFIG_HOME", ".config") / f"fish/completions/{PROGRAM}.fish", wanted)
        return
    file = _folder("XDG_DATA_HOME", ".local/share") / f"{PROGRAM}/completion.{shell}"
    yield _write(file, wanted)
    home = Path(os.environ.get("ZDOTDIR") or Path.home()) if shell == "zsh" else Path.home()
    start = (home / f".{shell}rc").resolve()  # a link into a folder of dot files stays one
    yield _write(start, with_block(start.read_bytes() if start.exists() else b"", shell, file))


def with_block(text: bytes, shell: str, file: Path) -> bytes:
    """What a shell reads when it starts, with the lines that read the script: in their old place, or at the end."""
    block = "\n".join((BEGIN, STARTS[shell].format(file=quote(str(file))), END, "")).encode()
    if _BLOCK.search(text):
        return _BLOCK.sub(lambda _: block, text, count=1)
    return text + (b"\n" if text and not text.endswith(b"\n") else b"") + block


def _write(file: Path, content: bytes) -> tuple[Path, bool]:
    from fedbench.disk import write_atomically

    if file.exists() and file.read_bytes() == content:
        return file, False

    def fill(draft: Path) -> None:
        draft.write_bytes(content)
        if file.exists():
            shutil.copymode(file, draft)

    write_atomically(file, fill, f"`{PROGRAM} completion --print` prints the script, to be put where you can write.")
    return file, True


def _folder(variable: str, usual: str) -> Path:
    """A folder of the user's, by the XDG specification."""
    chosen = Path(os.environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path.home() / usual


def _own_shell() -> str:
    from fedbench.errors import UserError

    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UserError(f"--shell: which one? $SHELL is {name or 'not set'}; there are {', '.join(SHELLS)}")
    return name
