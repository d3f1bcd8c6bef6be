"""Comparisons with a paper in every format, and as records for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fedbench.report.board import cell
from fedbench.report.headings import Place
from fedbench.report.page import View
from fedbench.report.paper.columns import legend, page_of
from fedbench.report.paper.comparison import Comparison, percent
from fedbench.report.paper.order import order
from fedbench.report.records import csv_text, json_text

# *_percent and difference are in percent and points; difference is empty where the two are not comparable.
CSV_COLUMNS = (
    *Place._fields, "method", "domain", "round", "measured_percent", "measured_std", "n_seeds",
    "paper_dataset", "paper_backbone", "paper_percent", "paper_std", "difference", "source",
)  # fmt: skip


def view(comparisons: Sequence[Comparison]) -> View:
    """Comparisons in every format."""
    pages = [page_of(comparison) for comparison in comparisons]
    return View(pages, legend(comparisons), partial(to_csv, comparisons), partial(to_json, comparisons))


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """A row for every method, domain and combination of the paper, then its average."""
    records = (record for comparison in comparisons for record in _records(comparison))
    return csv_text(CSV_COLUMNS, ([record[name] for name in CSV_COLUMNS] for record in records))


def _records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """What is known of each number; None where there is none."""
    where = comparison.board.place._asdict()
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
        board = comparison.board.place._asdict()
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
    return json_text(found)
