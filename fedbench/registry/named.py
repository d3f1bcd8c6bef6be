"""What a configuration names: every component of it, by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedbench.registry.catalogue import KINDS


def references(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a configuration names, by kind."""
    yield "dataset", config["data"]
    yield "partition", config["data"]["partition"]
    for section in (config, config["method"]):
        for kind in KINDS:  # in their order: who is to blame is told by it
            if kind != "dataset" and isinstance(section.get(kind), dict) and "name" in section[kind]:
                yield kind, section[kind]
    yield from (("metric", ref) for ref in config["evaluation"]["metrics"])
