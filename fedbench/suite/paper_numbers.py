"""A paper's numbers in a suite: read from a CSV file where one is named, and compared with what the suite has."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fedbench.disk import at_home, opened
from fedbench.suite import validate
from fedbench.suite.keys import ExpectedKeys
from fedbench.suite.yaml import INVALID, Mark, Node, Problems
from fedbench.words import counted, shortened, shown, suggestion

# Columns that say whose number a row is, those by which a suite may ask for rows, and those for people alone.
CHOOSING = ("paper", "table")
ASKED = (*CHOOSING, "dataset")
FOR_PEOPLE = ("setting", "client_depths")
COLUMNS = (*CHOOSING, *ExpectedKeys.__annotations__, *FOR_PEOPLE)
NEEDED = ("backbone", "dataset", "method", "metric", "value_percent")
NUMBERS = ("value_percent", "std", "rounds")


def written_out(tree: Node, suite: str | Path, problems: Problems) -> Node:
    """The tree of a suite with the rows of the file in place of `expected: {file: ..., paper: ..., table: ...}`."""
    node = tree.get("expected")
    if node is None or not node.is_mapping:
        return tree
    before = len(problems)
    request = validate.expected_file(node, problems)
    if len(problems) > before:
        return tree.put(("expected",), Node(INVALID, node.mark, node.key))
    rows = _chosen(request, Path(suite).parent, problems)
    return tree.put(("expected",), Node(rows, node.mark, node.key))


def _chosen(request: Node, folder: Path, problems: Problems) -> list[Node]:
    """The rows that the request is about."""
    file, wanted = request.at("file"), {key: node.value for key, node in request.value.items() if key in ASKED}
    path = os.path.normpath(folder / at_home(file.value))
    try:
        with opened(path) as there:
            text = there.read().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        problems.add(file.mark, f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
        return []
    before = len(problems)
    rows = [row for row in _rows(text, path, problems) if wanted.items() <= row[1].items()]
    if not rows and len(problems) == before:
        problems.add(file.mark, f"{path}: has no row with {', '.join(f'{k} {shown(v)}' for k, v in wanted.items())}")
    score = {"score": str(request.at("score").value)} if request.get("score") else {}
    return [_node(mark, {**cells, **score}) for mark, cells in rows]


def _rows(text: str, path: str, problems: Problems) -> Iterator[tuple[Mark, dict[str, str]]]:
    """Every row of the file as (place, column -> text); what is wrong with the file goes to `problems`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if not _check_header(header, Mark(path, 1, 1), problems):
            return
        for cells in reader:
            mark = Mark(path, reader.line_num, 1)
            if cells and len(cells) != len(header):
                problems.add(mark, f"expected {counted(len(header), 'value')}, one for each column, got {len(cells)}")
            elif cells:
                yield mark, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        problems.add(Mark(path, reader.line_num, 1), f"not valid CSV: {error}")


def _check_header(header: list[str], mark: Mark, problems: Problems) -> bool:
    faults = [f"unknown column {shown(name)}{suggestion(name, COLUMNS)}" for name in header if name not in COLUMNS]
    faults += [f"the column {shown(name)} appears twice" for name in set(header) if header.count(name) > 1]
    if missing := [name for name in ("paper", *NEEDED) if name not in header]:
        faults.append(f"needs the columns {', '.join(missing)}")
    for message in faults:
        problems.add(mark, message)
    return not faults


def _node(mark: Mark, cells: dict[str, str]) -> Node:
    """A row as the suite would spell it, every part of it at its line; an empty cell is left out."""
    row = {
        name: _number(text) if name in NUMBERS else text
        for name, text in cells.items()
        if text and name not in (*CHOOSING, *FOR_PEOPLE)
    }
    return Node.of(row, mark)


def _number(text: str) -> Any:
    """A number, or the text for the model to refuse."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def check(
    rows: Node | None, scenarios: Collection[str], labels: Collection[str], points: Collection[str], problems: Problems
) -> tuple[dict[str, Any], ...]:
    """The rows, scenario and variant written out; those that name what the suite does not have are reported.

    points: the texts of all sweep points, as variants show them.
    """
    found: list[dict[str, Any]] = []
    seen: dict[tuple, int | None] = {}
    for node in rows.value if rows is not None and isinstance(rows.value, list) else ():
        if not node.is_valid or not set(NEEDED) <= node.value.keys():
            continue
        row = {"scenario": next(iter(scenarios), "") if len(scenarios) == 1 else None, "variant": ""} | node.plain()
        if row["scenario"] is None:
            problems.add(node.named, f"this number names no scenario, and there are {shortened(list(scenarios))}")
            continue
        parts = filter(None, row["variant"].split("; "))
        method = row["method"] if row["method"] in labels else row["method"].rpartition("/")[0] or row["method"]
        for what, name, known in (
            ("scenario", row["scenario"], scenarios),
            ("method", method, labels),
            *(("sweep point", part, points) for part in parts),
        ):
            if name not in known:
                at = node.get(what) or node.get("variant") or node
                problems.add(at.mark, f"no {what} of this suite is called {shown(name)}{suggestion(name, known)}")
        key = tuple(row[name] for name in ("scenario", "variant", "dataset", "backbone", "method", "metric"))
        if key in seen:
            problems.add(node.mark, f"this number is given twice, first on line {seen[key]}")
        seen.setdefault(key, node.mark.line)
        found.append(row)
    return tuple(found)
