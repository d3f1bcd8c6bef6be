"""The page of what suites can name, made from the catalogue: every component, its options, defaults and paper."""

from __future__ import annotations

import json

from fedbench import schema as schemas
from fedbench.registry.catalogue import KINDS, REQUIRED, SET_UP, Catalogue, Component
from fedbench.registry.registry import Registry
from fedbench.suite.setting_layers import NESTED
from sitemaking.commands import cell, escaped

HEAD = """\
# Components

What comes with fedbench, made from the catalogue; `fedbench plugins show NAME` prints the same.
An option stands next to the name: `{name: fedra, missing_layers: cover}`.
"""
TITLES = {
    "method": "Methods",
    "allocation": "Allocations",
    "aggregator": "Aggregators",
    "objective": "Objectives",
    "adapter": "Adapters",
    "backbone": "Backbones",
    "dataset": "Data sets",
    "partition": "Partitions",
    "metric": "Metrics",
    "executor": "Executors",
}


def own() -> Catalogue:
    """The catalogue without plugins of other packages."""
    catalogue = Catalogue()
    catalogue.add(component for component in Registry().catalogue if component.package == "fedbench")
    return catalogue


def page() -> str:
    """Every component of fedbench itself, by kind, as Markdown."""
    catalogue, parts = own(), [HEAD.rstrip()]
    assert set(TITLES) == set(KINDS)
    for kind, title in TITLES.items():
        parts.append(f"## {title}")
        for name, component in sorted(catalogue.components[kind].items()):
            parts += [f"### {kind} `{name}`", *_about(component)]
    return "\n\n".join(parts) + "\n"


def _about(component: Component) -> list[str]:
    parts = [escaped(component.summary), *(escaped(part) for part in component.details.split("\n\n") if part)]
    if component.kind in SET_UP and component.ignores:
        parts.append(f"Does not depend on {', '.join(f'`{part}`' for part in component.ignores)}.")
    if component.paper:
        parts.append(f"*{component.paper}*")
    if component.options:
        shown = ((key, _default(value), _takes(component, key)) for key, value in component.options.items())
        rows = [f"| `{key}` | {default} | {takes} |" for key, default, takes in shown]
        parts.append("\n".join(["| option | default | takes |", "|---|---|---|", *rows]))
    for profile, values in component.profiles.items():
        parts.append(f"Under `profile: {profile}`: `{json.dumps(values, ensure_ascii=False)}`.")
    return parts


def _default(value: object) -> str:
    return "required" if value == REQUIRED else f"`{cell(json.dumps(value, ensure_ascii=False))}`"


def _takes(component: Component, key: str) -> str:
    if component.kind in SET_UP and key in NESTED:
        return f"the name of an {NESTED[key]}, or a mapping"
    return escaped(schemas.described(component.takes[key])) if key in component.takes else ""
