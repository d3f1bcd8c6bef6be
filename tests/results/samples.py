"""One small cell of a suite, and a way to change the files it left."""

from __future__ import annotations

import json

from fedbench.disk import hash_of_json
from fedbench.results.documents import SEAL
from fedbench.results.identity import identity
from fedbench.results.index import MARK, Entry

VALUES = {6: {"a": 0.5, "b": 0.25}, 12: {"a": 0.75, "b": 0.5}}

BARE = {"id": identity({}, {}, {}), "config": {}, "fingerprints": {}, "versions": {}}  # the least a manifest has


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
    file.write_text(json.dumps(sealed(value)))


def sealed(value):
    """The content of an index, a manifest or the like as fedbench would write it; the id of a manifest stays."""
    said = {key: part for key, part in value.items() if key != SEAL}
    entries = said.get("entries")
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        said["entries"] = [{**entry, MARK: _mark(said["suite"], entry)} for entry in entries]
    return {**said, SEAL: hash_of_json(said)}


def _mark(suite, entry):
    return hash_of_json([suite, {key: part for key, part in entry.items() if key != MARK}])[:12]
