"""The JSON Schema of suites for editors: from the models that check them, and the components that are installed."""

from __future__ import annotations

from typing import Any

from fedbench.registry.catalogue import REQUIRED, SET_UP, Catalogue, Component
from fedbench.schema import schema_of
from fedbench.suite.keys import SuiteKeys
from fedbench.suite.references import SEED, implied, may_follow_seed
from fedbench.suite.setting_layers import NESTED


def json_schema(catalogue: Catalogue) -> dict[str, Any]:
    """What a suite may hold, as JSON Schema 2020-12, every component's name and options spelled out."""
    return _Schema(catalogue).whole()


class _Schema:
    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.made = schema_of(SuiteKeys)
        self.shapes = self.made.pop("$defs")
        self.replaced: set[str] = set()

    def whole(self) -> dict[str, Any]:
        body = self._pointed(self.made)
        shapes = {name: self._pointed(shape) for name, shape in self.shapes.items()}
        shapes = {name: shape for name, shape in shapes.items() if name not in self.replaced}
        for kind in self.catalogue.components:
            shapes[f"{kind}_name"] = self._names(kind)
            shapes[f"{kind}_options"] = self._options(kind)
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A fedbench suite"}
        return {**body, **head, "$defs": shapes}

    def _pointed(self, part: Any) -> Any:
        """A schema with every marked reference turned into a name or a mapping."""
        if isinstance(part, list):
            return [self._pointed(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "x-component" not in part:
            return {key: self._pointed(value) for key, value in part.items()}
        shape = part["allOf"][0]["$ref"].rpartition("/")[2]
        self.replaced.add(shape)
        own = {key: self._pointed(value) for key, value in self.shapes[shape]["properties"].items() if key != "name"}
        return {"description": part.get("description", ""), **_reference(part["x-component"], own)}

    def _names(self, kind: str) -> dict[str, Any]:
        known = sorted(self.catalogue.components[kind].values(), key=lambda component: component.name)
        names: list[dict[str, Any]] = [{"const": one.name, "description": one.summary} for one in known]
        if not names:
            return {"type": "string"}
        if kind == "backbone" and "timm" in self.catalogue.components[kind]:
            names.append({"type": "string", "description": "any ViT or Mixer of timm"})
        return {"anyOf": names}

    def _options(self, kind: str) -> dict[str, Any]:
        """The options that go with each name; a mapping without a name refines what a lower layer named."""
        known = sorted(self.catalogue.components[kind].values(), key=lambda component: component.name)
        free = [{"not": {"required": ["name"]}}, {"properties": {"name": {"$ref": f"#/$defs/{kind}_name"}}}]
        if kind == "method":
            free.append({"required": ["extends"]})
        cases = [
            {
                "if": {"properties": {"name": {"const": one.name}}, "required": ["name"]},
                "then": {"properties": _properties(one)},
            }
            for one in known
        ]
        return {"anyOf": free, **({"allOf": cases} if cases else {})}


def _reference(kind: str, own: dict[str, Any]) -> dict[str, Any]:
    mapping: dict[str, Any] = {"type": "object", "$ref": f"#/$defs/{kind}_options"}
    if own:
        mapping["properties"] = own
    return {"anyOf": [{"$ref": f"#/$defs/{kind}_name"}, mapping]}


def _properties(component: Component) -> dict[str, Any]:
    return {key: _option(component, key, default) for key, default in component.options.items()}


def _option(component: Component, key: str, default: Any) -> dict[str, Any]:
    kind, takes = component.kind, component.takes.get(key)
    if kind in SET_UP and key in NESTED:
        return _reference(NESTED[key], {})
    whole = takes or implied(component, key) or {}
    if default != REQUIRED and may_follow_seed(component, whole):
        return {"anyOf": [whole, {"const": SEED}], "default": default}
    if takes is not None:
        return takes if default == REQUIRED else {**takes, "default": default}
    if default == REQUIRED:
        return {"description": "required"}
    return {**(implied(component, key) or {}), "default": default}
