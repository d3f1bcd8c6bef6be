"""Files and folders that are there whole or not at all: atomic writes, locks, hashes, the cache and free disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from fedbench.errors import CannotWrite, UserError

if sys.platform != "win32":  # where `fedbench.commands.terminal.require_system` ends every command
    import fcntl
from fedbench.words import composed, mebibytes

ELSEWHERE = "Choose another folder with --results DIR."
OTHER_DISK = "choose another disk with --results DIR"
OTHER_CACHE = "Set FEDBENCH_CACHE to a folder that can be written to and has locks."
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # as of flock on some network file systems
NEEDED, SCARCE = 4 * 2**20, 100 * 2**20  # bytes below which a run is refused, and below which it is warned

T = TypeVar("T")


class LockTimeout(TimeoutError):
    """Another process kept a lock for all the time that this one waited."""


def write_atomically(
    path: Path, content: bytes | Callable[[Path], object], mend: str = ELSEWHERE, *, lasting: bool = True
) -> None:
    """Fill a temporary file next to `path` with `content`, or let `content` fill it, then put that in its place.

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


@contextmanager
def locked_file(file: Path, mend: str = ELSEWHERE, seconds: float = -1, poll: float = 0.05) -> Iterator[None]:
    """Hold the lock of a file, which the system releases when the process ends.

    Args:
        file: the lock itself; its folder is made.
        mend: what to do where it cannot be locked.
        seconds: how long to wait; -1 for as long as it takes.
        poll: seconds between two tries.

    Raises:
        LockTimeout: another process had the lock for all this time.
        CannotWrite: the file cannot be written, or its file system has no locks.
    """
    from filelock import FileLock, Timeout

    # A soft lock, which filelock would take where flock is not there, outlives a process that is killed.
    lock = FileLock(file, timeout=seconds, poll_interval=poll, fallback_to_soft=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise LockTimeout(f"{file}: another process has the lock") from None
    except OSError as error:
        raise cannot_write(file, error, mend) from error
    try:
        yield
    finally:
        lock.release()


def try_folder(folder: Path, mend: str = ELSEWHERE) -> None:
    """Write and lock a file where a folder is, or would be, as a run does. Raises CannotWrite."""
    file = existing(folder) / f".fedbench-{secrets.token_hex(8)}.tmp"
    try:
        with open(file, "xb") as tried:
            file.unlink()  # at once, so that a run that is killed now leaves nothing behind
            tried.write(b"tried")
            tried.flush()
            fcntl.flock(tried.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # rights promise little: think of /proc, or of a full quota
        raise cannot_write(folder, error, mend) from error


def cannot_write(path: Path, error: OSError, mend: str = ELSEWHERE) -> CannotWrite:
    """The error for a file or folder that cannot be written or locked, with what to do."""
    if error.errno in NO_LOCKS:
        return CannotWrite(f"{path}: the file system of this folder has no locks (flock). {mend}")
    return CannotWrite(f"{path}: cannot be written ({error.strerror or error}). {mend}")


def opened(path: str | Path) -> BufferedReader:
    """A file opened to be read. Raises: OSError, also for a pipe, which would be waited for, and a device, which may
    have no end."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def settle(file: Path) -> None:
    """Return when what was written to a file is on the disk."""
    with open(file, "rb+") as there:
        os.fsync(there.fileno())


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
    with opened(file) as there:
        return hashlib.file_digest(there, "sha256").hexdigest()


def hash_of_bytes(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def hash_of_json(value: Any) -> str:
    """SHA-256 in hex of a JSON value, whatever the order of its keys."""
    return hash_of_bytes(json.dumps(value, sort_keys=True).encode())


def at_home(path: str | os.PathLike[str]) -> str:
    """A path that somebody wrote, with a home folder for `~`: of every option, key and argument that is a path.

    Raises: UserError where nobody has such a home, and no file is called so.
    """
    written = os.fspath(path)
    there = os.path.expanduser(written)
    if there == written and written.startswith("~") and not os.path.lexists(written):
        raise UserError(f"{written}: there is no such home")
    return there


def expanded(path: str | os.PathLike[str]) -> Path:
    """`at_home` as a Path."""
    return Path(at_home(path))


def cache_dir() -> Path:
    """What can be made again stands here: $FEDBENCH_CACHE, or `fedbench` in the platform's cache folder, or, for a user
    without a home, in the folder of temporary files."""
    chosen = os.environ.get("FEDBENCH_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():
        return xdg / "fedbench"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # a user whom the system does not know, as in a container
        return Path(tempfile.gettempdir()) / f"fedbench-{os.getuid()}"
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "fedbench"


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
        with opened(file) as there:
            text = there.read().decode()
        body = text[len(_sealed("")) - 1 : -1]
        return json.loads(body) if text == _sealed(body) else None
    except (OSError, ValueError, RecursionError):
        return None


def _sealed(body: str) -> str:
    return f'{{"sha256": "{hash_of_bytes(body.encode())}", "value": {body}}}'


def as_written(path: Path) -> Path:
    """A path with its names in the Unicode form that they have on disk; as it is where no such file is there.

    A file system, or a program that packs files, may have changed the form since somebody wrote the path.
    """
    if os.path.lexists(path):
        return path
    there = Path(path.anchor)
    for name in path.parts[bool(path.anchor) :]:
        if not os.path.lexists(there / name):
            with suppress(OSError):
                name = next((one for one in os.listdir(there) if composed(one) == composed(name)), name)
        there /= name
    return there


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
    """Look before anything is computed. Where less than 100 MiB are free, there or in the cache folder, a warning goes
    to stderr.

    Raises:
        UserError: the results folder's disk is as good as full, or one of the folders cannot be written or locked.
    """
    try_folder(results)
    try_folder(cache_dir(), OTHER_CACHE)
    free = free_disk(results)
    if free < NEEDED:
        raise UserError(f"{results}: only {mebibytes(free)} free. Make room, or {OTHER_DISK}.")
    for folder, mend in ((results, OTHER_DISK), (cache_dir(), "set FEDBENCH_CACHE")):
        if (free := free_disk(folder)) < SCARCE:
            print(f"Warning: {folder}: only {mebibytes(free)} free; make room, or {mend}.", file=sys.stderr)
