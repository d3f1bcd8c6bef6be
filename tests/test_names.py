"""The harness knows no method by name: what it has to know of one, the method registers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fedbench
from fedbench.registry.registry import Registry

WORDS = {"legend", "pooled"}  # a picture has a legend, and features are pooled
HOUSE = Path(fedbench.__file__).resolve().parent


def said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of every string but docstrings, and of every identifier."""
    bodies = (node.body for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list))
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        for field in ("id", "attr", "name", "arg", "asname", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), text


def test_no_method_is_named_outside_docstrings():
    names = [name for name in Registry().catalogue.components["method"] if name not in WORDS]
    assert "fedra" in names
    pattern = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(names)})(?![A-Za-z0-9])")
    found = [
        f"{file.relative_to(HOUSE)}:{line}: {text!r:.100}"
        for file in sorted(HOUSE.rglob("*.py"))
        if pattern.search(source := file.read_text(encoding="utf-8"))
        for line, text in said(ast.parse(source))
        if pattern.search(text)
    ]
    assert not found, "\n".join(found)
