"""What an entry of an index says of a cell, beside what the cell's own manifest says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedbench.results.identity import id_in
from fedbench.results.index import Entry


def disagreement(entry: Entry, manifest: Mapping[str, Any], methods: Collection[str | None] = ()) -> str | None:
    """Why the entry cannot be a name of that cell; None where it can.

    methods: where nothing vouches for the entry itself, those of all cells beside this one. A method's name is then
    taken at its word, though a suite could call another method so.
    """
    if (id := id_in(entry.cell)) != manifest["id"]:
        return f"its cell is {id:.80}, and {manifest['id']} lies there"
    config = manifest["config"]
    told = {"seed": config.get("seed"), "profile": config.get("profile")}
    told |= {"backbone": _name(config, "backbone"), "dataset": _name(config, "data")}
    for what, other in told.items():
        if other not in (None, own := getattr(entry, what)):
            return f"its {what} is {own!r:.80}, and that of its cell {other!r:.80}"
    if (method := _name(config, "method")) != entry.method and entry.method in methods:
        return f"its cell is one of {method!r:.80}"
    return None


def method_of(manifest: Mapping[str, Any]) -> str | None:
    """The registered method behind a cell."""
    return _name(manifest.get("config", {}), "method")


def _name(config: Mapping[str, Any], part: str) -> str | None:
    return config.get(part, {}).get("name")
