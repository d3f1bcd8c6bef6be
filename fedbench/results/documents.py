"""JSON files with a version and a seal, read back with a message where they are not ours, or not as written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbench.disk import cannot_write, hash_of_json, write_atomically
from fedbench.errors import UserError
from fedbench.results.tables import RESULT_VERSION, wrong_version

MAX_DEPTH = 100  # what walks through a value may call itself as often
SEAL = "sha256"  # of all that stands beside it in its file, as JSON with sorted keys: whitespace and order are free


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file marked with the result version, and sealed: with its own hash. Raises: ValueError for NaN, which JSON
    does not have."""
    said = json.loads(json_text(value))  # what a reader will have to hash
    write_atomically(path, json_text({**value, SEAL: hash_of_json(said)}).encode())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """While a file is read and then written anew: who else does so waits. Raises: UserError where that cannot be."""
    from filelock import FileLock

    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock):
            yield
    except OSError as error:  # of the lock: a link, a folder, somebody else's
        raise cannot_write(lock, error) from error


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON text marked with the result version, without a seal. Raises: ValueError for NaN."""
    return json.dumps({"result_version": RESULT_VERSION, **value}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def parsed(text: str) -> Any:
    """The value of a JSON text. Raises: ValueError, RecursionError for what nothing can be done with."""
    value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be neither printed nor written
    layer: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        parts = (part for whole in layer for part in (whole.values() if isinstance(whole, dict) else whole))
        layer = [part for part in parts if isinstance(part, dict | list)]
        if not layer:
            return value
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises: ValueError where a key stands twice: which of its values is meant, no two readers agree on."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.80} stands there twice")
    return found


def unsealed(value: dict[str, Any], unmarked: Collection[str]) -> str | None:
    """Take the seal off what `read_json` read; returns what is wrong with it, None where all is as it was written.

    unmarked: the keys that files have had which an older fedbench wrote, without a seal. Any other key must come from
    one that seals, or be a damaged one: so nothing passes for old whose seal was hit itself.
    """
    if SEAL in value:
        seal = value.pop(SEAL)
        return None if seal == hash_of_json(value) else "changed since it was written (its hash is another)"
    odd = sorted(value.keys() - unmarked)
    return f"changed since it was written ({odd[0]!r:.80} stands there, and no {SEAL})" if odd else None


def read_sealed(path: Path, required: Iterable[str], unmarked: Collection[str], mend: str) -> dict[str, Any]:
    """What `write_json` wrote, without the seal. Raises: UserError as `read_json`, and where the seal does not fit."""
    value = read_json(path, required, mend)
    if wrong := unsealed(value, unmarked):
        raise UserError(f"{path}: {wrong}.\n{mend}")
    return value


def read_json(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """A JSON file marked with the result version, as it stands there.

    Raises: UserError, ending with `mend`, where it is torn, foreign, incomplete or of another version.
    """
    try:
        value = parsed(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON ({error}).\n{mend}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    if not isinstance(value, dict) or "result_version" not in value:
        raise UserError(f"{path}: not a file of fedbench (it has no result_version).\n{mend}")
    if value["result_version"] != RESULT_VERSION:
        raise UserError(wrong_version(path, value["result_version"]))
    if missing := [name for name in required if name not in value]:
        raise UserError(f"{path}: {', '.join(missing)} missing.\n{mend}")
    return value
