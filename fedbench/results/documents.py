"""JSON files with a version and a seal, read back with a message where they are not ours, or not as written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.disk import hash_of_bytes, opened, write_atomically
from fedbench.errors import UserError
from fedbench.results.tables import RESULT_VERSION, wrong_version

MAX_DEPTH = 100  # what walks through a value may call itself as often
SEAL = "sha256"  # of the bytes of its file, in which it stands as BLANK
BLANK = "0" * 64


class TornFile(UserError):
    """A JSON file that says nothing that can be believed; one of another version is none."""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with the result version and a seal: the hash of its own bytes.

    Raises:
        ValueError: for NaN, which JSON does not have.
    """
    write_atomically(path, sealed_text(value).encode())


def sealed_text(value: Mapping[str, Any]) -> str:
    """What `write_json` writes."""
    text = json_text({key: part for key, part in value.items() if key != SEAL} | {SEAL: BLANK})
    return _with_seal(text, BLANK, hash_of_bytes(text.encode()))


def _with_seal(text: str, old: str, new: str) -> str:
    """A text with another seal; it stands last."""
    before, key, after = text.rpartition(f'"{SEAL}": "{old}"')
    return f'{before}"{SEAL}": "{new}"{after}' if key else ""


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON text marked with the result version, without a seal: a line for each item of a list or dict in it, so
    that an entry of an index is a line. Raises: ValueError for NaN."""
    marked = {"result_version": RESULT_VERSION} | {key: part for key, part in value.items() if key != "result_version"}
    parts = (f" {_json(key)}: {_lines_of(part)}" for key, part in marked.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines_of(part: Any) -> str:
    if part and isinstance(part, Mapping):
        return "{\n" + ",\n".join(f"  {_json({key: item})[1:-1]}" for key, item in part.items()) + "\n }"
    if part and isinstance(part, Sequence) and not isinstance(part, str):
        return "[\n" + ",\n".join(f"  {_json(item)}" for item in part) + "\n ]"
    return _json(part)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def parsed(text: str) -> Any:
    """The value of a JSON text. Raises: ValueError, RecursionError for what nothing can be done with."""
    value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be neither printed nor written
    if text.count("[") + text.count("{") <= MAX_DEPTH:  # it has no more levels than brackets
        return value
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


def read_sealed(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """What `write_json` wrote, without the seal.

    Raises:
        UserError: as `read_json`, and where the seal does not fit.
    """
    written = _bytes_of(path)  # once: a worker may replace the file at any time, and its seal is of its own text
    value = _value_of(written, path, required, mend)
    seal = value.pop(SEAL, None)
    text = written.decode(errors="replace")
    blank = _with_seal(text, seal, BLANK) if isinstance(seal, str) else ""
    if seal != hash_of_bytes(blank.encode()):
        raise TornFile(f"{path}: checksum mismatch: it was changed since it was written.\n{mend}")
    return value


def read_json(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """A JSON file marked with the result version, as it stands there.

    Raises: UserError, ending with `mend`, where it is torn, foreign, incomplete or of another version.
    """
    return _value_of(_bytes_of(path), path, required, mend)


def _bytes_of(path: Path) -> bytes:
    try:
        with opened(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error


def _value_of(written: bytes, path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    try:
        value = parsed(written.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TornFile(f"{path}: not readable as JSON ({error}).\n{mend}") from error
    if not isinstance(value, dict) or "result_version" not in value:
        raise TornFile(f"{path}: not a file of fedbench (it has no result_version).\n{mend}")
    if value["result_version"] != RESULT_VERSION:
        raise UserError(wrong_version(path, value["result_version"]))
    if missing := [name for name in required if name not in value]:
        raise TornFile(f"{path}: {', '.join(missing)} missing.\n{mend}")
    return value
