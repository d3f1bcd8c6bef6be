"""How editors come to know what a suite may hold: a line in the suite that names a JSON Schema, and that file.

The schema lies beside the suite, so that the line is the same for everybody who has the folder. The one that ships
knows what comes with fedbench; `fedbench schema --install` writes one that knows what is installed.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

SCHEMA = "suite.schema.json"
LINE = "# yaml-language-server: $schema="  # of the YAML language server, which VS Code, Neovim, Helix and others run
_THERE = re.compile(rf"(?:^|(?<=\ufeff)){re.escape(LINE)}\S*$", re.MULTILINE)
_HEAD = re.compile(r"\ufeff?(# fedbench .*\n)?")


def shipped() -> Path:
    """The schema that lies beside the shipped suites."""
    return Path(str(files("fedbench_suites"))) / SCHEMA


def dumped(schema: dict[str, Any]) -> bytes:
    """The text of a schema's file."""
    return (json.dumps(schema, indent=1, ensure_ascii=False) + "\n").encode()


def knowing(kind: str, name: str) -> bytes:
    """The shipped schema with one more component, that of a plugin which is being begun. kind: of a component, or any
    other, which suites do not name."""
    schema = json.loads(shipped().read_bytes())
    if names := schema["$defs"].get(f"{kind}_name"):
        names["anyOf"].append({"const": name, "description": "your own"})
    return dumped(schema)


def is_suite(text: str) -> bool:
    """Whether a YAML file is a suite rather than anything else that lies in the same folder."""
    return re.search(r"^\ufeff?suite:", text, re.MULTILINE) is not None


def has_line(text: str) -> bool:
    """Whether the text names a schema already, be it this one or another."""
    return _THERE.search(text) is not None


def beside(text: str) -> str:
    """A suite's text with the line that names the schema beside it: in place of another, else behind the comment that
    says how it is run, else on top."""
    line = f"{LINE}{SCHEMA}"
    if has_line(text):
        return _THERE.sub(lambda _: line, text, count=1)
    head = _HEAD.match(text)[0]  # type: ignore[index]  # it matches nothing, too
    return f"{head}{line}\n{text[len(head) :]}"
