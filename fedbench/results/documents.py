"""Files that are written whole or not at all, and JSON read back with a message where it is not ours."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.tables import RESULT_VERSION, wrong_version

MAX_DEPTH = 100  # what walks through a value may call itself as often
ELSEWHERE = "Choose another folder with --results DIR."


def write_atomically(path: Path, write: Callable[[Path], None], mend: str = ELSEWHERE) -> None:
    """Let `write` fill a temporary file beside `path`, then put that in its place.

    A reader sees the old file or the new one. A writer that is killed leaves at most a hidden `.name.*.tmp`,
    which no reader looks at. Raises: UserError, ending with `mend`, where the folder cannot be written to or the
    disk is full.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, mend) from error
    finally:
        # After the replacement there is nothing left; a folder that never was has nothing to remove.
        if os.path.lexists(temporary):
            os.unlink(temporary)


def cannot_write(path: Path, error: OSError, mend: str = ELSEWHERE) -> UserError:
    return UserError(f"{path}: cannot be written ({error.strerror or error}). {mend}")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file marked with the result version. Raises: ValueError for NaN, which JSON does not have."""
    text = json_text(value)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


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
