"""Leaderboards as text for other programs and for papers: CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedbench.report.columns import Cell, Column, columns, heading, legend, subtitle
from fedbench.report.leaderboards import Leaderboard, Row
from fedbench.report.measures import Score, score
from fedbench.types import GLOBAL

CSV_COLUMNS = (
    "suite", "scenario", "method", "variant", "backbone", "dataset", "metric", "domain", "client", "split",
    "mean", "std", "n_seeds", "round",
)  # fmt: skip


def render(boards: Sequence[Leaderboard], format: str) -> str:
    """The text of all leaderboards in one of FORMATS, ending with a line break."""
    return FORMATS[format](boards)


def to_csv(boards: Sequence[Leaderboard]) -> str:
    """A row for every method, metric and domain (and client, where each is tested), then the average.

    client is -1 for the global model and empty for a mean over clients; std is empty for one seed. Where clients are
    tested, `client_sd` and `worst_10_percent` follow in place of a domain; where a budget is set, `spent` and
    `budget` with the metric `client_bytes` or `client_flops`. A method without a finished cell has no rows.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for board in boards:
        for row in (row for row in board.rows if row.runs):
            where = (board.suite, board.scenario, row.method, board.variant, board.backbone, board.dataset)
            values = [(row.metric, *value) for value in _csv_scores(row)] + list(_csv_budget(board, row))
            for metric, domain, client, value in values:
                std = "" if value.std is None else value.std
                writer.writerow((*where, metric, domain, client, board.split, value.mean, std, value.n, row.round))
    return out.getvalue()


def _csv_scores(row: Row) -> Iterator[tuple[str, int | str, Score]]:
    by_client: dict[tuple[str, int], list[float]] = {}
    for run in row.runs:
        for key, value in run.clients.items():
            by_client.setdefault(key, []).append(value)
    for (domain, client), values in by_client.items():
        yield domain, client, score(values)
    everyone = any(client == GLOBAL for _, client in by_client)
    if not everyone:
        for domain, value in row.domains.items():
            yield domain, "", value
    yield "average", GLOBAL if everyone else "", row.average
    if row.spread and row.worst_clients:
        yield "client_sd", "", row.spread
        yield "worst_10_percent", "", row.worst_clients


def _csv_budget(board: Leaderboard, row: Row) -> Iterator[tuple[str, str, str, Score]]:
    if board.budget is not None and not row.output:
        metric, n = f"client_{board.at}", len(row.runs)
        yield metric, "spent", "", score([run.spent for run in row.runs if run.spent is not None])
        yield metric, "budget", "", Score(board.budget, None, n)


def to_json(boards: Sequence[Leaderboard]) -> str:
    """Everything a leaderboard knows, in fractions, bytes, FLOPs and seconds; what does not exist is null."""
    found = [plain(_board(board)) for board in boards]
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _board(board: Leaderboard) -> dict[str, Any]:
    found = asdict(board) | {"domains": list(board.domains)}
    for row, into in zip(board.rows, found["rows"], strict=True):
        into |= {"label": row.label, "n_seeds": len(row.runs), "round": row.round if row.runs else None}
        into["spent"] = row.spent
        for run in into["runs"]:
            run["clients"] = [
                {"domain": d, "client": c, "value": v} for (d, c), v in run["clients"].items() if c != GLOBAL
            ]
    return found


def plain(value: Any) -> Any:
    """JSON has no NaN: what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_markdown(boards: Sequence[Leaderboard]) -> str:
    """Pipe tables; best in bold, second in italics."""
    parts = []
    for board in boards:
        lines = [f"### {escape_markdown(heading(board))}", "", escape_markdown(subtitle(board)), ""]
        lines += piped_table(columns(board))
        if board.notes:
            lines += ["", *(f"- {escape_markdown(note)}" for note in board.notes)]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, markdown_legend(legend(boards))]) + "\n"


def markdown_legend(sentences: Sequence[str]) -> str:
    """What columns mean, with Markdown's marks in the place of a terminal's."""
    return escape_markdown(" ".join(sentences).replace("* best, + second", "Bold best, italic second", 1))


def piped_table(page: Sequence[Column]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [_piped([escape_markdown(column.title) for column in page])]
    lines.append(_piped([":--" if column.part == "name" else "--:" for column in page]))
    return lines + [_piped([_markdown(column.cells[i]) for column in page]) for i in range(len(page[0].cells))]


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Text on one line without what Markdown would read as its own."""
    return "".join(f"\\{c}" if c in "\\|*_`<[]" else c for c in text).replace("\n", " ")


def _markdown(cell: Cell) -> str:
    around = {"best": "**", "second": "*", "": ""}[cell.mark]
    return around + escape_markdown(cell.text) + around + (f" {cell.spread}" if cell.spread else "")


LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
    "±": r"$\pm$", "Γ": r"$\Gamma$", "·": r"$\cdot$", "–": "--", "*": r"$^{*}$",
}  # fmt: skip


def to_latex(boards: Sequence[Leaderboard]) -> str:
    """Two booktabs tables for each leaderboard, scores and cost; best in bold, second underlined."""
    lines = ["% \\usepackage{booktabs}"]
    for board in boards:
        name, *rest = columns(board)
        for parts, told in ((("score", "budget"), subtitle(board)), (("cost",), "cost")):
            if chosen := [column for column in rest if column.part in parts]:
                lines += tabular([name, *chosen], "; ".join([heading(board), told]))
        lines += [f"% {note}" for note in board.notes]
    return "\n".join(lines) + "\n"


def tabular(page: Sequence[Column], caption: str) -> list[str]:
    """The lines of a LaTeX table with booktabs' rules."""
    rows = range(len(page[0].cells))
    return [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(page) - 1)}}}",
        r"\toprule",
        " & ".join(_escape_latex(column.title) for column in page) + r" \\",
        r"\midrule",
        *(" & ".join(_latex(column.cells[i]) for column in page) + r" \\" for i in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def _latex(cell: Cell) -> str:
    """A minus sign is set as one: -3.4 becomes $-$3.4."""
    text = re.sub(r"(?<!\S)-(?=\d)", "$-$", _escape_latex(cell.text))
    command = {"best": r"\textbf", "second": r"\underline", "": ""}[cell.mark]
    marked = f"{command}{{{text}}}" if command else text
    return f"{marked} {_escape_latex(cell.spread)}" if cell.spread else marked


FORMATS: Mapping[str, Callable[[Sequence[Leaderboard]], str]] = {
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
    "latex": to_latex,
}
