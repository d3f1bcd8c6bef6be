"""Which cell a result is of: a hash over all that can change its numbers, and the end of its folder's name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fedbench.disk import hash_of_bytes
from fedbench.results.tables import RESULT_VERSION

NAMED = re.compile(r"-([0-9a-f]{12})\Z")


def identity(config: Mapping[str, Any], fingerprints: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """12 hex digits over all that can change a result; names, device, jobs and timeout are not in it."""
    text = json.dumps([RESULT_VERSION, config, fingerprints, versions], sort_keys=True, separators=(",", ":"))
    return hash_of_bytes(text.encode())[:12]


def id_in(folder: str) -> str:
    """The id with which the name of a cell's folder ends; all that follows its last `-`."""
    return folder.rpartition("-")[2]


def named(folder: str) -> str | None:
    """The id that a folder claims by its name; None for a name that nobody gave to a cell."""
    found = NAMED.search(folder)
    return found and found[1]
