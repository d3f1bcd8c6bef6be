"""The cache of decoded images: npy files written once, renamed into place and read as memory maps."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fedbench.disk import NO_ROOM, OTHER_CACHE, cache_dir, free_disk, hash_of_bytes, locked_file, put_in_place, settle
from fedbench.errors import UserError
from fedbench.types import Images, Splits

if TYPE_CHECKING:
    import numpy as np

CACHE_VERSION = 1
INDEX = "index.json"
DTYPES = {"x": "uint8", "y": "int64", "domain": "int64"}  # x may be float32 instead, see `Images`
ARRAYS = tuple(f"{split}_{part}" for split in ("train", "test") for part in DTYPES)


class NewArray(Protocol):
    """What a build is given: a place on disk for one of `ARRAYS`, so that no split has to fit in memory."""

    def __call__(self, name: str, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray: ...


def entry_of(fingerprint: str) -> Path:
    """The folder that holds, or will hold, the splits known by `fingerprint`."""
    return cache_dir() / "splits" / hash_of_bytes(fingerprint.encode())[:24]


def cached(fingerprint: str, build: Callable[[NewArray], Splits]) -> Splits:
    """The splits known by `fingerprint`: from the cache, or from `build` and then from the cache.

    `fingerprint` must change with everything that the arrays depend on, the image size included.
    `build(new_array)` returns Splits. Its arrays may be ordinary ones, and `new_array` is then of no use;
    or x may be what `new_array("train_x", (n, 3, H, W))` gave, a memory map of uint8 (or `dtype="float32"`) already
    in its place, or the first rows of it. x comes back as a read-only memory map, y and domain in memory. Of two
    processes that want one entry, one builds.

    Raises: UserError where the cache folder cannot be written to or the disk is full.
    """
    entry = entry_of(fingerprint)
    found = _read(entry, fingerprint)
    if found is None:
        with cache_errors(entry.parent), locked_file(entry.with_name(f"{entry.name}.lock"), OTHER_CACHE):
            found = _read(entry, fingerprint)  # another process may have built it while this one waited
            if found is None:
                _write(entry, fingerprint, build)
                found = _read(entry, fingerprint)
    if found is None:
        raise UserError(f"the cache entry {entry} was written but cannot be read back; {_ELSEWHERE}")
    return found


def holds(fingerprint: str) -> bool:
    """Whether the splits known by `fingerprint` are in the cache, whole, so that `cached` would build nothing."""
    return _read(entry_of(fingerprint), fingerprint) is not None


_ELSEWHERE = "set FEDBENCH_CACHE to a folder that can be written to and has room"


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk or an unwritable cache folder into a UserError; any other error stays what it is."""
    try:
        yield
    except OSError as error:
        inside = os.fspath(error.filename or "").startswith(os.fspath(cache_dir()))
        if error.errno in NO_ROOM:
            raise UserError(f"no room in the cache folder {folder}: {error}; {_ELSEWHERE}") from error
        if inside or error.errno == errno.EROFS:
            raise UserError(f"cannot write to the cache folder {folder}: {error}; {_ELSEWHERE}") from error
        raise


def _read(entry: Path, fingerprint: str) -> Splits | None:
    """The entry's splits, or None where it is missing, torn or somebody else's."""
    import numpy as np

    try:
        index = json.loads((entry / INDEX).read_text(encoding="utf-8"))
        if (index["version"], index["fingerprint"]) != (CACHE_VERSION, fingerprint):
            return None
        arrays = {}
        for name in ARRAYS:
            file, facts = entry / f"{name}.npy", index["arrays"][name]
            mapped: Literal["r"] | None = "r" if name.endswith("_x") else None
            array = np.load(file, mmap_mode=mapped, allow_pickle=False)
            if _facts(file, array) != {key: facts[key] for key in ("bytes", "shape", "dtype")}:
                return None
            if not mapped and _sha256(array) != facts["sha256"]:
                return None
            arrays[name] = array
        train, test = ([arrays[f"{split}_{part}"] for part in DTYPES] for split in ("train", "test"))
        return Splits(Images(*train), Images(*test), tuple(index["skipped"]))
    except Exception:  # json and numpy raise many kinds for damaged files
        return None


def _write(entry: Path, fingerprint: str, build: Callable[[NewArray], Splits]) -> None:
    """Build into a temporary folder, then rename it into place: an entry is there whole or not at all."""
    draft, old = (entry.with_name(f"{entry.name}.{what}.tmp") for what in ("new", "old"))
    with put_in_place(entry, draft, old) as folder:  # what is there is torn or foreign, or it would have been read
        given: dict[str, np.memmap] = {}

        def new_array(name: str, shape: tuple[int, ...], dtype: str | None = None) -> np.ndarray:
            given[name] = _allocate(folder, name, shape, dtype)
            return given[name]

        splits = build(new_array)
        facts = {}
        for split, images in (("train", splits.train), ("test", splits.test)):
            assert isinstance(images, Images)  # texts are not decoded
            _check(split, images)
            for part in DTYPES:
                name, array = f"{split}_{part}", getattr(images, part)
                facts[name] = _store(folder, name, array, given.get(name))
        index = {"version": CACHE_VERSION, "fingerprint": fingerprint}
        index |= {"arrays": facts, "skipped": list(splits.skipped)}
        (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def _allocate(folder: Path, name: str, shape: tuple[int, ...], dtype: str | None = None) -> np.memmap:
    """A memory map of a new npy file, blocks reserved: on a full disk, writing to a hole kills (SIGBUS)."""
    import numpy as np

    if name not in ARRAYS:
        raise ValueError(f"a cached array is one of {', '.join(ARRAYS)}, not {name!r}")
    kind = np.dtype(dtype or DTYPES[name.split("_")[1]])
    wanted, free = int(np.prod(shape)) * kind.itemsize, free_disk(folder)
    if wanted > free:
        raise OSError(errno.ENOSPC, f"{name} needs {wanted:,} bytes and {free:,} are free", os.fspath(folder))
    file = folder / f"{name}.npy"
    array = np.lib.format.open_memmap(file, mode="w+", dtype=kind, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as handle:
            os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
    return array


def _store(folder: Path, name: str, array: np.ndarray, given: np.memmap | None) -> dict[str, Any]:
    """Bring one array to disk and say what the index must know about it. given: the map of its file, if there is."""
    file = folder / f"{name}.npy"
    if given is None or array is not given:
        file.unlink(
            missing_ok=True
        )  # `array` may be a view of this very file: it keeps its pixels while that is mapped
        given = _allocate(folder, name, array.shape, str(array.dtype) if name.endswith("_x") else None)
        given[...] = array
    given.flush()
    settle(file)
    facts = _facts(file, given)
    return facts if name.endswith("_x") else facts | {"sha256": _sha256(given)}


def _facts(file: Path, array: np.ndarray) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "shape": list(array.shape), "dtype": str(array.dtype)}


def _check(split: str, images: Images) -> None:
    """Refuse what a data set plugin may not return; its author reads the traceback."""
    x = images.x
    if str(x.dtype) not in ("uint8", "float32") or x.ndim != 4 or x.shape[1] != 3:
        raise TypeError(f"{split}: x must be (n, 3, H, W) uint8 or float32, not {x.shape} {x.dtype}")
    if str(x.dtype) == "float32" and len(x) and abs(x[:64]).max() > 2:
        raise TypeError(f"{split}: x in float32 has 1.0 where uint8 has 255, and reaches {abs(x[:64]).max():g}")
    for part in ("y", "domain"):
        array = getattr(images, part)
        if array.shape != (len(x),) or array.dtype.kind not in "iu":
            raise TypeError(f"{split}: {part} must be ({len(x)},) integers, not {array.shape} {array.dtype}")


def _sha256(array: np.ndarray) -> str:
    return hash_of_bytes(array.tobytes())
