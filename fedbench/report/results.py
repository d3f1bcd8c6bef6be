"""Results: what lies in results folders, with every view of it as a frame."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas

from fedbench.report.frames import Frame
from fedbench.report.grouping import select
from fedbench.report.render import to_html
from fedbench.report.views import view
from fedbench.results import Result, examine
from fedbench.results import load as load_cells
from fedbench.results.read import cells_frame, table_frame


class _List(list[Any]):
    """A list that pandas may copy with every slice at no cost; it is replaced, never changed."""

    def __deepcopy__(self, memo: object) -> _List:
        return self


class _Dict(dict[str, Any]):
    """The same for a dictionary."""

    def __deepcopy__(self, memo: object) -> _Dict:
        return self


class ResultFrame(pandas.DataFrame):
    """A DataFrame that a notebook shows as a table, with its caption.

    Attributes:
        attrs: `caption`, `metric`, `round` and `correction`; `legend`, a sentence for each column that needs one; `by`,
            the columns that tell its tables apart; `pages`, what stands around each table; `formats`, how columns are
            shown.
    """

    @property
    def _constructor(self) -> type[ResultFrame]:
        return ResultFrame

    @property
    def caption(self) -> str:
        return str(self.attrs.get("caption", ""))

    def _repr_html_(self) -> str:
        cells = self.astype(object).where(self.notna(), None).to_numpy().T.tolist()
        about: dict[Any, Any] = dict(self.attrs)
        return to_html(Frame(dict(zip(map(str, self.columns), cells, strict=True)), about))


def result_frame(found: Frame) -> ResultFrame:
    """A view as a DataFrame."""
    made = ResultFrame({name: _whole(cells) for name, cells in found.cells.items()}, columns=found.columns)
    kinds: dict[type, Any] = {list: _List, dict: _Dict}
    about: dict[Any, Any] = {name: kinds.get(type(fact), lambda it: it)(fact) for name, fact in found.attrs.items()}
    made.attrs = about
    return made


def _whole(cells: Sequence[Any]) -> Any:
    """Integers stay integers where some are missing, which pandas would make floats."""
    if None in cells and all(cell is None or type(cell) is int for cell in cells) and any(cells):
        return pandas.array(cells, dtype="Int64")
    return cells


class Results:
    """Everything under results folders, as pandas frames.

    Every view is a `ResultFrame`: a DataFrame with a caption, shown as a table in a notebook, whose `attrs` say
    metric, round and correction. Scores are fractions; costs are bytes, FLOPs, seconds and joules.

    Views take these options:

    - metric: what is compared, `accuracy` by default.
    - at: which round counts: `final`, `best` (on validation examples), `last4`, or a budget such as `bytes=2GB`.
    - baseline: the method that gaps are measured to; a leaderboard's ceiling by default.
    - equivalent: points below which methods may be called equal.

    Attributes:
        paths: the folders.
        outcome: of the run that made the results, where `fedbench.run` did; else None.
    """

    def __init__(self, paths: Iterable[str | Path], outcome: Any = None) -> None:
        self.paths = list(paths)
        self.outcome = outcome
        self._found = examine(self.paths).read(("eval", "rounds"))
        if self._found.wrong:
            lines = "\n".join(self._found.wrong)
            warnings.warn(f"left out, checksum mismatch:\n{lines}", stacklevel=3)

    @cached_property
    def cells(self) -> pandas.DataFrame:
        """A row for each name of a cell: suite, scenario, method, variant, seed, status, reason, seconds and more."""
        return cells_frame(self._found.results)

    @cached_property
    def eval(self) -> pandas.DataFrame:
        """The scores of finished cells: round, split, domain, client, metric, value, and `place`, a cell's number."""
        return table_frame(self._found.results, "eval")

    @cached_property
    def rounds(self) -> pandas.DataFrame:
        """What each client did in each round of finished cells, and `place`, a cell's number."""
        return table_frame(self._found.results, "rounds")

    def select(
        self, scenarios: Sequence[str] = (), methods: Sequence[str] = (), variants: Sequence[str] = ()
    ) -> Results:
        """The results of these scenarios, methods and variants alone, which are globs; `cells` stays whole.

        Raises:
            UserError: for a glob that matches nothing.
        """
        found = Results.__new__(Results)
        found.__dict__ |= {name: value for name, value in self.__dict__.items() if name != "_results"}
        found.__dict__["_results"] = select(self._results, scenarios, methods, variants=variants)
        return found

    def leaderboard(self, **options: Any) -> ResultFrame:
        """A row for each method in each scenario and variant: method, role, mean, std, group, ci_low, ci_high, n_seeds,
        the gap to the baseline with its verdict, costs, and a column for each domain."""
        return result_frame(view(self._results, **options))

    def pairs(self, **options: Any) -> ResultFrame:
        """A row for every two methods: difference, interval, p, q and verdict; with a baseline, those with it."""
        return result_frame(view(self._results, "pairs", **options))

    def costs(self, **options: Any) -> ResultFrame:
        """A row for each method: bytes by kind and direction, FLOPs, memory, simulated time and wall time."""
        return result_frame(view(self._results, "costs", **options))

    def clients(self, **options: Any) -> ResultFrame:
        """A row for each client, a column for each method, where clients were tested on their own images."""
        return result_frame(view(self._results, "clients", **options))

    def summary(self, **options: Any) -> ResultFrame:
        """A row for each method of each suite, a column for each scenario."""
        return result_frame(view(self._results, "summary", **options))

    def ranks(self, **options: Any) -> ResultFrame:
        """A row for each method of each suite: its rank in each complete scenario, mean rank and tie group."""
        return result_frame(view(self._results, "ranks", **options))

    def time_to_target(self, target: float | str, **options: Any) -> ResultFrame:
        """A row for each method: rounds, simulated seconds, bytes, FLOPs and joules until it reached a score.

        Args:
            target: a fraction such as 0.8, or text such as `80%`.
            options: metric.
        """
        return result_frame(view(self._results, "reach", reach=target, **options))

    def pareto(self, cost: str = "bytes", **options: Any) -> ResultFrame:
        """A row for each method: what it cost, and whether it is on the front of score and cost.

        Args:
            cost: `bytes`, `flops`, `seconds`, `joules` or `memory`.
            options: metric and at.
        """
        return result_frame(view(self._results, "pareto", pareto=cost, **options))

    def deployable(self, **options: Any) -> ResultFrame:
        """A row for each method: what clients can run of its model, by device and by size."""
        return result_frame(view(self._results, "sizes", **options))

    def tuning(self) -> ResultFrame:
        """A row for each tuned method: its winner, and the best score to expect of fewer candidates."""
        return result_frame(view(self._candidates, "tuning", people=True))

    def candidates(self) -> ResultFrame:
        """A row for each candidate of each tuned method and each round that it was scored after."""
        return result_frame(view(self._candidates, "tuning"))

    def __repr__(self) -> str:
        states = ", ".join(f"{n:,} {state}" for state, n in self.cells["status"].value_counts().items())
        return f"<fedbench results of {', '.join(map(str, self.paths))}: {states or 'no cells'}>"

    def _repr_html_(self) -> str:
        return self.leaderboard()._repr_html_()

    @cached_property
    def _results(self) -> list[Result]:
        """The cells that views are made of."""
        return self._found.results

    @property
    def _candidates(self) -> list[Result]:
        """The cells of tunings, too; of those none is left out, for without a candidate another could win."""
        return load_cells(self.paths, candidates=True)
