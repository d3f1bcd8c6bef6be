"""A function has at most 50 lines without its docstring, a file at most 500."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [file for room in ("fedbench", "plugins", "tests", "docs") for file in sorted((ROOT / room).rglob("*.py"))]


@pytest.mark.parametrize("room", ["fedbench", "plugins", "tests", "docs"])
def test_no_function_and_no_file_is_too_long(room):
    long = []
    for file in FILES:
        if file.relative_to(ROOT).parts[0] != room:
            continue
        text, name = file.read_text(), str(file.relative_to(ROOT))
        lines = text.count("\n")
        long += [f"{name}: {lines} lines"] * (lines > 500)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node, clean=False) or "").count("\n")
                lines = (node.end_lineno or 0) - node.lineno + 1 - words
                long += [f"{name}: {node.name} has {lines} lines"] * (lines > 50)
    assert not long
