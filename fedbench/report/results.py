"""Results: what lies in results folders, with every view of it as a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas

from fedbench.report.frames import format_in, page, tables, with_attrs
from fedbench.report.grouping import select
from fedbench.report.style import style
from fedbench.report.views.by_name import view
from fedbench.results import Result
from fedbench.results import load as load_cells
from fedbench.results.read import Results


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
        by = self.attrs.get("by")
        named = all(isinstance(name, str) for name in self.columns)
        if by is None or not named or self.index.names != [None]:  # transposed or grouped
            return pandas.DataFrame(self).to_html(notebook=True)
        legend = [*self.attrs["legend"]]
        if fractions := [name for name in self.columns if self.attrs["units"].get(name) == "fraction"]:
            legend.append(f"Shown in percent, in the frame fractions of 1: {', '.join(fractions)}.")
        if set(by) <= set(self.columns):
            there = set(tables(self))
            pages = [one for one in self.attrs["pages"] if tuple(one["key"]) in there] or self.attrs["pages"]
            return style(with_attrs(self, pages=pages, legend=legend), "html")
        # Without the columns that separate its tables it is one table, with the frame's own column names.
        formats = {name: replace(format_in(self.attrs, name), title=name) for name in self.columns}
        whole: dict[str, Any] = {
            "by": [],
            "pages": [page((), title=self.caption)],
            "columns": list(self.columns),
            "parts": {},
        }
        return style(with_attrs(self, **whole, formats=formats, legend=legend), "html")


def result_frame(found: pandas.DataFrame) -> ResultFrame:
    """A view for a notebook."""
    made = ResultFrame(found)
    made.attrs = dict(found.attrs)
    return made


class Views(Results):
    """Everything under results folders, as pandas frames, with every view of it.

    Every view is a `ResultFrame`: a DataFrame with a caption, shown as a table in a notebook, whose `attrs` say
    metric, round and correction. Scores are fractions; costs are bytes, FLOPs, seconds and joules.

    Views take these options:

    - metric: what is compared, `accuracy` by default.
    - at: which round counts: `final`, `best` (on validation examples), `last4`, or a budget such as `bytes=2GB`.
    - baseline: the method that gaps are measured to; a leaderboard's ceiling by default.
    - equivalent: points below which methods may be called equal.

    Attributes:
        outcome: of the run that made the results, where `fedbench.run` did; else None.
    """

    def __init__(self, paths: Iterable[str | Path], outcome: Any = None) -> None:
        super().__init__(paths)
        self.outcome = outcome

    def select(self, scenarios: Sequence[str] = (), methods: Sequence[str] = (), variants: Sequence[str] = ()) -> Views:
        """The results of these scenarios, methods and variants alone, which are globs; `cells` stays whole.

        Raises:
            UserError: for a glob that matches nothing.
        """
        found = Views.__new__(Views)
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
