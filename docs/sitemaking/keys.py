"""The page of a suite's keys, made from the JSON Schema by which editors check suites."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fedbench import schema as schemas
from fedbench.suite import json_schema
from sitemaking.commands import escaped
from sitemaking.components import own

HEAD = """\
# Every key of a suite

Made from the JSON Schema that `fedbench schema` prints. [Suites](suites.md) explains the keys and their defaults.
"""
Schema = Mapping[str, Any]
QUOTES = '"'


def page() -> str:
    """A table of keys for the suite itself and for each mapping in it, as Markdown."""
    schema = json_schema(own())
    parts = [HEAD.rstrip(), "## A suite", *_table(schema)]
    for name, shape in _met(schema).items():
        parts += [f"## {name}", *_table(shape)]
    return "\n\n".join(parts) + "\n"


def _met(schema: Schema) -> dict[str, Schema]:
    """The mappings within a suite in the order in which a reader meets them."""
    met: dict[str, Schema] = {}
    read = [json.dumps(schema["properties"])]
    while read:
        for name in re.findall(r'"#/\$defs/(\w+)"', read.pop(0)):
            shape = schema["$defs"][name]
            if "properties" in shape and name not in met:
                met[name] = shape
                read.append(json.dumps(shape))
    return met


def _table(shape: Schema) -> list[str]:
    needed = shape.get("required", ())
    about = " ".join(shape.get("description", "").split())
    rows = [
        f"| `{key}`{' (needed)' if key in needed else ''} | {_takes(part)} | {escaped(_description(part))} |"
        for key, part in shape["properties"].items()
    ]
    return [*([about] if about else []), "\n".join(["| key | takes | meaning |", "|---|---|---|", *rows])]


def _description(part: Schema) -> str:
    return str(part.get("description", ""))


def _takes(part: Schema) -> str:
    """What a key takes, with links to the tables of mappings."""
    if pointer := part.get("$ref", "").rpartition("/")[2]:
        return _named(pointer)
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_takes(one) for one in part["anyOf"]))
    if "const" in part:
        return f"`{json.dumps(part['const']).strip(QUOTES)}`"
    if part.get("type") == "array":
        return f"a list, each {_takes(part['items'])}" if part.get("items") else "a list"
    for inner in (*part.get("patternProperties", {}).values(), part.get("additionalProperties")):
        if isinstance(inner, Mapping) and inner:
            return f"a mapping from names, each to {_takes(inner)}"
    if "properties" in part:
        return "a mapping " + ", ".join(f"`{key}`: {_takes(inner)}" for key, inner in part["properties"].items())
    return escaped(schemas.described({key: value for key, value in part.items() if key != "description"}))


def _named(pointer: str) -> str:
    if found := re.fullmatch(r"(\w+)_(name|options)", pointer):
        what = {"name": "the name of", "options": "a mapping of a `name` and the options of"}[found[2]]
        article = "an" if found[1][0] in "aeio" else "a"
        return f"{what} {article} {found[1]}"
    return f"[{pointer}](#{pointer.lower()})"
