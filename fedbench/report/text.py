"""Views as text: for papers in Markdown and LaTeX, for other programs in CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from fedbench.report.page import Column, Shown, Table, View
from fedbench.words import visible


def render(view: View, format: str) -> str:
    """The text in one of FORMATS, ending with a line break."""
    return FORMATS[format](view)


def to_markdown(view: View) -> str:
    """A pipe table for each caption; remarks, notes and sources as lists."""
    parts = [f"## {_escape_markdown(view.shared)}"] if view.shared else []
    for page in view.pages:
        lines = [f"### {_escape_markdown(page.title)}"]
        for table in page.tables:
            for text in filter(None, (table.caption, table.warning)):
                lines += ["", _escape_markdown(text)]
            lines += ["", *_piped_table(table.columns)]
        if told := (*page.remarks, *page.notes):
            lines += ["", *(f"- {_escape_markdown(note)}" for note in told)]
        parts.append("\n".join(lines))
    sources = "\n".join(f"- {_escape_markdown(source)}" for source in view.sources)
    legend = view.between.join(map(_escape_markdown, view.legend))
    return "\n\n".join([*parts, legend, *([f"Sources:\n\n{sources}"] if sources else [])]) + "\n"


def _piped_table(columns: Sequence[Column]) -> list[str]:
    lines = [_piped([_escape_markdown(column.title) for column in columns])]
    lines.append(_piped([":--" if column.part == "name" or column.left else "--:" for column in columns]))
    return lines + [_piped([_markdown(column.cells[i]) for column in columns]) for i in range(len(columns[0].cells))]


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    """Text on one line without what Markdown would read as its own."""
    return "".join(f"\\{c}" if c in "\\|*_`<[]" else c for c in visible(text)).replace("\n", " ")


def _markdown(cell: Shown) -> str:
    return _escape_markdown(cell.text) + (f" {cell.spread}" if cell.spread else "")


LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
    "±": r"$\pm$", "Γ": r"$\Gamma$", "·": r"$\cdot$", "–": "--", "*": r"$^{*}$", "×": r"$\times$", "…": r"\ldots{}",
}  # fmt: skip


def to_latex(view: View) -> str:
    """A booktabs table for each caption; scores, gaps and costs apart. Remarks, notes and sources are comments."""
    lines = ["% \\usepackage{booktabs,adjustbox}"]
    for page in view.pages:
        for table in page.tables:
            for columns, *told in _halves(table):
                lines += _tabular(columns, "; ".join(filter(None, (view.shared, page.title, *told))))
        lines += [f"% {note}" for note in (*page.remarks, *page.notes)]
    return "\n".join([*lines, *(f"% {sentence}" for sentence in (*view.comments, *view.sources))]) + "\n"


def _halves(table: Table) -> Iterator[tuple[Sequence[Column], str, str]]:
    """Scores, gaps and costs as tables of their own, each with the names; the first has caption and warning."""
    name, *rest = table.columns
    parts = {part: [column for column in rest if column.part == part] for part in ("gap", "cost")}
    parts = {"score": [column for column in rest if column.part not in parts], **parts}
    first, *others = (part for part, columns in parts.items() if columns)
    yield [name, *parts[first]], table.caption, table.warning
    for part in others:
        yield [name, *parts[part]], part, ""


def _tabular(columns: Sequence[Column], caption: str) -> list[str]:
    """The lines of a LaTeX table with booktabs' rules, made smaller where it is wider than the text."""
    rows = range(len(columns[0].cells))
    return [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(caption)}}}",
        r"\begin{adjustbox}{max width=\linewidth}",
        rf"\begin{{tabular}}{{l{''.join('l' if column.left else 'r' for column in columns[1:])}}}",
        r"\toprule",
        " & ".join(_escape_latex(column.title) for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(_latex(column.cells[i]) for column in columns) + r" \\" for i in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table}",
        "",
    ]


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in visible(text))


def _latex(cell: Shown) -> str:
    """A minus sign is set as one: -3.4 becomes $-$3.4."""
    text = re.sub(r"(?<!\S)-(?=\d)", "$-$", _escape_latex(cell.text))
    return f"{text} {_escape_latex(cell.spread)}" if cell.spread else text


FORMATS: Mapping[str, Callable[[View], str]] = {
    "csv": lambda view: view.to_csv(),
    "json": lambda view: view.to_json(),
    "markdown": to_markdown,
    "latex": to_latex,
}
