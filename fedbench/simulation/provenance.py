"""What a cell is computed from: versions and fingerprints as its identity has them, and as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench import __version__, machine
from fedbench.errors import UserError
from fedbench.registry.catalogue import references
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results.identity import AUGMENTING, NUMERICAL
from fedbench.simulation.cell_job import config_of


def versions_of(config: Mapping[str, Any], registry: Registry) -> dict[str, str]:
    """Versions of fedbench, of the numerical packages and of every plugin that the configuration names, and the
    settings by which libraries compute with other instructions than by default."""
    names = [*NUMERICAL, *([AUGMENTING] if config["data"].get("augment") else [])]
    versions = {"fedbench": __version__} | {name: machine.package_version(name) or "none" for name in names}
    for kind, ref in references(config):
        plugin = registry.catalogue.find(kind, ref["name"]).plugin
        versions[registry.label(plugin)] = registry.version(plugin)
    return versions | machine.instructions()


def other_versions(manifest: Mapping[str, Any], registry: Registry) -> str:
    """Which versions are others here than in the manifest of a cell, in words; "" where none is."""
    there, here = manifest["versions"], versions_of(manifest["config"], registry)
    unset = dict.fromkeys(machine.INSTRUCTIONS, "its default")
    return _differences({**{name: text for name, text in unset.items() if name in here}, **there}, {**unset, **here})


def require_same(manifest: Mapping[str, Any], registry: Registry, prints: Mapping[str, str] | None = None) -> None:
    """Compare a cell with the identity that its run gave it.

    Args:
        manifest: of the cell.
        registry: knows what is installed.
        prints: the fingerprints of what is computed with.

    Raises:
        UserError: where something has changed since.
    """
    registry.look_again()
    then, now = manifest["fingerprints"], prints or {}
    changes = [other_versions(manifest, registry), _differences({name: then.get(name) for name in now}, now)]
    if changed := "; ".join(filter(None, changes)):
        raise UserError(f"what this cell is computed from has changed since the run began: {changed}; run it again")


def prints_now(manifest: Mapping[str, Any], registry: Registry) -> dict[str, str]:
    """The fingerprints of a cell's data and weights as they are on disk; none where they cannot be had any more: what
    was read when the cell began is what it was computed from."""
    try:
        return CachedFacts(registry).fingerprints(config_of(manifest))
    except Exception:  # files that are gone, or whatever a third-party component raises
        return {}


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} is {now.get(name)}, not {then[name]}" for name in then if now.get(name) != then[name])
