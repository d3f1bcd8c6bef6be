"""YAML -> validated suite -> its points; without torch.

From the text to the point: `yaml` reads, `validate` compares with `keys`, `overlay` lays settings on each
other, `references` and `methods` complete what is named, `limits` asks the backbone and the data, `resolve`
leads, and `points` is what comes out.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.suite.jsonschema import json_schema
    from fedbench.suite.limits import Facts
    from fedbench.suite.points import Point, Suite
    from fedbench.suite.references import reference
    from fedbench.suite.resolve import load

__all__ = ["Facts", "Point", "Suite", "json_schema", "load", "reference"]

# Imported when first asked for: pydantic takes longer than a shell may wait for the name of a suite.
_HOMES = {
    "Facts": "limits",
    "Point": "points",
    "Suite": "points",
    "json_schema": "jsonschema",
    "load": "resolve",
    "reference": "references",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedbench.suite' has no attribute {name!r}")
    return getattr(import_module(f"fedbench.suite.{_HOMES[name]}"), name)
