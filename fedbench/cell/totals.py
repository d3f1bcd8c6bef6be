"""What cells will cost, known before they run: computed from shapes once, then read from disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench import machine
from fedbench.cell.ahead import Copy
from fedbench.cell.alike import of_one_method
from fedbench.disk import cache_file, keep, kept
from fedbench.errors import Broke, NotApplicable, UserError, told
from fedbench.registry.assets import Assets

if TYPE_CHECKING:
    from fedbench.cell.prices import Prices

Config = Mapping[str, Any]


class Totals:
    """The totals of the cells of a suite; what some of them have in common is computed once.

    Cells of one method have a file of the cache together, which is written once another method is asked for, and by
    `close`, which the end of a `with` block calls: ask for cells of a method one after the other.

    coming: the cells, with their ids, that will be asked for in this order. Where that takes long, a copy of this
    process begins with the last method, on a core that would be idle, and what it finds is read from the cache.
    """

    def __init__(self, assets: Assets, coming: Sequence[tuple[str, Config]] = ()) -> None:
        self.assets, self.coming = assets, coming
        self._copy = Copy()
        self._prices: Prices | None = None
        self._file: Path | None = None
        self._files: dict[str, Path] = {}  # by what the cells of a method have in common
        self._known: dict[str, Any] = {}  # what is in that file, by the ids of cells
        self._new: dict[str, Any] = {}

    def __enter__(self) -> Totals:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._copy.end()
        finally:
            self.close()

    def of(self, cell_id: str, config: Config) -> dict[str, Any]:
        """What a cell will cost, see `Ledger.totals`; or the reason why not, under `not_applicable`, or under `unknown`
        where a plugin needs values, which a run has. Raises UserError, Broke where a plugin does."""
        try:
            self._open(self._file_of(config))
            if cell_id not in self._known:
                self._share_out(config)
                self._known[cell_id] = self._new[cell_id] = self._computed(config)
            found: dict[str, Any] = self._known[cell_id]
            return found
        except UserError:
            raise
        except Exception as error:  # of a plugin
            if _lacks_values(error):
                return {"unknown": told(error)}
            raise Broke(told(error) + self._blamed(config, error)) from error

    def _blamed(self, config: Config, error: Exception) -> str:
        """Whose plugin that is likely to be, in the words of a cell that fails."""
        from fedbench.cell.watched import Watched  # comes with torch

        return Watched(self.assets.registry, config).blame(error)

    def close(self) -> None:
        """Write what is new, beside what others have written meanwhile."""
        if self._file and self._new:
            keep(self._file, _there(self._file) | self._new)
        self._file, self._known, self._new = None, {}, {}

    def _open(self, file: Path) -> None:
        if file != self._file:
            self.close()
            self._file, self._known = file, _there(file)

    def _share_out(self, config: Config) -> None:
        """Let a copy of this process help where there are other methods to come."""
        if self.coming and self._copy.due() and of_one_method(self.coming[-1][1]) != of_one_method(config):
            self._copy.begin(self._backwards)

    def _backwards(self, wanted: Callable[[], bool]) -> None:
        """In the copy: from the last method to the first, and of each method as ever. A cell about which something was
        said is left to the process that is heard."""
        methods = [list(cells) for _, cells in groupby(self.coming, lambda cell: of_one_method(cell[1]))]
        self.coming = ()
        for cell_id, config in (cell for cells in reversed(methods) for cell in cells):
            if not wanted():
                return
            with suppress(UserError), warnings.catch_warnings(record=True) as said:  # told where this cell is asked for
                self.of(cell_id, config)
            if said:
                self._new.pop(cell_id, None)
        self.close()

    def _file_of(self, config: Config) -> Path:
        common = of_one_method(config)
        if common not in self._files:
            self._files[common] = cache_file("totals", [common, self._stamp(config)])
        return self._files[common]

    def _stamp(self, config: Config) -> list[Any]:
        return self.assets.stamp("method", config["method"])

    def _computed(self, config: Config) -> dict[str, Any]:
        if self._prices is None:
            from fedbench.cell.prices import Prices  # `fedbench plan` starts without torch, and may do without

            machine.leave_alone()
            self._prices = Prices(self.assets)
        try:
            return self._prices.totals(config)
        except NotApplicable as reason:
            return {"not_applicable": str(reason)}


def _lacks_values(error: Exception) -> bool:
    """Whether torch has raised it because tensors are but shapes here; it says so in many ways."""
    return isinstance(error, RuntimeError | TypeError) and "meta" in str(error).lower()


def _there(file: Path) -> dict[str, Any]:
    found = kept(file)
    return found if isinstance(found, dict) else {}
