"""A leaderboard: methods in one setting, a row each, and which of them are told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.report.cost import Cost
from fedbench.report.headings import Place
from fedbench.report.measures import Run, Score
from fedbench.report.statistics.pairs import Pair

WHERE = (*Place._fields, "metric", "split")  # what a leaderboard is about


@dataclass(frozen=True)
class Row:
    """One method, or a second output of one (output "last" for the metric `accuracy/last`).

    runs, domains, average and worst are over the finished seeds only (within the budget, where there is one), cost over
    all finished ones; they are empty where there are none.
    spread and worst_clients are empty where clients were not tested, each on images of its own. status is "finished" as
    soon as one seed has finished. ranked: whether it may be better or worse than others; a ceiling, which nobody can
    realise, and a second output never are. gap: the paired difference of the averages to the baseline. group: letters;
    who shares one is not told apart. Both are of `fedbench.report.evidence`.
    """

    method: str
    output: str
    metric: str
    status: str
    runs: Sequence[Run]
    domains: Mapping[str, Score]
    average: Score | None
    worst: Score | None
    spread: Score | None
    worst_clients: Score | None
    cost: Cost | None
    ranked: bool = True
    gap: Pair | None = None
    group: str = ""

    @property
    def by_seed(self) -> dict[int, float]:
        """The average of every seed."""
        return {run.seed: run.average for run in self.runs}

    @property
    def label(self) -> str:
        return f"{self.method}/{self.output}" if self.output else self.method

    @property
    def round(self) -> int | str:
        """The round shown; where seeds differ (--at best, or a budget) all of them, as "8/12/9"."""
        rounds = [r.round for r in self.runs]
        return rounds[0] if len(set(rounds)) == 1 else "/".join(map(str, rounds))

    @property
    def spent(self) -> float | None:
        """What the clients had paid by that round, the mean over seeds; None where no budget is set."""
        spent = [r.spent for r in self.runs if r.spent is not None]
        return sum(spent) / len(spent) if spent else None


@dataclass(frozen=True)
class Leaderboard:
    """Methods in one setting.

    place: its variant also says what else sets it apart (train.rounds=3) where a suite was edited between two runs. at:
    one of AT, or one of `fedbench.report.budget.PAID` with the budget. pairs: every two ranked methods; margin:
    the difference below which they may be called equal, None for none.
    """

    place: Place
    metric: str
    split: str
    at: str
    budget: float | None
    baseline: str | None
    domains: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]
    pairs: Sequence[Pair] = ()
    margin: float | None = None

    @property
    def where(self) -> dict[str, str]:
        """What all its records begin with, by WHERE."""
        return {**self.place._asdict(), "metric": self.metric, "split": self.split}

    @property
    def by_client(self) -> bool:
        """Whether clients were tested, each on images of its own."""
        return any(row.spread for row in self.rows)

    @property
    def seeds(self) -> int:
        """The largest number of finished seeds of any row."""
        return max((len(row.runs) for row in self.rows), default=0)


def cell(row: Row, column: str) -> Score | None:
    """The score of a row in a column: a domain, "average", "worst", "worst_clients" or "spread"."""
    parts = {"average": row.average, "worst": row.worst, "worst_clients": row.worst_clients, "spread": row.spread}
    return parts[column] if column in parts else row.domains.get(column)
