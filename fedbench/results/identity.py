"""Which cell a result is of: a hash over all that can change its numbers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fedbench.disk import hash_of_bytes
from fedbench.words import in_short

# Another version of one of these may give other numbers: results of several are shown together, with a warning.
# Results of a plugin's code before and after an edit never enter one mean.
NUMERICAL = ("torch", "timm", "loralib", "numpy")
AUGMENTING = "torchvision"  # likewise, of cells whose images change by chance
# Raised whenever a cell of the same configuration comes to other numbers: no older cell is then reused.
NUMBERS_VERSION = 1
# What stands in an id for fedbench's version: a release whose numbers are the same has the same ids.
RELEASE = {"fedbench": "0.1.0"}


def identity(
    config: Mapping[str, Any],
    fingerprints: Mapping[str, str],
    versions: Mapping[str, str],
    ignored: Collection[str] = (),
) -> str:
    """The id of a cell: 12 hex digits over all that can change its numbers.

    Names, device, jobs and timeout are not in it.

    Args:
        config: the resolved configuration.
        fingerprints: of data and weights.
        versions: of the packages and plugins that compute it; fedbench's counts by NUMBERS_VERSION.
        ignored: the parts of the configuration that its method does not read.
    """
    read = {key: value for key, value in config.items() if key not in ignored}
    versions = {name: RELEASE.get(name, version) for name, version in versions.items()}
    text = json.dumps([NUMBERS_VERSION, read, fingerprints, versions], sort_keys=True, separators=(",", ":"))
    return hash_of_bytes(text.encode())[:12]


def identity_of(manifest: Mapping[str, Any]) -> str:
    """The id that follows from what a manifest says of its cell."""
    ignored = manifest.get("ignored", ())
    return identity(manifest["config"], manifest["fingerprints"], manifest["versions"], ignored)


def read_by_its_method(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a cell without the parts that its method does not read."""
    ignored = manifest.get("ignored", ())
    return {key: value for key, value in manifest.get("config", {}).items() if key not in ignored}


def plugin_versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The code of the plugins that computed a cell, by package or file."""
    versions = manifest.get("versions", {})
    return {name: version for name, version in versions.items() if name not in ("fedbench", AUGMENTING, *NUMERICAL)}


def mixed_versions(manifests: Iterable[Mapping[str, Any]], plugins: bool = False) -> str:
    """`torch 2.13.0 and 2.14.1`, of what did not compute all of these cells in one version; "" where all did.

    Args:
        manifests: of cells; those without versions are left out.
        plugins: whether to name plugins as well.
    """
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for name, version in manifest.get("versions", {}).items():
            if plugins or name in ("fedbench", AUGMENTING, *NUMERICAL):
                found.setdefault(name, {})[version] = None
    return _mixed(found)


def mixed_settings(manifests: Iterable[Mapping[str, Any]], metric: str) -> str:
    """`engine cohort and sequential`, of what is part of an identity and parts no leaderboard; "" where cells agree.

    Args:
        manifests: of the cells of one method.
        metric: the one that is shown, whose options may differ.
    """
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        config = manifest.get("config", {})
        found.setdefault("engine", {})[str(config.get("engine"))] = None
        for ref in config.get("evaluation", {}).get("metrics", ()):
            if ref["name"] == metric.partition("/")[0]:
                found.setdefault("metric", {})[in_short(ref)] = None
    return _mixed(found)


def _mixed(found: Mapping[str, Iterable[str]]) -> str:
    several = {name: sorted(values) for name, values in found.items()}
    return "; ".join(f"{name} {' and '.join(values)}" for name, values in several.items() if len(values) > 1)
