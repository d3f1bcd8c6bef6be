"""Files that would run code, were they opened as what they are not. The code makes a file, the canary."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch


class Bomb:
    """Touches the canary when its pickle is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return Path.touch, (self.canary,)


def pickled(canary: Path) -> bytes:
    return pickle.dumps(Bomb(canary))


def torch_file(canary: Path) -> bytes:
    """What torch.save writes: a zip with a pickle in it."""
    buffer = io.BytesIO()
    torch.save({"weight": Bomb(canary)}, buffer)
    return buffer.getvalue()


def npy(canary: Path) -> bytes:
    """An array of objects, which NumPy keeps as a pickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(canary)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def npz(canary: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([Bomb(canary)], dtype=object))
    return buffer.getvalue()


def parquet(canary: Path, like: pa.Table) -> bytes:
    """A table of ours whose metadata hold pickles where pandas and pyarrow have looked for them: an extension type of
    Python's among them, which pyarrow before 14.0.1 loaded."""
    bomb = pickled(canary)
    extension = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": bomb}
    fields = [field.with_metadata(extension) for field in like.schema]
    metadata = {**(like.schema.metadata or {}), b"pandas": bomb, b"pickle": bomb}
    buffer = io.BytesIO()
    pq.write_table(like.cast(pa.schema(fields)).replace_schema_metadata(metadata), buffer)
    return buffer.getvalue()


FORMATS = {"pickle": pickled, "torch": torch_file, "npy": npy, "npz": npz}


def outward_zip(name: str, link: bool = False) -> bytes:
    """A zip with a member that leads out, or a link that does and a member behind it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        entry = zipfile.ZipInfo(name)
        if link:
            entry.create_system, entry.external_attr = 3, 0o120777 << 16
        opened.writestr(entry, "../../.." if link else "evil")
        opened.writestr(f"{name}/canary" if link else "set/1", "evil")
    return buffer.getvalue()


def outward_tar(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as opened:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "../../.."
        opened.addfile(entry)
        opened.addfile(tarfile.TarInfo(f"{name}/canary"))
    return buffer.getvalue()
