"""Frames as text: Markdown and LaTeX for papers, CSV and JSON for programs, HTML for notebooks."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedbench.report.frames import Frame, is_blank, lists
from fedbench.report.layout import laid_out
from fedbench.report.page import Column, Shown, Table, View
from fedbench.words import visible


def render(found: Frame | View, format: str) -> str:
    """The text in one of FORMATS, ending with a line break."""
    if format in ("csv", "json"):
        frame = found.frame if isinstance(found, View) else found
        return to_csv(frame) if format == "csv" else to_json(frame)
    return FORMATS[format](found if isinstance(found, View) else laid_out(found, format))


def to_csv(found: Frame) -> str:
    """The rows of a frame; lists are joined by semicolons, blanks are empty, columns of dictionaries left out."""
    flat = found.copy()
    for name, cells in lists(found).items():
        if any(isinstance(cell, dict) for cell in cells):
            del flat[name]
        elif any(isinstance(cell, list | tuple) for cell in cells):
            flat[name] = [";".join(map(str, cell)) if isinstance(cell, list | tuple) else cell for cell in cells]
    return str(flat.to_csv(index=False, lineterminator="\n"))


def to_json(found: Frame) -> str:
    """What a frame says of itself, then its rows as objects in fractions, bytes, FLOPs and seconds; blanks are null."""
    about = {k: v for k, v in found.attrs.items() if k not in ("by", "pages", "formats", "columns", "parts", "dashes")}
    told = [
        {**dict(zip(found.attrs["by"], one["key"], strict=True)), **{k: v for k, v in one.items() if k != "key"}}
        for one in found.attrs["pages"]
    ]
    return json_text({**about, "tables": told, "rows": found.to_dict("records")})


def json_text(found: Any) -> str:
    """A document that ends with a line break; what is not a finite number becomes null."""
    return json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if is_blank(value) and value != "" else value


def to_markdown(view: View) -> str:
    """A pipe table for each caption; remarks, notes and sources as lists."""
    parts = [f"## {_escape_markdown(view.shared)}"] if view.shared else []
    for page in view.pages:
        lines = [f"### {_escape_markdown(page.title)}"]
        for place, table in enumerate(page.tables):
            for text in filter(None, (table.caption, page.above if not place else "", table.warning)):
                lines += ["", _escape_markdown(text)]
            lines += ["", *_piped_table(table.columns)]
        if told := (*page.remarks, *page.notes):
            lines += ["", *(f"- {_escape_markdown(note)}" for note in told)]
        parts.append("\n".join(lines))
    sources = "\n".join(f"- {_escape_markdown(source)}" for source in view.sources)
    legend = " ".join(map(_escape_markdown, view.legend))
    return "\n\n".join([*parts, legend, *([f"Sources:\n\n{sources}"] if sources else [])]) + "\n"


def _piped_table(columns: Sequence[Column]) -> list[str]:
    lines = [_piped([_escape_markdown(column.title) for column in columns])]
    lines.append(_piped([":--" if column.part == "name" or column.left else "--:" for column in columns]))
    rows = range(len(columns[0].cells))
    return lines + [_piped([_markdown(c.cells[i], c.bold == i) for c in columns]) for i in rows]


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    """Text on one line without what Markdown would read as its own."""
    return "".join(f"\\{c}" if c in "\\|*_`<[]" else c for c in visible(text)).replace("\n", " ")


def _markdown(cell: Shown, bold: bool) -> str:
    text = _escape_markdown(cell.text)
    return (f"**{text}**" if bold else text) + (f" {cell.spread}" if cell.spread else "")


LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
    "±": r"$\pm$", "Γ": r"$\Gamma$", "·": r"$\cdot$", "–": "--", "*": r"$^{*}$", "×": r"$\times$", "…": r"\ldots{}",
}  # fmt: skip


def to_latex(view: View) -> str:
    """A booktabs table for each caption, scores, gaps and costs apart; remarks, notes and sources are comments."""
    lines = ["% \\usepackage{booktabs,adjustbox}"]
    for page in view.pages:
        for table in page.tables:
            for columns, *told in _parts(table):
                caption = "; ".join(filter(None, (view.shared, page.title, *told)))
                lines += _tabular(columns, caption, table.apart)
        lines += [f"% {note}" for note in (*filter(None, [page.above]), *page.remarks, *page.notes)]
    return "\n".join([*lines, *(f"% {sentence}" for sentence in (*view.legend, *view.sources))]) + "\n"


def _parts(table: Table) -> Iterator[tuple[Sequence[Column], str, str]]:
    """Scores, gaps, costs and domains as separate tables, each with the names; the first has caption and warning."""
    names = [column for column in table.columns if column.part == "name"]
    parts = dict.fromkeys(column.part for column in table.columns if column.part != "name")
    for place, part in enumerate(parts):
        columns = [*names, *(column for column in table.columns if column.part == part)]
        yield (columns, table.caption, table.warning) if not place else (columns, part, "")


def _tabular(columns: Sequence[Column], caption: str, apart: int) -> list[str]:
    """The lines of a LaTeX table with booktabs' rules, made smaller where it is wider than the text."""
    rows = []
    for i in range(len(columns[0].cells)):
        rows.append(" & ".join(_latex(column.cells[i], column.bold == i) for column in columns) + r" \\")
        rows += [r"\midrule"] * (i + 1 == apart)
    sides = "".join("l" if column.left or column.part == "name" else "r" for column in columns)
    return [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(caption)}}}",
        r"\begin{adjustbox}{max width=\linewidth}",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        " & ".join(_escape_latex(column.title) for column in columns) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{adjustbox}",
        r"\end{table}",
        "",
    ]


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in visible(text))


def _latex(cell: Shown, bold: bool) -> str:
    """A minus sign is set as one: -3.4 becomes $-$3.4."""
    text = re.sub(r"(?<!\S)-(?=\d)", "$-$", _escape_latex(cell.text))
    text = rf"\textbf{{{text}}}" if bold else text
    return f"{text} {_escape_latex(cell.spread)}" if cell.spread else text


def to_html(found: Frame) -> str:
    """Tables for a notebook, with their captions and the sentences around them."""
    view, lines = laid_out(found, "html"), []
    for page in view.pages:
        lines.append(f"<h4>{_escape_html(' · '.join(filter(None, (view.shared, page.title))))}</h4>")
        lines += [f"<p>{_escape_html(page.above)}</p>"] if page.above else []
        for table in page.tables:
            lines += [f"<p>{_escape_html(table.warning)}</p>"] if table.warning else []
            lines += ["<table>", f"<caption>{_escape_html(table.caption)}</caption>"]
            lines.append(_html_row("th", [column.title for column in table.columns], table.columns))
            for i in range(len(table.columns[0].cells)):
                cells = [f"{c.cells[i].text} {c.cells[i].spread}".strip() for c in table.columns]
                lines.append(_html_row("td", cells, table.columns, i))
            lines.append("</table>")
        lines += [f"<p><small>{_escape_html(note)}</small></p>" for note in (*page.remarks, *page.notes)]
    return "\n".join([*lines, *(f"<p><small>{_escape_html(text)}</small></p>" for text in view.legend)])


def _html_row(tag: str, cells: Sequence[str], columns: Sequence[Column], row: int | None = None) -> str:
    found = []
    for cell, column in zip(cells, columns, strict=True):
        side = "left" if column.left or column.part == "name" else "right"
        text = _escape_html(cell)
        text = f"<b>{text}</b>" if row is not None and column.bold == row else text
        found.append(f'<{tag} style="text-align: {side}">{text}</{tag}>')
    return f"<tr>{''.join(found)}</tr>"


def _escape_html(text: str) -> str:
    return html.escape(visible(text))


FORMATS: Mapping[str, Callable[[View], str]] = {"markdown": to_markdown, "latex": to_latex}
