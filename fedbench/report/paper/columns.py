"""A comparison as columns of text and the sentences around them, the same for every format that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbench.report.absences import ABSENCES, DASH
from fedbench.report.board import Row, cell
from fedbench.report.columns import SPREAD, heading, number, scored, subtitle
from fedbench.report.page import Column, Page, Shown, Table
from fedbench.report.paper.comparison import AVERAGE, Comparison, Paper
from fedbench.report.paper.order import order

PERCENT: dict[str, Any] = scored("accuracy")  # what a paper's numbers are compared with


def page_of(comparison: Comparison) -> Page:
    """A comparison as one table; what the paper says and how far it is away stand back."""
    found, board = columns(comparison), comparison.board
    faint = [i for i, name in enumerate(found[0].cells) if name.text.startswith(" ")]
    table = Table(found, subtitle(board), warning(comparison), faint)
    return Page(heading(board), [table], board.notes, remarks(comparison), place=board.place)


def columns(comparison: Comparison) -> list[Column]:
    """The name, then the scores: line by line where they are comparable, else averages column by column."""
    return _side_by_side(comparison) if comparison.apart else _one_below_the_other(comparison)


def _one_below_the_other(comparison: Comparison) -> list[Column]:
    """Measured, paper and difference as three lines of each method, so that six domains fit on a page."""
    (paper,) = comparison.papers
    names: list[Shown] = []
    scores: dict[str, list[Shown]] = {column: [] for column in comparison.columns}
    for label, row in comparison.methods:
        subtracted = {column: comparison.difference(label, row, column) for column in scores}
        names += [Shown(label), Shown("  paper")]
        for column, cells in scores.items():
            cells += [measured(row, column), printed(paper, label, column)]
        if any(value is not None for value in subtracted.values()):
            names.append(Shown("  difference"))
            for column, cells in scores.items():
                value = subtracted[column]
                points = None if value is None else value / 100
                cells.append(Shown(DASH if value is None else f"{value:+.1f}", value=points))
    columns = [Column(title, "score", cells, **PERCENT) for title, cells in scores.items()]
    return [Column("method", "name", names), *columns]


def _side_by_side(comparison: Comparison) -> list[Column]:
    names = [Shown(label) for label, _ in comparison.methods]
    found = [
        Column("method", "name", names),
        Column("measured", "score", [measured(row, AVERAGE) for _, row in comparison.methods], **PERCENT),
    ]
    for title, paper in zip(titles(comparison), comparison.papers, strict=True):
        cells = [printed(paper, label, AVERAGE) for label, _ in comparison.methods]
        found.append(Column(title, "score", cells, **PERCENT))
    return found


def titles(comparison: Comparison) -> list[str]:
    """`paper`, or `paper 1`, `paper 2` and so on."""
    count = len(comparison.papers)
    return ["paper"] if count == 1 else [f"paper {place}" for place in range(1, count + 1)]


def measured(row: Row | None, column: str) -> Shown:
    """A dash where a method has not run, and the word that says why where it has no number."""
    score = None if row is None else cell(row, column)
    if row is None or score is None:
        return Shown(DASH if row is None or column != AVERAGE else (ABSENCES[row.status].short or DASH))
    spread = SPREAD + number(score.std, row.metric) if column == AVERAGE and score.std is not None else ""
    return Shown(number(score.mean, row.metric), spread, score.mean)


def printed(paper: Paper, label: str, column: str) -> Shown:
    """A number as the paper prints it, with two decimals at least."""
    row = paper.values.get((label, column))
    if row is None:
        return Shown(DASH)
    return Shown(
        _decimals(row.value_percent), "" if row.std is None else SPREAD + _decimals(row.std), row.value_percent / 100
    )


def _decimals(value: float) -> str:
    return f"{value:.2f}" if round(value, 2) == value else str(value)


def warning(comparison: Comparison) -> str:
    """Why no difference is shown, as a sentence; empty where there is one."""
    text = comparison.apart
    return f"{text[:1].upper()}{text[1:]}. Averages side by side, no difference." if text else ""


def remarks(comparison: Comparison) -> list[str]:
    """Where the printed numbers are from, and in which order either side puts the methods."""
    found = [] if comparison.apart or not comparison.weights else [f"measured with the weights {comparison.weights}"]
    for title, paper in zip(titles(comparison), comparison.papers, strict=True):
        found.append("; ".join([f"{title}: {paper.dataset} with {paper.backbone}", *paper.sources]))
        found += [f"{title} scores {label}, not {method}" for label, method in paper_scores(comparison, paper)]
    for title, paper in zip(titles(comparison), comparison.papers, strict=True):
        if (both := order(comparison, paper)) is not None:
            found.append(f"order, measured: {in_order(both.measured)}")
            found.append(f"order, {title}: {in_order(both.paper)}; {both.swapped} of {_pairs(both.pairs)} swapped")
    return list(dict.fromkeys(found))  # the measured order once, where the papers have the same methods


def paper_scores(comparison: Comparison, paper: Paper) -> list[tuple[str, str]]:
    """The second outputs that the paper's numbers are of, and the methods whose they are: (fedavg/local, fedavg)."""
    there = {row.method for row in comparison.board.rows}
    return [(label, label.rpartition("/")[0]) for label in paper.methods if label.rpartition("/")[0] in there - {label}]


def in_order(ranks: Sequence[Sequence[str]]) -> str:
    """`alllarge > fedra = depthfl > allsmall`."""
    return " > ".join(" = ".join(names) for names in ranks)


def _pairs(count: int) -> str:
    return f"{count} pair{'' if count == 1 else 's'}"


def legend(comparisons: Sequence[Comparison]) -> list[str]:
    """What the words mean, once for all comparisons."""
    found = ["order: by average, over the methods that both have; pairs that read alike on either side are left out."]
    if any(not comparison.apart for comparison in comparisons):
        found.insert(0, "difference: measured minus paper, in points.")
    return found
