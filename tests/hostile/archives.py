"""Archives and lists of strangers, damaged or made to do harm."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from random import Random

from layouts import jpeg

from fedbench.data.archive import unpack
from fedbench.data.lists import Lists
from hostile.mutants import TEXTS, damaged

NAMES = [*TEXTS, "set/1.jpg", "set", "set/", "./set/2", "C:/x", "\\x", "set/../../x", "/x", "set//3", "x" * 300]
TYPES = [tarfile.REGTYPE] * 4 + [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
TYPES += [tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, b"Z", b"\0"]


class Archives:
    def __init__(self, shared: Path) -> None:
        self.images = [jpeg(shade) for shade in range(3)]

    def attack(self, inside: Path, chance: Random) -> None:
        if chance.random() < 0.1:
            self._list(inside, chance)
            return
        raw = chance.choice([self._zip, self._tar])(chance)
        if chance.random() < 0.8:
            raw = damaged(raw, chance)
        how = chance.randrange(4)
        raw = gzip.compress(raw, 1) if how == 0 else raw
        raw = damaged(raw, chance) if how == 1 else raw
        file = inside / chance.choice(["a.zip", "a.tar", "a.tar.gz", "a"])
        file.write_bytes(raw)
        unpack(file, inside / "set")

    def _members(self, chance: Random) -> list[tuple[str, bytes]]:
        names = [f"set/{i}.jpg" for i in range(3)]
        if chance.random() < 0.5:
            names[chance.randrange(3)] = chance.choice(NAMES)
        return list(zip(names, self.images, strict=True))

    def _zip(self, chance: Random) -> bytes:
        buffer = io.BytesIO()
        methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
        with zipfile.ZipFile(buffer, "w", chance.choice(methods)) as opened:
            for name, content in self._members(chance):
                entry = zipfile.ZipInfo(_encodable(name))
                entry.compress_type = opened.compression
                entry.external_attr = chance.choice([0, 0, 0, 0o120777 << 16, 0o100644 << 16, 0o020666 << 16])
                opened.writestr(entry, content)
        return buffer.getvalue()

    def _tar(self, chance: Random) -> bytes:
        buffer = io.BytesIO()
        form = chance.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
        with tarfile.open(fileobj=buffer, mode="w", format=form, errors="replace") as opened:
            for name, content in self._members(chance):
                entry = tarfile.TarInfo(_encodable(name)[:90])
                entry.size, entry.type = len(content), chance.choice(TYPES)
                entry.linkname = _encodable(chance.choice(NAMES))[:90]
                keys = ["size", "path", "GNU.sparse.map", "GNU.sparse.major", "GNU.sparse.size", "mtime", "comment"]
                values = ["-1", "9" * 30, "0,1", "nan", "../x", "1", "x"]
                if form == tarfile.PAX_FORMAT and chance.random() < 0.3:
                    entry.pax_headers = {chance.choice(keys): chance.choice(values)}
                opened.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    def _list(self, inside: Path, chance: Random) -> None:
        lines = []
        for label, name in enumerate(("cat", "dog")):
            for i in range(2):
                (inside / "real" / name).mkdir(parents=True, exist_ok=True)
                (inside / "real" / name / f"{i}.jpg").write_bytes(damaged(self.images[i], chance))
                lines.append(f"real/{name}/{i}.jpg {label}\n")
        text = "".join(lines).encode()
        (inside / "train.txt").write_bytes(damaged(text, chance) if chance.random() < 0.7 else text)
        (inside / "test.txt").write_bytes(text)
        files = {"real": (inside / "train.txt", inside / "test.txt")}
        unreadable = chance.choice(["fail", "skip"])
        Lists(inside, files, 2, chance.random() < 0.5).dataset(8, "bicubic", unreadable).load()


def _encodable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
