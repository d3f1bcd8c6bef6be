"""What cells will cost, known before they run: computed from shapes once, then read from disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedbench.disk import remembered
from fedbench.errors import NotApplicable, UserError, told
from fedbench.registry.assets import Assets

if TYPE_CHECKING:
    from fedbench.cell.prices import Prices

Config = Mapping[str, Any]


class Totals:
    """The totals of the cells of a suite; what some of them have in common is computed once."""

    def __init__(self, assets: Assets) -> None:
        self.assets = assets
        self._prices: Prices | None = None

    def of(self, cell_id: str, config: Config) -> dict[str, Any]:
        """What a cell will cost, see `Ledger.totals`; or the reason why not, under `not_applicable`, or under `unknown`
        where a plugin broke. Raises UserError."""
        try:
            stamp = self.assets.stamp("method", config["method"])
            return remembered("totals", [cell_id, stamp], lambda: self._computed(config))
        except UserError:
            raise
        except Exception as error:  # of a plugin; the other cells' costs are wanted all the same
            return {"unknown": told(error)}

    def _computed(self, config: Config) -> dict[str, Any]:
        if self._prices is None:
            from fedbench.cell.prices import Prices  # `fedbench plan` starts without torch, and may do without

            self._prices = Prices(self.assets)
        try:
            return self._prices.totals(config)
        except NotApplicable as reason:
            return {"not_applicable": str(reason)}


def totals_of(assets: Assets, cell_id: str, config: Config) -> dict[str, Any]:
    """Of one cell alone, see `Totals.of`."""
    return Totals(assets).of(cell_id, config)
