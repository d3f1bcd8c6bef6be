"""A function fits a screen, a file a sitting: at most 50 and 300 lines, and half of all files at most 110."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

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
        long += [f"{name}: {lines} lines"] * (lines > 300)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}: {node.name} has {lines} lines"] * (lines > 50)
    assert not long


def test_half_of_all_files_are_short():
    lengths = [file.read_text().count("\n") for file in FILES]
    assert len(lengths) > 300 and median(lengths) <= 110
