"""JSON files with a version, read back with a message where they are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbench.disk import write_atomically
from fedbench.errors import UserError
from fedbench.results.tables import RESULT_VERSION, wrong_version

MAX_DEPTH = 100  # what walks through a value may call itself as often


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file marked with the result version. Raises: ValueError for NaN, which JSON does not have."""
    write_atomically(path, json_text(value).encode())


def json_text(value: Mapping[str, Any]) -> str:
    """What `write_json` writes. Raises: ValueError for NaN."""
    return json.dumps({"result_version": RESULT_VERSION, **value}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _parsed(text: str) -> Any:
    """The value of a JSON text. Raises: ValueError, RecursionError for what nothing can be done with."""
    value = json.loads(text, parse_constant=_no_constant)
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


def read_json(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """What `write_json` wrote.

    Raises: UserError, ending with `mend`, where it is torn, foreign, incomplete or of another version.
    """
    try:
        value = _parsed(path.read_text(encoding="utf-8"))
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
