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
from pathlib import Path
from typing import IO

from fedbench.data.image_files import progress
from fedbench.disk import NO_ROOM, locked_file, write_atomically
from fedbench.errors import UserError

# Images do not shrink in an archive. What grows more than this was not made from a data set of images.
MOST_GROWTH = 4
ALWAYS_ALLOWED = 256 * 2**20  # bytes, so that small archives of texts and flat pictures pass
BLOCK = 2**20


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
        for parts, content in _files(archive, lambda size: None):
            if parts[-1] in names:
                write_atomically(folder / parts[-1], content.read(_limit(archive)))
                found.append(folder / parts[-1])
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
    limit, left, files = _limit(archive), _limit(archive), 0
    with progress(f"unpacking {archive.name}", archive.stat().st_size) as advance:
        for parts, content in _files(archive, advance):
            target = draft.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                raise UserError(f"{archive} holds {'/'.join(parts)!r} twice")
            with target.open("xb") as sink:
                while block := content.read(BLOCK):
                    left -= len(block)
                    if left < 0:
                        raise UserError(_grows(archive, limit))
                    sink.write(block)
            files += 1
    if not files:
        raise UserError(f"{archive} holds no files")


def _limit(archive: Path) -> int:
    """The bytes that an archive may grow to."""
    return max(MOST_GROWTH * archive.stat().st_size, ALWAYS_ALLOWED)


def _grows(archive: Path, limit: int) -> str:
    return f"{archive} unpacks to more than {limit:,} bytes, which images do not"


def _files(archive: Path, advance: Callable[[int], None]) -> Iterator[tuple[list[str], IO[bytes]]]:
    """Every file: its path in pieces, and its bytes, to be read before the next.

    advance: called with how many bytes of the archive were read.
    """
    if zipfile.is_zipfile(archive):
        yield from _of_zip(archive, advance)
    elif archive.suffix == ".zip":
        raise zipfile.BadZipFile("not a zip file")
    else:
        yield from _of_tar(archive, advance)


def _of_zip(archive: Path, advance: Callable[[int], None]) -> Iterator[tuple[list[str], IO[bytes]]]:
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            refused = "" if kind in (0, stat.S_IFREG, stat.S_IFDIR) else "a device file"
            refused = "a link" if kind == stat.S_IFLNK else "an encrypted file" if entry.flag_bits & 1 else refused
            parts = _parts(archive, entry.filename, refused)
            if not entry.filename.endswith(("/", "\\")):
                with opened.open(entry) as content:
                    yield parts, content
            advance(entry.compress_size)


def _of_tar(archive: Path, advance: Callable[[int], None]) -> Iterator[tuple[list[str], IO[bytes]]]:
    """The files in order, and then the rest of the stream, so that its checksum is read too."""
    with archive.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream, seen = _Bounded(archive, gzip.GzipFile(fileobj=raw) if packed else raw), 0
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for entry in opened:
                plain = entry.isfile() or entry.isdir()
                link = entry.islnk() or entry.issym()
                parts = _parts(archive, entry.name, "" if plain else "a link" if link else "a device file")
                if content := opened.extractfile(entry):  # none of a folder
                    yield parts, content
                advance(raw.tell() - seen)
                seen = raw.tell()
        while block := stream.read(BLOCK):
            if block.strip(b"\0"):
                raise tarfile.ReadError("a header cannot be read")


class _Bounded(io.BufferedIOBase):
    """A tar as it is unpacked: headers too, which nobody writes but tarfile reads into memory, have an end."""

    def __init__(self, archive: Path, stream: io.BufferedIOBase) -> None:
        self.archive, self.stream = archive, stream
        self.limit = self.left = 2 * _limit(archive) + BLOCK

    def read(self, size: int | None = -1) -> bytes:
        block = self.stream.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise UserError(_grows(self.archive, self.limit))
        return block


def _parts(archive: Path, name: str, refused: str) -> list[str]:
    """A member's path in pieces, cut at backslashes as well, which some tools of Windows write.

    Stricter than the data filter of tarfile, which takes a link within the folder, drops a leading slash and knows no
    backslash. zipfile drops whatever leads out, and writes a link as a file.

    refused: what the member is, where it is neither a file nor a folder.

    Raises: UserError for anything but a file or folder below the archive's top.
    """
    if refused:
        raise UserError(f"{archive} holds {refused}, {name!r}, which is not unpacked")
    parts = re.split(r"[/\\]", name)
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or ".." in parts or "\0" in name:
        raise UserError(f"{archive} holds {name!r}, a path that leads out of the folder it is unpacked to")
    return [part for part in parts if part not in ("", ".")] or ["."]
