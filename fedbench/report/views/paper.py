"""The view of a paper: what was measured next to what was printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas

from fedbench.report.frames import DASH, PLACE, Format, frame, number, page, with_attrs
from fedbench.report.leaderboards import Row, cell
from fedbench.report.paper import AVERAGE, Comparison, Paper, order, percent
from fedbench.report.run_scores import ABSENCES
from fedbench.report.views.leaderboard import subtitle
from fedbench.words import counted

# *_percent and difference are in percent and points; difference is empty where the two are not comparable.
COLUMNS = (
    *PLACE, "method", "domain", "round", "measured_percent", "measured_std", "n_seeds", "paper_dataset",
    "paper_backbone", "paper_percent", "paper_std", "difference", "source",
)  # fmt: skip


def paper(comparisons: Sequence[Comparison]) -> pandas.DataFrame:
    """A row for every method, domain and combination of the paper, with measured and printed numbers in percent."""
    return frame(
        [row for comparison in comparisons for row in _records(comparison)],
        COLUMNS,
        caption="Measured, and printed in a paper",
        pages=[_page(comparison) for comparison in comparisons],
        formats={"difference": Format()},
        legend=_legend(comparisons),
        metric=comparisons[0].board.metric,
    )


def side_by_side(comparisons: Sequence[Comparison]) -> pandas.DataFrame:
    """The same for people: measured, paper and difference as lines of each method, so that domains fit on a page."""
    rows = []
    for comparison in comparisons:
        lines = _averages(comparison) if comparison.apart else _by_domain(comparison)
        rows += [{**comparison.board.place._asdict(), **line} for line in lines]
    found = paper(comparisons)
    names = list(dict.fromkeys(name for row in rows for name in row if name not in (*PLACE, "method")))
    names.sort(key=lambda name: name != AVERAGE)
    made = frame(
        rows, (*PLACE, "method", *names), caption=found.attrs["caption"], formats=dict.fromkeys(names, Format())
    )
    return with_attrs(found, made, formats=made.attrs["formats"])


def _page(comparison: Comparison) -> dict[str, Any]:
    text = comparison.apart
    warning = f"{text[:1].upper()}{text[1:]}. Averages side by side, no difference." if text else ""
    orders = [
        {"paper_dataset": one.dataset, "paper_backbone": one.backbone, **both._asdict()}
        for one in comparison.papers
        if (both := order(comparison, one))
    ]
    return page(
        comparison.board.place,
        caption=subtitle(comparison.board),
        above=warning,
        warning=comparison.board.warning,
        notes=list(comparison.board.notes),
        remarks=_remarks(comparison),
        comparable=not comparison.apart,
        orders=orders,
    )


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """What is known of each number; None where there is none."""
    for one in comparison.papers:
        for label, row in comparison.methods:
            for column in comparison.columns:
                score = cell(row, column) if row is not None else None
                theirs = one.values.get((label, column))
                if score is None and theirs is None:
                    continue
                yield {
                    **comparison.board.place._asdict(),
                    "method": label,
                    "domain": column,
                    "round": row.round if row is not None and row.runs else None,
                    "measured_percent": percent(row, column) if row is not None else None,
                    "measured_std": 100 * score.std if score is not None and score.std is not None else None,
                    "n_seeds": len(row.runs) if row is not None and score is not None else 0,
                    "paper_dataset": one.dataset,
                    "paper_backbone": one.backbone,
                    "paper_percent": theirs.value_percent if theirs else None,
                    "paper_std": theirs.std if theirs else None,
                    "difference": comparison.difference(label, row, column),
                    "source": theirs.source if theirs else None,
                }


def _by_domain(comparison: Comparison) -> Iterator[dict[str, str]]:
    """Measured, paper and difference as three lines of each method."""
    (one,) = comparison.papers
    for label, row in comparison.methods:
        subtracted = {column: comparison.difference(label, row, column) for column in comparison.columns}
        yield {"method": label, **{column: _measured(row, column) for column in subtracted}}
        yield {"method": "  paper", **{column: _printed(one, label, column) for column in subtracted}}
        if any(value is not None for value in subtracted.values()):
            texts = {column: DASH if value is None else f"{value:+.1f}" for column, value in subtracted.items()}
            yield {"method": "  difference", **texts}


def _averages(comparison: Comparison) -> Iterator[dict[str, str]]:
    for label, row in comparison.methods:
        printed = zip(_titles(comparison), comparison.papers, strict=True)
        papers = {title: _printed(one, label, AVERAGE) for title, one in printed}
        yield {"method": label, "measured": _measured(row, AVERAGE), **papers}


def _titles(comparison: Comparison) -> list[str]:
    """`paper`, or `paper 1`, `paper 2` and so on."""
    count = len(comparison.papers)
    return ["paper"] if count == 1 else [f"paper {place}" for place in range(1, count + 1)]


def _measured(row: Row | None, column: str) -> str:
    """A dash where a method has not run, and the word that says why where it has no number."""
    score = None if row is None else cell(row, column)
    if row is None or score is None:
        return DASH if row is None or column != AVERAGE else (ABSENCES[row.status].short or DASH)
    spread = f" ±{number(score.std, row.metric)}" if column == AVERAGE and score.std is not None else ""
    return number(score.mean, row.metric) + spread


def _printed(one: Paper, label: str, column: str) -> str:
    """A number as the paper prints it, with at least two decimals."""
    row = one.values.get((label, column))
    if row is None:
        return DASH
    return _decimals(row.value_percent) + ("" if row.std is None else f" ±{_decimals(row.std)}")


def _decimals(value: float) -> str:
    return f"{value:.2f}" if round(value, 2) == value else str(value)


def _remarks(comparison: Comparison) -> list[str]:
    """Where the printed numbers are from, and in which order either side puts the methods."""
    found = [] if comparison.apart or not comparison.weights else [f"measured with the weights {comparison.weights}"]
    there = {row.method for row in comparison.board.rows}
    for title, one in zip(_titles(comparison), comparison.papers, strict=True):
        found.append(
            "; ".join(
                [
                    f"{title}: {one.dataset} with {one.backbone}",
                    *dict.fromkeys(row.source for row in one.values.values() if row.source),
                ]
            )
        )
        # The paper may score a second output, `fedavg/local` of `fedavg`.
        seconds = [(label, label.rpartition("/")[0]) for label in one.methods]
        found += [f"{title} scores {label}, not {method}" for label, method in seconds if method in there - {label}]
    for title, one in zip(_titles(comparison), comparison.papers, strict=True):
        if (both := order(comparison, one)) is not None:
            found.append(f"order, measured: {in_order(both.measured)}")
            swapped = f"{both.swapped} of {counted(both.pairs, 'pair')} swapped"
            found.append(f"order, {title}: {in_order(both.paper)}; {swapped}")
    return list(dict.fromkeys(found))  # the measured order once, where the papers have the same methods


def in_order(ranks: Sequence[Sequence[str]]) -> str:
    """`alllarge > fedra = depthfl > allsmall`."""
    return " > ".join(" = ".join(names) for names in ranks)


def _legend(comparisons: Sequence[Comparison]) -> list[str]:
    found = ["order: by average, over the methods that both have; pairs that are equal on either side are left out."]
    if any(not comparison.apart for comparison in comparisons):
        found.insert(0, "difference: measured minus paper, in points.")
    return found
