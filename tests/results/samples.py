"""One small cell of a suite, and a way to change the files it left."""

from __future__ import annotations

import json

from factories import config

from fedbench.disk import hash_of_bytes
from fedbench.results.documents import BLANK, SEAL
from fedbench.results.identity import identity
from fedbench.results.index import Entry

VALUES = {6: {"a": 0.5, "b": 0.25}, 12: {"a": 0.75, "b": 0.5}}

BARE = {"id": identity(config("fedra"), {}, {}), "config": config("fedra"), "fingerprints": {}, "versions": {}}


def entry(method: str = "fedra", seed: int = 0, scenario: str = "mixed", cell: str = "c") -> Entry:
    return Entry(scenario, method, "", seed, cell, "micro_vit", "strokes6", "paper")


def rewrite(file, **changes):
    """A JSON file with other values at these dotted keys (`__` for the dot, `_0` for the first of a list), by somebody
    who knows how such files are sealed."""
    value = json.loads(file.read_text())
    for dotted, new in changes.items():
        *path, last = [0 if step == "0" else step for step in dotted.split("__")]
        part = value
        for step in path:
            part = part[step]
        part[last] = new
    file.write_text(sealed(value))


def sealed(value) -> str:
    """A JSON file as fedbench would seal it, whatever is in it."""
    blank = json.dumps({key: part for key, part in value.items() if key != SEAL} | {SEAL: BLANK}, indent=1)
    before, seal, after = blank.rpartition(BLANK)
    return before + hash_of_bytes(blank.encode()) + after
