"""Renderers of frames: a terminal, Markdown and LaTeX for papers, CSV and JSON for programs, HTML for notebooks."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.report.frames import cells, is_blank, records
from fedbench.report.layout import Column, Page, Shown, Table, laid_out
from fedbench.report.paper import bibliography, listed
from fedbench.words import escape_json, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

GAP = 2  # blanks between two columns, one of which is the rule's
TITLE = 8  # letters of a title that stay on one line, before it is folded
NAME = 30  # letters of a name that stay on one line, where a terminal is narrow
WIDE = 100  # letters of a sentence on one line
LABELLED = 6  # words of a caption that are the label of a LaTeX table


def style(found: pandas.DataFrame, form: str) -> str:
    """Any frame as text in one of FORMATS, ending with a line break."""
    return FORMATS[form](found)


def to_csv(found: pandas.DataFrame) -> str:
    """The rows of a frame; lists are joined by semicolons, blanks are empty, columns of dictionaries left out."""
    flat = {name: column for name, column in cells(found).items() if not any(isinstance(x, dict) for x in column)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_escape_csv, flat))
    writer.writerows([_flat(cell) for cell in row] for row in zip(*flat.values(), strict=True))
    return text.getvalue()


def _flat(cell: Any) -> Any:
    if isinstance(cell, list | tuple):
        return _escape_csv(";".join(map(str, cell)))
    if isinstance(cell, str):
        return _escape_csv(cell)
    return "" if is_blank(cell) else cell


def _escape_csv(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe comes before what begins like one."""
    text = visible(text)
    return f"'{text}" if text.lstrip()[:1] in FORMULA else text


def to_json(found: pandas.DataFrame) -> str:
    """What a frame says of itself, then its rows as objects in fractions, bytes, FLOPs and seconds; blanks are null."""
    about = {k: v for k, v in found.attrs.items() if k not in ("by", "pages", "formats", "columns", "parts", "dashes")}
    tables = [
        {**dict(zip(found.attrs["by"], one["key"], strict=True)), **{k: v for k, v in one.items() if k != "key"}}
        for one in found.attrs["pages"]
    ]
    return json_text({**about, "tables": tables, "rows": records(found)})


def json_text(found: Any) -> str:
    """A document that ends with a line break; what is not a finite number becomes null."""
    return escape_json(json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if is_blank(value) and value != "" else value


def to_markdown(found: pandas.DataFrame) -> str:
    """A pipe table for each caption; remarks, notes and sources as lists."""
    pages, shared = laid_out(found)
    parts = [f"## {_escape_markdown(shared)}"] if shared else []
    for page in pages:
        lines = [f"### {_escape_markdown(page.title)}"]
        for position, table in enumerate(page.tables):
            first = (page.above, page.warning) if not position else ()
            for text in filter(None, (table.caption, *first)):
                lines += ["", _escape_markdown(text)]
            lines += ["", *_piped_table(table.columns)]
        if below := (*page.remarks, *page.notes):
            lines += ["", *(f"- {_escape_markdown(note)}" for note in below)]
        parts.append("\n".join(lines))
    sources = "\n".join(f"- {_escape_markdown(source)}" for source in listed(found.attrs.get("papers", {})))
    legend = " ".join(map(_escape_markdown, found.attrs["legend"]))
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


FORMULA = tuple("=+-@")  # with which a spreadsheet has formulas begin
LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_",
    "%": r"\%", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "ε": r"$\varepsilon$",
    "±": r"$\pm$", "Γ": r"$\Gamma$", "·": r"$\cdot$", "–": "--", "*": r"$^{*}$", "×": r"$\times$", "…": r"\ldots{}",
}  # fmt: skip


def to_latex(found: pandas.DataFrame) -> str:
    """A booktabs table for each caption, scores, gaps and costs apart; remarks, notes and sources are comments."""
    pages, shared = laid_out(found)
    lines, labels = ["% \\usepackage{booktabs,adjustbox}"], set[str]()
    view = found.attrs.get("view", "boards")
    prefix = "tab:" if view == "boards" else f"tab:{view}-"  # a paper may have tables of several views
    for page in pages:
        for table in page.tables:
            for part, (columns, text) in enumerate(_parts(table)):
                text = "; ".join(filter(None, (text, page.warning if table is page.tables[0] and not part else "")))
                caption = "; ".join(filter(None, (shared, page.title, text)))
                lines += _tabular(columns, caption, table.ceilings, prefix, labels)
        lines += map(_comment_of_latex, (*filter(None, [page.above]), *page.remarks, *page.notes))
    below = (*found.attrs["legend"], *listed(found.attrs.get("papers", {})))
    return "\n".join([*lines, *map(_comment_of_latex, below)]) + "\n"


def to_bibtex(found: pandas.DataFrame) -> str:
    """The papers that the methods of a table are from. Raises: UserError for a table of other things than methods."""
    return bibliography(found.attrs.get("papers", {}))


def _parts(table: Table) -> Iterator[tuple[Sequence[Column], str]]:
    """Scores, gaps, costs and domains as separate tables, each with the names; the first has the caption."""
    names = [column for column in table.columns if column.part == "name"]
    parts = dict.fromkeys(column.part for column in table.columns if column.part != "name")
    for position, part in enumerate(parts):
        columns = [*names, *(column for column in table.columns if column.part == part)]
        yield columns, part if position else table.caption


def _tabular(columns: Sequence[Column], caption: str, ceilings: int, prefix: str, labels: set[str]) -> list[str]:
    """The lines of a LaTeX table with booktabs' rules, made smaller where it is wider than the text. labels: those that
    are taken, to which its own, which begins with `prefix`, is added."""
    title, _, part = caption.lower().partition(";")
    words = re.findall(r"[a-z0-9]+", title)[:LABELLED] + re.findall(r"^ [a-z]+$", part)
    name = prefix + "-".join(map(str.strip, words))
    label = next(one for one in chain([name], (f"{name}-{n}" for n in count(2))) if one not in labels)
    labels.add(label)
    rows = []
    for i in range(len(columns[0].cells)):
        rows.append(" & ".join(_latex(column.cells[i], column.bold == i) for column in columns) + r" \\")
        rows += [r"\midrule"] * (i + 1 == ceilings)
    sides = "".join("l" if column.left or column.part == "name" else "r" for column in columns)
    return [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(caption)}}}",
        rf"\label{{{label}}}",
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
    """Text that LaTeX sets as it is, in a cell or a caption: an empty line would end either."""
    return "".join(LATEX.get(c, c) for c in " ".join(visible(text).splitlines()))


def _comment_of_latex(text: str) -> str:
    """A comment, which a line break in a name must not end."""
    return f"% {' '.join(visible(text).splitlines())}"


def _latex(cell: Shown, bold: bool) -> str:
    """A minus sign is set as one: -3.4 becomes $-$3.4."""
    text = re.sub(r"(?<!\S)-(?=\d)", "$-$", _escape_latex(cell.text))
    text = rf"\textbf{{{text}}}" if bold else text
    return f"{text} {_escape_latex(cell.spread)}" if cell.spread else text


def to_html(found: pandas.DataFrame) -> str:
    """Tables for a notebook, with their captions and the sentences around them."""
    (pages, shared), lines = laid_out(found), []
    for page in pages:
        lines.append(f"<h4>{_escape_html(' · '.join(filter(None, (shared, page.title))))}</h4>")
        lines += [f"<p>{_escape_html(text)}</p>" for text in (page.above, page.warning) if text]
        for table in page.tables:
            lines += ["<table>", f"<caption>{_escape_html(table.caption)}</caption>"]
            lines.append(_html_row("th", [column.title for column in table.columns], table.columns))
            for i in range(len(table)):
                row = [f"{c.cells[i].text} {c.cells[i].spread}".strip() for c in table.columns]
                lines.append(_html_row("td", row, table.columns, i))
            lines.append("</table>")
        lines += [f"<p><small>{_escape_html(note)}</small></p>" for note in (*page.remarks, *page.notes)]
    return "\n".join([*lines, *(f"<p><small>{_escape_html(text)}</small></p>" for text in found.attrs["legend"])])


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


FORMATS: Mapping[str, Callable[[pandas.DataFrame], str]] = {
    "csv": to_csv, "json": to_json, "markdown": to_markdown, "latex": to_latex, "html": to_html,
    "bibtex": to_bibtex,
}  # fmt: skip


# On a terminal: in as many tables as its width needs; readable without colour


def show(found: pandas.DataFrame, console: Console) -> None:
    """Print every table with the sentences around it, and once at the end what the columns mean."""
    from rich.text import Text

    pages, shared = laid_out(found)
    if shared:
        console.print(Text(shared, style="bold"))
        console.print()
    for page in pages:
        _show_page(page, console)
    for sentence in found.attrs["legend"]:
        _tell(sentence, "dim", console)


def _show_page(page: Page, console: Console) -> None:
    from rich.text import Text

    console.print(Text(page.title, style="bold"))
    for position, table in enumerate(page.tables):
        if table.caption:
            console.print(Text(table.caption, style="dim"))
        if page.above and not position:
            console.print(Text(page.above), width=min(console.width, WIDE))
        if page.warning and not position:
            console.print(Text(page.warning, style="yellow"), width=min(console.width, WIDE))
        for columns in _fitting(table.columns, console.width):
            console.print(_grid(table, columns, console))
            console.print()
    for note in page.remarks:
        _tell(note, "dim", console)
    for note in page.notes:
        _tell(note, "yellow", console)
    if page.remarks or page.notes:
        console.print()


def _tell(text: str, style: str, console: Console) -> None:
    """A sentence below a table."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text, style=style), (0, 0, 0, 1), expand=False), width=min(console.width, WIDE))


def _fitting(found: Sequence[Column], width: int) -> list[list[Column]]:
    """The columns in tables that fit, each with the names: parts of a kind stay together as long as they can."""
    names = [column for column in found if column.part == "name"]
    rest = [column for column in found if column.part != "name"]
    taken = sum(_width(column, width) + GAP for column in names) - GAP
    if taken + sum(_width(column, width) + GAP for column in rest) <= width:
        return [[*names, *rest]]
    tables: list[list[Column]] = []
    for part in dict.fromkeys(column.part for column in rest):
        own = [column for column in rest if column.part == part]
        size = sum(_width(column, width) + GAP for column in own)
        if tables and sum(_width(column, width) + GAP for column in tables[-1]) + taken + size <= width:
            tables[-1] += own
            continue
        for position, column in enumerate(own):
            there = taken + sum(_width(one, width) + GAP for one in tables[-1]) if tables and position else width
            if there + _width(column, width) + GAP > width:
                tables.append([])
            tables[-1].append(column)
    return [[*names, *columns] for columns in tables]


def _width(column: Column, width: int) -> int:
    """How wide a column is: its cells whole; a long title is folded, and on a narrow terminal a long name."""
    widest = max((len(_padded(column, cell)) for cell in column.cells), default=0)
    if column.part == "name" or column.left:
        most = max(NAME, width // 3)
        return max(min(widest, most), min(len(column.title), most))
    title = len(column.title) if len(column.title) <= TITLE else max(TITLE, *map(len, column.title.split()))
    return max(widest, min(title, max(widest, 2 * TITLE)))


def _padded(column: Column, cell: Shown) -> str:
    """A cell with its spread, or as many blanks where others have one: numbers line up."""
    if not cell.text or cell.text.isalpha():
        return cell.text
    spread = max(len(one.spread) for one in column.cells)
    return f"{cell.text} {cell.spread:>{spread}}" if spread else cell.text


def _grid(table: Table, columns: Sequence[Column], console: Console) -> Grid:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    wide = sum(max(len(c.title), _width(c, console.width)) + GAP for c in columns) <= console.width
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, GAP - 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        title = "G*" if column.title == "Γ*" and not console.encoding.startswith("utf") else column.title
        size = _width(column, console.width)
        grid.add_column(
            Text(title),  # a str would be read as rich's markup, and a domain may be called "[/x]"
            justify="left" if column.part == "name" or column.left else "right",
            width=max(size, len(title)) if wide else size,
            overflow="fold",
        )
    others = [column for column in columns if column.part != "name"]
    partial = len(columns) < len(table.columns)
    for i in range(len(table)):
        if partial and not any(column.cells[i].text for column in others):
            continue
        line = [Text(_padded(c, c.cells[i]), style="bold" if c.bold == i else "") for c in columns]
        grid.add_row(*line, style="dim" if i in table.faint else "", end_section=i + 1 == table.ceilings)
    return grid
