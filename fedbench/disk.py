"""Files and folders that are there whole or not at all, what names them by their content, and the room they need."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from fedbench.errors import CannotWrite, UserError
from fedbench.words import mebibytes

ELSEWHERE = "Choose another folder with --results DIR."
OTHER_DISK = "choose another disk with --results DIR"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NEEDED, SCARCE = 4 * 2**20, 100 * 2**20  # bytes below which a run is refused, and below which it is warned

T = TypeVar("T")


def write_atomically(
    path: Path, content: bytes | Callable[[Path], object], mend: str = ELSEWHERE, *, lasting: bool = True
) -> None:
    """Fill a temporary file beside `path` with `content`, or let `content` fill it, then put that in its place.

    A reader sees the old file or the new one. A writer that is killed leaves at most a hidden `.name.*.tmp`,
    which no reader looks at. lasting: False for what may be lost with the machine. Raises: UserError, ending with
    `mend`, where the folder cannot be written to or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            content(temporary)
        if lasting:
            settle(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, mend) from error
    finally:
        # After the replacement there is nothing left; a folder that never was has nothing to remove.
        if os.path.lexists(temporary):
            os.unlink(temporary)


def cannot_write(path: Path, error: OSError, mend: str = ELSEWHERE) -> CannotWrite:
    return CannotWrite(f"{path}: cannot be written ({error.strerror or error}). {mend}")


def settle(file: Path) -> None:
    """Return when what was written to a file is on the disk."""
    with open(file, "rb+") as opened:
        os.fsync(opened.fileno())


@contextmanager
def put_in_place(place: Path, draft: Path, old: Path | None) -> Iterator[Path]:
    """The new folder `draft`, to be filled, which then takes the place of what is there: whole, or not at all.

    old: where what is there goes until it is replaced; without one, a folder that is not empty is not replaced.
    What a killed process left at `draft` and `old` is removed. Raises: OSError.
    """
    for leftover in (draft, old):
        if leftover:
            shutil.rmtree(leftover, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        yield draft
        if old and os.path.lexists(place):
            os.rename(place, old)
        os.rename(draft, place)
        if old:
            shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old and old.exists() and not place.exists():
            os.rename(old, place)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def hash_of_file(file: Path) -> str:
    """SHA-256 in hex."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def hash_of_bytes(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def hash_of_json(value: Any) -> str:
    """SHA-256 in hex of a JSON value, whatever the order of its keys."""
    return hash_of_bytes(json.dumps(value, sort_keys=True).encode())


def cache_dir() -> Path:
    """What can be made again stands here: $FEDBENCH_CACHE, or `fedbench` in the platform's cache folder."""
    chosen = os.environ.get("FEDBENCH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():
        return xdg / "fedbench"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "fedbench"


def cache_file(kind: str, key: Any) -> Path:
    """Where the cache folder keeps what it has of this kind for a JSON value."""
    return cache_dir() / kind / f"{hash_of_json(key)[:24]}.json"


def remembered(kind: str, key: Any, compute: Callable[[], T]) -> T:
    """What `compute` gave when it was last called for this key, from the cache folder; both are JSON values."""
    file = cache_file(kind, key)
    value = kept(file)
    if value is None:
        value = compute()
        keep(file, value)
    return value


def keep(file: Path, value: Any) -> None:
    """Keep a JSON value with its hash; a folder that cannot be written only costs time."""
    with suppress(UserError):
        write_atomically(file, _sealed(json.dumps(value)).encode(), lasting=False)


def kept(file: Path) -> Any:
    """What `keep` wrote; None where there is no such file, or where it was damaged since."""
    try:
        text = file.read_text(encoding="utf-8")
        body = text[len(_sealed("")) - 1 : -1]
        return json.loads(body) if text == _sealed(body) else None
    except (OSError, ValueError, RecursionError):
        return None


def _sealed(body: str) -> str:
    return f'{{"sha256": "{hash_of_bytes(body.encode())}", "value": {body}}}'


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    there = folder.resolve()
    while not there.exists():
        there = there.parent
    return there


def free_disk(folder: Path) -> int:
    """Bytes free on the disk where a folder is, or would be."""
    return shutil.disk_usage(existing(folder)).free


def require_room(results: Path) -> None:
    """Look before anything is computed.

    Raises: UserError where the results folder's disk is as good as full. Where less than 100 MiB are free, there or
    in the cache folder, a warning goes to stderr.
    """
    free = free_disk(results)
    if free < NEEDED:
        raise UserError(f"{results}: only {mebibytes(free)} free. Make room, or {OTHER_DISK}.")
    for folder, mend in ((results, OTHER_DISK), (cache_dir(), "set FEDBENCH_CACHE")):
        if (free := free_disk(folder)) < SCARCE:
            print(f"Warning: {folder}: only {mebibytes(free)} free; make room, or {mend}.", file=sys.stderr)
