"""What of a configuration a cell's method does not read, by the word of its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.registry.catalogue import Catalogue, references
from fedbench.registry.registry import Registry
from fedbench.results.identity import identity

Config = Mapping[str, Any]
MADE_WITH = ("allocation", "aggregator", "objective")  # what a method is made with


def unread(config: Config, catalogue: Catalogue) -> frozenset[str]:
    """The parts of a configuration that do not change what its method computes.

    Returns:
        Some of `catalogue.PARTS`, whether the configuration has them or not. None of them where clients have devices,
        whose sizes decide who takes part, or where models are tested at every client's size.

    Raises:
        UserError: for a component that nobody registered.
    """
    if config.get("devices") or config["evaluation"].get("sizes"):
        return frozenset()
    method = config["method"]
    found = set(catalogue.find("method", method["name"]).ignores)
    for kind in MADE_WITH:
        if isinstance(ref := method.get(kind), Mapping):
            found &= {"adapter", *catalogue.find(kind, ref["name"]).ignores}  # none of these is given the adapter
    return frozenset(found)


def idle_plugins(config: Config, parts: frozenset[str], registry: Registry) -> frozenset[str]:
    """The plugins that only these parts of a configuration name, as an identity calls them."""
    read = {key: value for key, value in config.items() if key not in parts}
    return frozenset(_plugins(config, registry) - _plugins(read, registry))


def _plugins(config: Config, registry: Registry) -> set[str]:
    """What the plugins of all its components are called in an identity."""
    found = (registry.catalogue.find(kind, ref["name"]).plugin for kind, ref in references(config))
    return {registry.label(plugin) for plugin in found}


def essence(config: Config, fingerprints: Mapping[str, str], versions: Mapping[str, str], registry: Registry) -> str:
    """The id of a cell of this configuration, whoever computed it. Raises UserError as `unread`."""
    parts = unread(config, registry.catalogue)
    idle = idle_plugins(config, parts, registry)
    read = {name: version for name, version in versions.items() if name not in idle}
    return identity(config, fingerprints, read, parts)
