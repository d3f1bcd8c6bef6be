"""The file in which readers keep what they read of a results folder: a sealed line of JSON, then two Arrow streams."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench import __version__
from fedbench.disk import cache_dir, hash_of_bytes

SUFFIX = ".kept"
MOST_HEAD = 2**14  # bytes
Stored = tuple[list[int], Sequence[bytes], Sequence[bytes]]  # of a cell: stamp, parts of its manifest and its digest


def place_of(folder: Path) -> Path:
    """Where the cache folder keeps what was read of a suite's folder."""
    return cache_dir() / "results" / f"{hash_of_bytes(str(folder.resolve()).encode())[:24]}{SUFFIX}"


@functools.cache
def code_at_work() -> str:
    """What reads and digests cells: numbers that other code made are none of ours."""
    found = hashlib.sha256(__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def stored(folder: Path, code: str, cells: Mapping[str, Stored]) -> bytes:
    """The content of the file. Parts that cells have in common are in it once."""
    import pyarrow as pa

    places: dict[bytes, int] = {}

    def refer(parts: Sequence[bytes]) -> list[int]:
        return [places.setdefault(part, len(places)) for part in parts]

    refs, integers = pa.list_(pa.int32()), pa.list_(pa.int64())
    columns = {
        "cell": pa.array(list(cells), pa.string()),
        "stamp": pa.array([stamp for stamp, *_ in cells.values()], integers),
        "manifest": pa.array([refer(manifest) for _, manifest, _ in cells.values()], refs),
        "digest": pa.array([refer(digest) for *_, digest in cells.values()], refs),
    }
    sink = pa.BufferOutputStream()
    for table in (pa.table(columns), pa.table({"part": pa.array(list(places), pa.large_binary())})):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    body = sink.getvalue()
    head = {"folder": str(folder.resolve()), "code": code, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(head).encode() + b"\n" + body.to_pybytes()


def read_store(file: Path, folder: Path, code: str) -> dict[str, Stored]:
    """By cell what `stored` was given; nothing where there is no such file, or one that is torn, of another folder or
    by other code."""
    import pyarrow as pa

    try:
        content = memoryview(file.read_bytes())
        line = bytes(content[:MOST_HEAD]).partition(b"\n")[0]
        head, body = json.loads(line), content[len(line) + 1 :]
        told = {"folder": str(folder.resolve()), "code": code, "sha256": hashlib.sha256(body).hexdigest()}
        if head != told:
            return {}
        source = pa.BufferReader(pa.py_buffer(body))
        cells, pool = (pa.ipc.open_stream(source).read_all() for _ in range(2))
    except (OSError, ValueError, RecursionError, pa.ArrowException):
        return {}
    parts: list[bytes] = pool["part"].to_pylist()
    rows: Any = zip(*(cells[name].to_pylist() for name in ("cell", "stamp", "manifest", "digest")), strict=True)
    return {
        cell: (stamp, [parts[i] for i in manifest], [parts[i] for i in digest])
        for cell, stamp, manifest, digest in rows
    }


def folder_in(file: Path) -> str:
    """Of which folder a file keeps something. Raises: OSError, ValueError, KeyError for none of ours."""
    with open(file, "rb") as opened:
        found: str = json.loads(opened.readline(MOST_HEAD))["folder"]
    return found
