"""A view's pages as plain data, and as the texts that a reader may take along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbench.report.page import Column, Page, Table, View
from fedbench.report.text import render

TEXTS = ("markdown", "latex", "csv")


def plain(page: Page) -> dict[str, Any]:
    """A page as JSON has it: what `fedbench compare` shows, cell by cell."""
    return {
        "title": page.title,
        "tables": [_table(table) for table in page.tables],
        "remarks": list(page.remarks),
        "notes": list(page.notes),
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "caption": table.caption,
        "warning": table.warning,
        "faint": sorted(table.faint),
        "columns": columns(table.columns),
    }


def columns(found: Sequence[Column]) -> list[dict[str, Any]]:
    """Each cell is its text, or [text, spread]."""
    return [
        {
            "title": column.title,
            "part": column.part,
            "left": column.left or column.part == "name",
            "cells": [[c.text, c.spread] if c.spread else c.text for c in column.cells],
        }
        for column in found
    ]


def texts(view: View, sources: Sequence[str] = ()) -> Mapping[str, str]:
    """A view in the formats that papers and programs take in, by `fedbench.report.text`."""
    cited = replace(view, sources=sources)
    return {form: render(cited if form != "csv" else view, form) for form in TEXTS}
