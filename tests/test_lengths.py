"""A function of the package has at most 50 lines without its docstring, a file at most 500."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ("fedbench", "plugins")
ROOMS = (*PACKAGE, "tests", "docs", "benchmarks")
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def functions(body: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of some statements, which stand in no expression."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for name in BODIES:
            yield from functions(getattr(node, name, ()))


def test_no_function_and_no_file_is_too_long():
    long, found = [], 0
    gc.disable()  # half of the time would go into looks at trees that are in use
    try:
        for room in ROOMS:
            for file in sorted((ROOT / room).rglob("*.py")):
                text, name = file.read_text(), str(file.relative_to(ROOT))
                lines = text.count("\n")
                long += [f"{name}: {lines} lines"] * (lines > 500)
                for node in functions(ast.parse(text).body) if room in PACKAGE else ():
                    words = (ast.get_docstring(node, clean=False) or "").count("\n")
                    lines = (node.end_lineno or 0) - node.lineno + 1 - words
                    long += [f"{name}: {node.name} has {lines} lines"] * (lines > 50)
                    found += 1
    finally:
        gc.enable()
    assert not long and found > 2000
