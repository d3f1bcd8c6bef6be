"""JSON that can be made again, kept in the cache folder: read back as it was written, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def keep(file: Path, value: Any) -> None:
    """Keep a JSON value with its hash; a folder that cannot be written only costs time."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(_sealed(json.dumps(value)), encoding="utf-8")
        draft.replace(file)
    except OSError:
        with suppress(OSError):
            draft.unlink()


def kept(file: Path) -> Any:
    """What `keep` wrote; None where there is no such file, or where it was damaged since."""
    try:
        text = file.read_text(encoding="utf-8")
        body = text[len(_sealed("")) - 1 : -1]
        return json.loads(body) if text == _sealed(body) else None
    except (OSError, ValueError, RecursionError):
        return None


def _sealed(body: str) -> str:
    return f'{{"sha256": "{hashlib.sha256(body.encode()).hexdigest()}", "value": {body}}}'
