"""What pages quote from the program, written again: `python -m sitemaking.quoted README.md docs/findings.md`."""

from __future__ import annotations

import difflib
import io
import re
import shlex
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pandas
from click.testing import CliRunner

from fedbench.cli import main
from fedbench.registry.catalogue import Component
from fedbench.report.paper import AFTER, EPRINT
from sitemaking.components import own

ROOT = Path(__file__).resolve().parents[2]
_TABLE = re.compile(r"(<!-- fedbench (compare .*?) -->\n```\n)(.*?)(\n```)", flags=re.DOTALL)
_PAIRS = re.compile(r"(<!-- pairs (\S+) (\w+)((?: \w+)*) -->\n)(.*?)(\n\n)", flags=re.DOTALL)
_METHODS = re.compile(r"(<!-- methods -->\n)(.*?)(\n\n)", flags=re.DOTALL)


def refreshed(text: str) -> str:
    """A page with its tables as the program prints them now.

    Args:
        text: Markdown. `<!-- fedbench compare ... -->` stands above a block that the command prints, and
            `<!-- methods -->` above the table of methods. `<!-- pairs FOLDER METHOD OTHER ... -->` stands above
            a table of differences. `git clone ADDRESS` has the address of pyproject.toml.

    Returns:
        The same Markdown. Where a command prints several tables, the page keeps the one that is most like its own.
    """
    text = _TABLE.sub(lambda found: found[1] + _printed(found[2], found[3]) + found[4], text)
    text = _PAIRS.sub(lambda found: found[1] + pairs(found[2], found[3], found[4].split()) + found[6], text)
    text = re.sub(r"(?<=git clone )https?:\S+", repository(), text)
    return _METHODS.sub(lambda found: found[1] + methods() + found[3], text)


def repository() -> str:
    """The address of the repository: the one place that a publisher changes is pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]


def _printed(command: str, table: str) -> str:
    output = CliRunner(env={"COLUMNS": None}).invoke(main, shlex.split(command)).output
    parts = "\n".join(line.rstrip() for line in output.splitlines()).split("\n\n")
    # A table begins below the name of its backbone. A blank line sets a ceiling apart within it.
    count = table.count("\n\n") + 1
    runs = ("\n\n".join(parts[start : start + count]) for start in range(len(parts) - count + 1))
    tables = [re.sub(r"\A\w+\n(?=\w+, %)", "", run) for run in runs]
    return max(tables, key=lambda one: difflib.SequenceMatcher(None, one, table, autojunk=False).ratio())


def compared(folder: str, *view: str) -> pandas.DataFrame:
    """What `fedbench compare` writes as CSV.

    Args:
        folder: A folder of results/reference.
        view: The view and its arguments; leaderboards without.

    Returns:
        One row per line of the CSV.
    """
    line = ["compare", *view, str(ROOT / "results/reference" / folder), "--format", "csv"]
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    frame = pandas.read_csv(io.StringIO(done.stdout))
    frame["variant"] = frame.variant.astype("string").fillna("")
    return frame


def pairs(folder: str, method: str, others: Sequence[str] = ()) -> str:
    """A table of `method` minus others, in points with 95 % intervals; what is not significant is in italics.

    Args:
        folder: A folder of results/reference.
        method: The method that others are subtracted from.
        others: Columns of the table, with a row for each leaderboard. Without any, every other method has a row and
            every leaderboard a column.
    """
    cells: dict[str, dict[str, str]] = {}
    frame = compared(folder, "pairs")
    shared = set.intersection(*(set(variant.split("; ")) for variant in frame.variant))
    for row in frame.itertuples():
        if method in (row.method, row.other):
            other, sign = (row.other, 100) if method == row.method else (row.method, -100)
            low, high = sorted((sign * row.ci_low, sign * row.ci_high))
            text = f"{sign * row.difference:+.1f} ({low:.1f} to {high:.1f})"
            apart = [part for part in row.variant.split("; ") if part not in shared | {"", f"backbone={row.backbone}"}]
            board = ", ".join([row.scenario, row.backbone, *apart])
            cells.setdefault(board, {})[other] = text if row.verdict in ("better", "worse") else f"*{text}*"
    if not others:
        names = dict.fromkeys(other for board in cells.values() for other in board)
        cells = {other: {board: cells[board].get(other, "") for board in cells} for other in names}
    columns = list(others) or list(dict.fromkeys(board for row in cells.values() for board in row))
    head = [f"| {method} minus | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return "\n".join(
        [*head, *(f"| {name} | {' | '.join(row.get(key, '') for key in columns)} |" for name, row in cells.items())]
    )


def families() -> dict[str, tuple[str, list[Component]]]:
    """The methods of fedbench by family, as the sections of docs/methods.md have them.

    Returns:
        Names of families, what clients hold in each, and its methods. The last one has those that are no
        `method` by their role.
    """
    components = own().components["method"]
    found: dict[str, tuple[str, list[Component]]] = {}
    others: list[Component] = []
    for line in (ROOT / "docs/methods.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            family, _, about = line[3:].partition(": ")
            here: list[Component] = []
            found[family] = (about, here)
        for name in re.findall(r"`(\w+)`", line) if line.startswith("### ") else ():
            (here if components[name].role == "method" else others).append(components[name])
    found = {family: (about, here) for family, (about, here) in found.items() if here}
    return found | {"Bounds and controls": ("what a method is measured against", others)}


def methods() -> str:
    """The table of methods: a row for each family, each method with its paper, or its role where it is no method."""
    rows = ["| family | methods and their papers |", "|---|---|"]
    for family, (about, here) in families().items():
        rows.append(f"| {family}{f': {about}' * bool(about)} | {', '.join(map(_cited, here))} |")
    return "\n".join(rows)


def _cited(component: Component) -> str:
    paper = component.paper or ""
    year, number = re.search(r", ([^,]*\b(?:19|20)\d\d)\b", paper), EPRINT.search(paper)
    cited = year[1] if year else ""
    if number and cited:
        cited = f"[{cited}](https://arxiv.org/abs/{number[1]})"
    if f", {AFTER}" in paper:
        cited = f"(after {cited})"
    if component.role != "method":
        cited = f"({component.role})"
    return f"`{component.name}` {cited}"


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(refreshed(page.read_text("utf-8")), "utf-8")
