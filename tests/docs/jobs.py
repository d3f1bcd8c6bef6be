"""The job of a cell that ends at once."""

from __future__ import annotations

from pathlib import Path

from fedbench.runs.plan import Cell


def job(folder: Path) -> dict:
    """A cell that cannot run, for its configuration is empty: it ends at once, with a whole manifest."""
    manifest = {**Cell("0" * 12, {}, {}, {}, []).manifest(), "git": None}
    return {"folder": str(folder), "manifest": manifest, "device": "cpu", "plugins": []}
