"""Hidden seeds: they follow from a salt that maintainers keep and from the commit of an entry, so nobody can pick them.

A board's version carries the SHA-256 of its own salt, which follows from the maintainers' one secret: to publish it, as
the next version does, tells nothing of other boards.
"""

from __future__ import annotations

import hashlib
import hmac
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedbench.board.entries import CODE, ENTRY, Board, Entry, read_entry
from fedbench.errors import UserError
from fedbench.suite.yaml import Problems
from fedbench.words import command_line

HIGHEST = 2**31  # below which seeds lie


def salt_of_version(secret: bytes, board: str, version: int) -> str:
    """The salt of one version of a board, in hex: HMAC-SHA256 of its name with the maintainers' secret."""
    return hmac.new(secret, f"{board}/{version}".encode(), hashlib.sha256).hexdigest()


def salt_of(board: Board, file: Path | None = None) -> str | None:
    """The board's salt: published, or by the file with the maintainers' secret; None where neither tells.

    Raises:
        UserError: The file cannot be read, or the salt is not the one whose hash the board carries.
    """
    salt = board.hidden.salt or None
    if file is not None:
        try:
            salt = salt_of_version(file.read_bytes().strip(), board.board, board.version)
        except OSError as error:
            raise UserError(f"--salt {file}: {error.strerror}") from error
    if salt is not None and hashlib.sha256(salt.encode()).hexdigest() != board.hidden.salt_sha256:
        at = f"--salt {file}" if file else str(board.mark("hidden", "salt"))
        raise UserError(f"{at}: not the salt of {board.board}, version {board.version}: it has another SHA-256")
    return salt


def numbers(salt: str, commit: str, use: str, count: int, avoided: Iterable[int] = ()) -> list[int]:
    """So many different numbers below 2^31: HMAC-SHA256(salt, commit and use), without those that are avoided."""
    found, gone, i = list[int](), set(avoided), 0
    while len(found) < count:
        digest = hmac.new(salt.encode(), f"{commit} {use} {i}".encode(), hashlib.sha256).digest()
        number, i = int.from_bytes(digest[:8], "big") % HIGHEST, i + 1
        if number not in gone:
            found.append(number)
            gone.add(number)
    return found


def hidden_seeds(board: Board, salt: str, commit: str, tried: Iterable[int] = ()) -> list[int]:
    """The seeds on which an entry of that commit is ranked; none that the board reports or that its tuning tries."""
    return numbers(salt, commit, f"{board.board}/{board.version}", board.hidden.seeds, (*board.seeds, *tried))


def commit_of(entry: Entry, board: str) -> str:
    """The oldest commit since which an entry claims on a board what it claims now.

    So what was changed after a re-run has published its seeds runs on others.

    Raises:
        UserError: The entry is not committed as it is, or the clone lacks older commits.
    """
    if _git(entry, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise UserError("hidden seeds follow from older commits, which this clone lacks:\n  git fetch --unshallow")
    claim, commit = entry.claim(board), ""
    for older in _git(entry, "log", "--diff-filter=AM", "--format=%H", "--", ENTRY).split():
        if _claim_in(older, entry, board) != claim:
            break
        commit = older
    row, results = entry.boards[board], entry.results(board)
    parts = [str(path) for path in (entry.folder / CODE, results) if path.exists()]
    changed = _git(entry, "status", "--porcelain", "-uall", "--", *parts, ":(exclude)*__pycache__*") if parts else ""
    if not commit or changed:
        add = command_line(["git", "add", str(entry.folder), *([str(results)] if row.results else [])])
        done = command_line(["git", "commit", "-m", f"Add {entry.name} to the board"])
        raise UserError(f"{entry.name} is not committed, and hidden seeds follow from its commit:\n  {add}\n  {done}")
    return commit


def _claim_in(commit: str, entry: Entry, board: str) -> str | None:
    """What an entry claimed on a board in a commit; None where it was not on it, or its file was wrong."""
    text = _git(entry, "cat-file", "blob", f"{commit}:./{ENTRY}")
    with suppress(UserError):
        then = read_entry(entry.folder / ENTRY, Problems(), text)
        return then.claim(board) if then and board in then.boards else None
    return None


def _git(entry: Entry, *words: str) -> str:
    """What git says in the entry's repository. Raises UserError where there is none."""
    words = ("git", "-c", "core.fsmonitor=false", "-C", str(entry.folder), *words)
    try:
        done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"git does not run ({error.strerror}); hidden seeds follow from the entry's commit") from error
    if done.returncode and "does not have any commits" not in done.stderr:
        raise UserError(f"{entry.folder}: {done.stderr.strip().removeprefix('fatal: ')}\nBegin with:\n  git init")
    return done.stdout
