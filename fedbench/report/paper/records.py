"""Comparisons with a paper for a terminal, for other programs and for papers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedbench.report.columns import heading, subtitle
from fedbench.report.leaderboards import cell
from fedbench.report.paper.columns import columns, legend, remarks, warning
from fedbench.report.paper.comparison import Comparison, percent
from fedbench.report.paper.order import order
from fedbench.report.text import escape_markdown, piped_table, plain, tabular

if TYPE_CHECKING:
    from rich.console import Console

# *_percent and difference are in percent and points; difference is empty where the two are not comparable.
CSV_COLUMNS = (
    "suite", "scenario", "variant", "backbone", "dataset", "profile", "method", "domain", "round", "measured_percent",
    "measured_std", "n_seeds", "paper_dataset", "paper_backbone", "paper_percent", "paper_std", "difference", "source",
)  # fmt: skip


def show(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print every comparison, and once at the end what the words mean."""
    from rich.text import Text

    from fedbench.report.terminal import indented, pages, table

    for comparison in comparisons:
        console.print(Text(heading(comparison.board), style="bold"))
        console.print(Text(subtitle(comparison.board), style="dim"))
        if told := warning(comparison):
            console.print(Text(told, style="yellow"))
        found = columns(comparison)
        dim = [name.text.startswith(" ") for name in found[0].cells]
        for page in pages(found, console.width):
            console.print(table(page, dim, console))
            console.print()
        for note in remarks(comparison):
            console.print(indented(note, "dim"))
        for note in comparison.board.notes:
            console.print(indented(note, "yellow"))
        console.print()
    for sentence in legend(comparisons):
        console.print(indented(sentence, "dim"))


def render(comparisons: Sequence[Comparison], format: str) -> str:
    """The text of all comparisons in one of FORMATS, ending with a line break."""
    return FORMATS[format](comparisons)


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """A row for every method, domain and combination of the paper, then its average."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for comparison in comparisons:
        for record in _records(comparison):
            writer.writerow(record)
    return out.getvalue()


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """What is known of each number; None where there is none."""
    where = {name: getattr(comparison.board, name) for name in CSV_COLUMNS[:6]}
    for paper in comparison.papers:
        for label, row in comparison.methods:
            for column in comparison.columns:
                score = cell(row, column) if row is not None else None
                theirs = paper.values.get((label, column))
                if score is None and theirs is None:
                    continue
                yield {
                    **where,
                    "method": label,
                    "domain": column,
                    "round": row.round if row is not None and row.runs else None,
                    "measured_percent": percent(row, column) if row is not None else None,
                    "measured_std": 100 * score.std if score is not None and score.std is not None else None,
                    "n_seeds": score.n if score is not None else 0,
                    "paper_dataset": paper.dataset,
                    "paper_backbone": paper.backbone,
                    "paper_percent": theirs.value_percent if theirs else None,
                    "paper_std": theirs.std if theirs else None,
                    "difference": comparison.difference(label, row, column),
                    "source": theirs.source if theirs else None,
                }


def to_json(comparisons: Sequence[Comparison]) -> str:
    """The rows of the CSV under their leaderboard, why they may not be compared, and the two orders."""
    found = []
    for comparison in comparisons:
        board = {name: getattr(comparison.board, name) for name in CSV_COLUMNS[:6]}
        rows = [{k: v for k, v in record.items() if k not in board} for record in _records(comparison)]
        orders = [
            {"paper_dataset": paper.dataset, "paper_backbone": paper.backbone, **vars(both)}
            for paper in comparison.papers
            if (both := order(comparison, paper))
        ]
        found.append(
            {
                **board,
                "at": comparison.board.at,
                "comparable": not comparison.apart,
                "apart": comparison.apart or None,
                "rows": rows,
                "orders": orders,
                "notes": list(comparison.board.notes),
            }
        )
    return json.dumps(plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(comparisons: Sequence[Comparison]) -> str:
    """A pipe table for each comparison, and lists of what is to be known about it."""
    parts = []
    for comparison in comparisons:
        above = [subtitle(comparison.board), *filter(None, [warning(comparison)])]
        lines = [f"### {escape_markdown(heading(comparison.board))}"]
        lines += [line for text in above for line in ("", escape_markdown(text))]
        lines += ["", *piped_table(columns(comparison)), ""]
        lines += [f"- {escape_markdown(note)}" for note in (*remarks(comparison), *comparison.board.notes)]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, escape_markdown(" ".join(legend(comparisons)))]) + "\n"


def to_latex(comparisons: Sequence[Comparison]) -> str:
    """A booktabs table for each comparison; what is to be known about it as comments below."""
    lines = ["% \\usepackage{booktabs}"]
    for comparison in comparisons:
        caption = [heading(comparison.board), subtitle(comparison.board), *filter(None, [warning(comparison)])]
        lines += tabular(columns(comparison), "; ".join(caption))
        lines += [f"% {note}" for note in (*remarks(comparison), *comparison.board.notes)]
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Comparison]], str]] = {
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
    "latex": to_latex,
}
