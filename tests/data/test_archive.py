"""Unpacking: what strangers put into archives stays inside, and half of a data set never looks like one."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.data import archive
from fedbench.data.archive import md5, unpack
from fedbench.errors import UserError


def tar(file: Path, members: dict[str, bytes], **special: dict) -> Path:
    """A .tar.gz; `special` gives members other attributes, such as {"type": tarfile.SYMTYPE, "linkname": "x"}."""
    with tarfile.open(file, "w:gz") as opened:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
        for name, attributes in special.items():
            entry = tarfile.TarInfo(name)
            for key, value in attributes.items():
                setattr(entry, key, value)
            opened.addfile(entry)
    return file


def pack(file: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return file


MAKERS = {"a.tar.gz": tar, "a.zip": pack}
GOOD = {"set/x/1.jpg": b"one", "set/x/ü [2] 画\n.jpg": b"two" * 5000, "set/list.txt": b""}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", MAKERS)
def test_archive_becomes_the_folder_of_its_name(tmp_path, name):
    unpack(MAKERS[name](tmp_path / name, {**GOOD, "__MACOSX/._set": b"?"}), tmp_path / "set")
    assert contents(tmp_path / "set") == {key.removeprefix("set/"): value for key, value in GOOD.items()}
    assert {entry.name for entry in tmp_path.iterdir()} == {name, "set", ".set.lock"}


@pytest.mark.parametrize("name", MAKERS)
def test_archive_without_such_a_folder_gives_all_it_has(tmp_path, name):
    unpack(MAKERS[name](tmp_path / name, {"./autumn/1.jpg": b"1", "dim/2.jpg": b"2"}), tmp_path / "set")
    assert contents(tmp_path / "set") == {"autumn/1.jpg": b"1", "dim/2.jpg": b"2"}


def test_uncompressed_tar_is_understood(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as opened:
        opened.addfile(tarfile.TarInfo("set/empty"))
    unpack(tmp_path / "a.tar", tmp_path / "set")
    assert contents(tmp_path / "set") == {"empty": b""}


def test_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    unpack(pack(tmp_path / "a.zip", GOOD), tmp_path / "set")
    assert not contents(tmp_path / "set")


def refused(file: Path) -> str:
    """Why it is not unpacked; and that it left nothing anywhere."""
    outside = {entry: entry.stat().st_size for entry in file.parent.parent.iterdir()}
    with pytest.raises(UserError) as caught:
        unpack(file, file.parent / "set")
    assert not (file.parent / "set").exists() and not list(file.parent.glob(".set*.tmp"))
    assert {entry: entry.stat().st_size for entry in file.parent.parent.iterdir()} == outside
    assert str(file) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner"


OUTSIDE = ["../evil", "set/../../evil", "/tmp/evil", "\\evil", "C:/evil", "c:evil", "set\\..\\..\\evil", ".."]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("path", OUTSIDE)
def test_path_that_leads_out_is_refused_by_name(folder, name, path):
    message = refused(MAKERS[name](folder / name, {"set/1.jpg": b"1", path: b"evil"}))
    assert repr(path) in message and "leads out of the folder" in message


PIECES = st.sampled_from(["..", ".", "", "a", "b\\..", "C:", "/"])


@given(st.lists(PIECES, min_size=1, max_size=5).map("/".join).filter(bool))
def test_no_path_is_ever_written_outside(path):
    with TemporaryDirectory() as folder:
        top = Path(folder, "inner")
        top.mkdir()
        pack(top / "a.zip", {path: b"?"})
        with suppress(UserError):
            unpack(top / "a.zip", top / "set")
        assert {entry.name for entry in top.iterdir()} <= {"a.zip", "set", ".set.lock"} and [
            *Path(folder).iterdir()
        ] == [top]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "../../evil"}, "a link"),
        ({"type": tarfile.SYMTYPE, "linkname": "1.jpg"}, "a link"),
        ({"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, "a link"),
        ({"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}, "a device file"),
        ({"type": tarfile.FIFOTYPE}, "a device file"),
    ],
)
def test_link_or_device_is_refused_by_name(folder, kind, told):
    message = refused(tar(folder / "a.tar.gz", {"set/1.jpg": b"1"}, **{"set/odd": kind}))
    assert f"holds {told}, 'set/odd'" in message


@pytest.mark.parametrize(("mode", "told"), [(0o120777, "a link"), (0o020666, "a device file")])
def test_link_or_device_in_a_zip_is_refused_by_name(folder, mode, told):
    with zipfile.ZipFile(folder / "a.zip", "w") as opened:
        entry = zipfile.ZipInfo("set/odd")
        entry.create_system, entry.external_attr = 3, mode << 16
        opened.writestr(entry, "../../evil")
    assert f"holds {told}, 'set/odd'" in refused(folder / "a.zip")


def test_encrypted_member_is_refused(folder):
    raw = pack(folder / "a.zip", {"set/1.jpg": b"1"}).read_bytes()
    central = raw.index(b"PK\x01\x02")
    (folder / "a.zip").write_bytes(raw[: central + 8] + b"\x01" + raw[central + 9 :])
    assert "an encrypted file, 'set/1.jpg'" in refused(folder / "a.zip")


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("harm", ["empty", "text", "half", "end", "flipped"])
def test_damaged_archive_is_refused_by_name(folder, name, harm):
    file = MAKERS[name](folder / name, {f"set/{i}.jpg": os.urandom(3000) for i in range(9)})
    raw = file.read_bytes()
    middle = len(raw) // 2
    file.write_bytes(
        {
            "empty": b"",
            "text": b"<html>404</html>\n",
            "half": raw[:middle],
            "end": raw[:-6],
            "flipped": raw[:middle] + bytes([raw[middle] ^ 255]) + raw[middle + 1 :],
        }[harm]
    )
    assert "is damaged or cut short" in refused(file)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_zip_of_another_compression_is_refused_or_unpacks_all_the_same(folder, method):
    """A byte is flipped, each of the packed image in turn; a few mean nothing."""
    file, out = pack(folder / "a.zip", {"set/1.jpg": b"an image" * 100}, method), folder / "set"
    raw, told = file.read_bytes(), 0
    packed = range(39, raw.index(b"PK\x01\x02"))
    for at in packed:
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 255]) + raw[at + 1 :])
        try:
            unpack(file, out)
        except UserError as error:
            assert "is damaged or cut short" in str(error)
            told += 1
        else:
            assert contents(out) == {"1.jpg": b"an image" * 100}
            shutil.rmtree(out)
    assert told > len(packed) / 2


def test_backslashes_of_a_zip_lead_into_folders(tmp_path):
    pack(tmp_path / "a.zip", {"set\\clip\\": b"", "set\\clip\\a\\b.jpg": b"1", "set/clip\\c.jpg": b"2"})
    unpack(tmp_path / "a.zip", tmp_path / "set")
    assert contents(tmp_path / "set") == {"clip/a/b.jpg": b"1", "clip/c.jpg": b"2"}


def test_header_that_is_no_header_does_not_end_a_tar_early(folder):
    blocks = bytearray(
        gzip.decompress(tar(folder / "a.tar.gz", {f"set/{i}": b"x" * 512 for i in range(99)}).read_bytes())
    )
    blocks[20 * 1024 : 21 * 1024] = b"?" * 1024
    (folder / "a.tar.gz").write_bytes(gzip.compress(blocks))
    assert "is damaged or cut short" in refused(folder / "a.tar.gz")


@pytest.mark.parametrize("name", MAKERS)
def test_archive_that_grows_out_of_all_proportion_is_stopped(folder, name, monkeypatch):
    monkeypatch.setattr(archive, "ALWAYS_ALLOWED", 10_000)
    file = MAKERS[name](folder / name, {f"set/{i}": bytes(100_000) for i in range(5)})
    assert "unpacks to more than 10,000 bytes" in refused(file)


def test_archive_without_files_and_member_named_twice_are_refused(folder):
    assert "holds no files" in refused(tar(folder / "a.tar.gz", {}))
    assert "holds 'set/1' twice" in refused(tar(folder / "a.tar.gz", {"set/1": b"1", "set/./1": b"2"}))
    assert "holds 'set/1' twice" in refused(pack(folder / "a.zip", {"set/1": b"1", "set\\1": b"2"}))
    assert "cannot unpack" in refused(tar(folder / "a.tar.gz", {"set/1": b"1", "set/1/2": b"2"}))


def test_full_disk_is_told_and_leaves_nothing(folder, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "_files", full)
    assert "no room to unpack" in refused(pack(folder / "a.zip", {"set/1": b"1"}))


def test_what_a_killed_call_left_is_removed_by_the_next(tmp_path):
    """A process is killed in the midst of unpacking: there is no folder, and the next call makes a whole one."""
    file = tar(tmp_path / "a.tar.gz", {f"set/{i}": os.urandom(2000) for i in range(500)})
    slow = (
        "import time; from pathlib import Path; from fedbench.data import archive\n"
        "parts = archive._parts\n"
        "archive._parts = lambda *given: (time.sleep(0.01), parts(*given))[1]\n"
        f"archive.unpack(Path({str(file)!r}), Path({str(tmp_path / 'set')!r}))\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen([sys.executable, "-c", slow], env=env)
    deadline = time.monotonic() + 20
    while not (tmp_path / ".set.tmp" / "set" / "3").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / ".set.tmp").exists() and not (tmp_path / "set").exists()
    unpack(file, tmp_path / "set")
    assert len(contents(tmp_path / "set")) == 500 and not (tmp_path / ".set.tmp").exists()


def test_md5_is_that_of_the_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert md5(tmp_path / "a") == hashlib.md5(b"abc").hexdigest()
    with pytest.raises(UserError, match="cannot read .*gone"):
        md5(tmp_path / "gone")


def test_headers_that_grow_out_of_all_proportion_are_stopped(folder, monkeypatch):
    monkeypatch.setattr(archive, "ALWAYS_ALLOWED", 10_000)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as opened:
        entry = tarfile.TarInfo("set/1")
        entry.pax_headers = {"comment": "x" * 5_000_000}
        opened.addfile(entry)
    (folder / "a.tar.gz").write_bytes(gzip.compress(buffer.getvalue()))
    assert "unpacks to more than" in refused(folder / "a.tar.gz")


def test_damage_within_a_packed_member_is_told(folder):
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_LZMA) as opened:
        opened.writestr("set/1", os.urandom(3000))
    raw = bytearray((folder / "a.zip").read_bytes())
    raw[60:80] = b"\xff" * 20
    (folder / "a.zip").write_bytes(raw)
    assert "is damaged or cut short" in refused(folder / "a.zip")
