"""What one cell will cost, as a plan has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.cell.totals import Totals
from fedbench.registry.assets import Assets


def totals_of(assets: Assets, cell_id: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """See `Totals.of`."""
    with Totals(assets) as known:
        return known.of(cell_id, config)
