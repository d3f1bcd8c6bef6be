"""What of a configuration a cell's numbers do not depend on, by the word of its components, and what is then equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.registry.catalogue import Catalogue
from fedbench.registry.named import references
from fedbench.registry.registry import Registry
from fedbench.results.identity import identity

Config = Mapping[str, Any]
MADE_WITH = ("allocation", "aggregator", "objective")  # what a method is made with


def unread(config: Config, catalogue: Catalogue) -> frozenset[str]:
    """The parts of a configuration (`catalogue.PARTS`) that neither its method nor what that is made with depends on.
    None where clients have devices, whose sizes decide who takes part, or where models are tested at every client's
    size. Raises UserError for a component that nobody has."""
    if config.get("devices") or config["evaluation"].get("sizes"):
        return frozenset()
    method = config["method"]
    found = set(catalogue.find("method", method["name"]).ignores)
    for kind in MADE_WITH:
        if isinstance(ref := method.get(kind), Mapping):
            found &= {"adapter", *catalogue.find(kind, ref["name"]).ignores}  # which none of these is handed
    return frozenset(found & config.keys())


def essence(config: Config, fingerprints: Mapping[str, str], versions: Mapping[str, str], registry: Registry) -> str:
    """12 hex digits over all that the numbers of a cell do depend on: equal for cells that are equal in all that
    matters. The id of a cell that depends on all of its configuration. Raises UserError as `unread`."""
    parts = unread(config, registry.catalogue)
    if not parts:
        return identity(config, fingerprints, versions)
    read = {key: value for key, value in config.items() if key not in parts}
    idle = _plugins(config, registry) - _plugins(read, registry)
    return identity(read, fingerprints, {name: version for name, version in versions.items() if name not in idle})


def _plugins(config: Config, registry: Registry) -> set[str]:
    """What the plugins of all its components are called in an identity."""
    found = (registry.catalogue.find(kind, ref["name"]).plugin for kind, ref in references(config))
    return {registry.label(plugin) for plugin in found}
