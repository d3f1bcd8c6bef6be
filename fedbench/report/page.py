"""Other views of leaderboards, as captioned tables: for a terminal, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.report.columns import Column
from fedbench.report.text import escape_markdown, markdown_legend, piped_table, tabular

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Sheet:
    """Tables of one leaderboard, each with its caption, and the notes below them."""

    heading: str
    tables: Sequence[tuple[str, Sequence[Column]]]
    notes: Sequence[str] = ()


def show(sheets: Sequence[Sheet], legend: Sequence[str], console: Console) -> None:
    """Print every sheet, and once at the end what the columns mean."""
    from rich.text import Text

    from fedbench.report.terminal import indented, pages, table

    for sheet in sheets:
        console.print(Text(sheet.heading, style="bold"))
        for caption, found in sheet.tables:
            console.print(Text(caption, style="dim"))
            for page in pages(found, console.width):
                console.print(table(page, [False] * len(found[0].cells), console))
                console.print()
        for note in sheet.notes:
            console.print(indented(note, "yellow"))
        if sheet.notes:
            console.print()
    for sentence in legend:
        console.print(indented(sentence, "dim"))


def to_markdown(sheets: Sequence[Sheet], legend: Sequence[str]) -> str:
    """A pipe table for each caption; the notes as a list."""
    parts = []
    for sheet in sheets:
        lines = [f"### {escape_markdown(sheet.heading)}"]
        for caption, found in sheet.tables:
            lines += ["", escape_markdown(caption), "", *piped_table(found)]
        if sheet.notes:
            lines += ["", *(f"- {escape_markdown(note)}" for note in sheet.notes)]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, markdown_legend(legend)]) + "\n"


def to_latex(sheets: Sequence[Sheet], legend: Sequence[str]) -> str:
    """A booktabs table for each caption; notes and legend as comments."""
    lines = ["% \\usepackage{booktabs}"]
    for sheet in sheets:
        for caption, found in sheet.tables:
            lines += tabular(found, f"{sheet.heading}; {caption}")
        lines += [f"% {note}" for note in sheet.notes]
    return "\n".join([*lines, *(f"% {sentence}" for sentence in legend)]) + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Sheet], Sequence[str]], str]] = {
    "markdown": to_markdown,
    "latex": to_latex,
}
