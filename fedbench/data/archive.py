"""Unpacking third-party archives: nothing is written outside the folder, which appears once it is whole."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from fedbench.data.image_files import progress
from fedbench.disk import NO_ROOM, locked_file, write_atomically
from fedbench.errors import UserError

# Images do not shrink in an archive. What grows more than this was not made from a data set of images.
MOST_GROWTH = 4
ALWAYS_ALLOWED = 256 * 2**20  # bytes, so that small archives of texts and flat pictures pass
MOST_MEMBERS = 5_000_000
BLOCK = 2**20


class Member(NamedTuple):
    """One entry of an archive: `read` copies its bytes and is None for a folder; `refused` says what else it is."""

    name: str
    read: Callable[[], IO[bytes]] | None
    refused: str = ""


def md5(file: Path) -> str:
    """The checksum that old data sets publish. Raises: UserError where the file cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error


MOVE = "Move the archive to a folder that can be written to, and name that by --root."


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar or .tar.gz so that `folder` holds what the archive has in a folder of that name.

    An archive without such a folder gives all it has. The work is done in a temporary folder next to it, renamed when
    complete; what an interrupted call left is removed by the next. Of two processes one unpacks.

    Raises: UserError, naming the member, for paths that lead out of the folder, links and device files, and for two
    members of one name; naming the archive where it is damaged, cut short, empty, or would grow to more than
    max(4 times its own size, 256 MiB); where the disk is full.
    """
    with (
        _faults(archive),
        locked_file(folder.with_name(f".{folder.name}.lock"), MOVE),
    ):
        if folder.exists():
            return
        draft = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir()
            _write(archive, draft)
            inner = draft / folder.name
            (inner if inner.is_dir() else draft).rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def take_out(archive: Path, names: Collection[str], folder: Path) -> list[Path]:
    """Copy the files of these names out of an archive into a folder, whatever folder of the archive they lie in.

    Raises: UserError where there is none of them, or the archive is damaged.
    """
    found = []
    with _faults(archive):
        for member in _members(archive, lambda size: None):
            name = member.name.rpartition("/")[2]
            if name in names and member.read and not member.refused:
                with member.read() as source:
                    write_atomically(folder / name, source.read(_limit(archive)))
                found.append(folder / name)
    if not found:
        raise UserError(f"{archive} does not hold {' or '.join(sorted(names))}")
    return found


@contextmanager
def _faults(archive: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # for damage the libraries raise many kinds, zlib.error and struct.error among them
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise UserError(f"no room to unpack {archive}: {error.strerror}") from error
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"cannot unpack {archive}: {error}") from error
        raise UserError(f"{archive} is damaged or cut short ({error}); fetch it again") from error


def _write(archive: Path, draft: Path) -> None:
    limit = _limit(archive)
    written = files = 0
    with progress(f"unpacking {archive.name}", archive.stat().st_size) as advance:
        for count, member in enumerate(_members(archive, advance)):
            target = draft.joinpath(*_parts(archive, member))
            if count == MOST_MEMBERS:
                raise UserError(f"{archive} holds more than {MOST_MEMBERS:,} entries")
            if member.read is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                raise UserError(f"{archive} holds {member.name!r} twice")
            with member.read() as source, target.open("xb") as sink:
                while block := source.read(BLOCK):
                    written += len(block)
                    if written > limit:
                        raise UserError(f"{archive} unpacks to more than {limit:,} bytes, which images do not")
                    sink.write(block)
            files += 1
    if not files:
        raise UserError(f"{archive} holds no files")


def _limit(archive: Path) -> int:
    """The bytes that an archive may grow to."""
    return max(MOST_GROWTH * archive.stat().st_size, ALWAYS_ALLOWED)


def _parts(archive: Path, member: Member) -> list[str]:
    """The member's path in pieces, cut at backslashes as well, which some tools of Windows write.

    Stricter than tarfile's data filter, which takes a link within the folder and drops a leading slash; and a zip has
    no filter. Raises: UserError for anything but a file or folder below the archive's top.
    """
    if member.refused:
        raise UserError(f"{archive} holds {member.refused}, {member.name!r}, which is not unpacked")
    name = member.name
    parts = re.split(r"[/\\]", name)
    outside = name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or ".." in parts
    if outside or "\0" in name:
        raise UserError(f"{archive} holds {name!r}, a path that leads out of the folder it is unpacked to")
    return [part for part in parts if part not in ("", ".")]


def _members(archive: Path, advance: Callable[[int], None]) -> Iterator[Member]:
    if zipfile.is_zipfile(archive):
        yield from _of_zip(archive, advance)
    elif archive.suffix == ".zip":
        raise zipfile.BadZipFile("not a zip file")
    else:
        yield from _of_tar(archive, advance)


def _of_zip(archive: Path, advance: Callable[[int], None]) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            refused = "a link" if kind == stat.S_IFLNK else "a device file" if kind and not _plain(kind) else ""
            refused = "an encrypted file" if entry.flag_bits & 1 else refused
            folder = entry.filename.endswith(("/", "\\"))
            yield Member(entry.filename, None if folder else partial(opened.open, entry), refused)
            advance(entry.compress_size)


def _plain(kind: int) -> bool:
    return kind in (stat.S_IFREG, stat.S_IFDIR)


class _Bounded(io.BufferedIOBase):
    """A tar as it is unpacked: headers too, which nobody writes but tarfile reads into memory, have an end."""

    def __init__(self, archive: Path, stream: io.BufferedIOBase) -> None:
        self.archive, self.stream, self.left = archive, stream, 2 * _limit(archive) + BLOCK

    def read(self, size: int | None = -1) -> bytes:
        block = self.stream.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise UserError(
                f"{self.archive} unpacks to more than {2 * _limit(self.archive) + BLOCK:,} bytes, which images do not"
            )
        return block


def _of_tar(archive: Path, advance: Callable[[int], None]) -> Iterator[Member]:
    """The members in order, and then the rest of the stream, so that its checksum is read too."""
    with archive.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = _Bounded(archive, gzip.GzipFile(fileobj=raw) if packed else raw)
        seen = 0
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for entry in opened:
                plain = entry.isfile() or entry.isdir()
                refused = "" if plain else "a link" if entry.islnk() or entry.issym() else "a device file"
                yield Member(entry.name, None if entry.isdir() else partial(_content, opened, entry), refused)
                advance(raw.tell() - seen)
                seen = raw.tell()
        while block := stream.read(BLOCK):
            if block.strip(b"\0"):
                raise tarfile.ReadError("a header cannot be read")


def _content(opened: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = opened.extractfile(entry)
    assert content is not None  # it is a file
    return content
