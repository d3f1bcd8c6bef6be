"""Scores: what of a metric is better and how it is shown, and what evaluations say round by round.

When models are tested, which round is chosen, and whether a run collapsed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedbench.types import GLOBAL

if TYPE_CHECKING:
    import pandas
    import pyarrow

VALIDATION = "validation"  # the split of eval.parquet that is chosen by
HIGHER, LOWER = "higher", "lower"
_FORMAT = re.compile(r"\.[0-9][feg]")
_UNIT = re.compile(r"[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]{0,11}")


@dataclass(frozen=True)
class Measure:
    """What a metric says of itself, "" where it says nothing.

    Attributes:
        better: HIGHER or LOWER.
        unit: `%` for a fraction that is shown times 100, or any short text.
        format: of Python, as `.2f`.
    """

    better: str = ""
    unit: str = ""
    format: str = ""

    def fault(self) -> str:
        """What is wrong with it, in a sentence; "" where nothing is."""
        if self.better not in ("", HIGHER, LOWER):
            return f"`better` is {HIGHER!r} or {LOWER!r}, not {self.better!r:.80}"
        if not isinstance(self.unit, str) or (
            self.unit and not (_UNIT.fullmatch(self.unit) and self.unit.isprintable())
        ):
            return f"`unit` is a text of at most 12 letters, as '%' or 'ms', not {self.unit!r:.80}"
        if self.format != "" and not (isinstance(self.format, str) and _FORMAT.fullmatch(self.format)):
            return f"`format` is one of Python for a number, as '.2f', not {self.format!r:.80}"
        return ""

    def declared(self) -> dict[str, str]:
        """What it says, by name; empty where it says nothing."""
        return {key: value for key, value in asdict(self).items() if value}


_DECLARED: dict[str, Measure] = {}  # by metric; what results are read of says so, whichever plugins are here


def declare(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Take over what metrics say of themselves, by name. Raises TypeError for what cannot be."""
    for name, given in metrics.items():
        if not isinstance(given, Mapping) or set(given) - {"better", "unit", "format"}:
            raise TypeError(f"metrics.{name:.80} is {given!r:.80}")
        if fault := (made := Measure(**given)).fault():
            raise TypeError(f"metrics.{name:.80}: {fault}")
        _DECLARED[name] = made


def measure(metric: str) -> Measure:
    """What a metric, or a second output as `accuracy/last`, says of itself; where it does not, what its name says."""
    name = metric.partition("/")[0]
    own, low = _DECLARED.get(name, Measure()), name in ("loss", "error") or name.endswith(("_loss", "_error"))
    return Measure(own.better or (LOWER if low else HIGHER), own.unit or "%" * ("accuracy" in metric), own.format)


def is_fraction(metric: str) -> bool:
    """Whether a metric is a fraction, which is shown in percent; a loss is shown as it is."""
    return measure(metric).unit == "%"


def higher_is_better(metric: str) -> bool:
    return measure(metric).better == HIGHER


def without_noise(value: float) -> float:
    """To 12 decimals, and to 12 digits where it is larger: scores that differ by less differ by the order in which
    something was added up, and are equal wherever one is asked whether it is as good as another."""
    return round(float(f"{value:.12g}"), 12)


def reaches(value: float, target: float, metric: str) -> bool:
    """Whether a score is as good as the target, or better."""
    one, other = without_noise(value), without_noise(target)
    return one >= other if higher_is_better(metric) else one <= other


def first_metric(evaluation: Mapping[str, Any]) -> str:
    """What a cell's rounds are chosen by: accuracy, or the first metric where that is not measured. evaluation: that
    section of its configuration."""
    measured: list[str] = [metric["name"] for metric in evaluation["metrics"]]
    return "accuracy" if "accuracy" in measured else measured[0]


def best_round(averages: Mapping[int, float], metric: str) -> int:
    """The round with the best average, of equal rounds the earliest; what is no number comes last.

    averages: of the metric on validation images, by round; one at least.
    """
    sign = 1 if higher_is_better(metric) else -1
    values = {t: -math.inf if math.isnan(v) else sign * without_noise(v) for t, v in averages.items()}
    return max(sorted(values), key=values.__getitem__)  # max keeps the first it meets


PAIRWISE_FROM = 8  # values, from which numpy adds in pairs
EVALUATIONS = 5  # about how often over a run, where the suite does not say
POINTS, NATS = 0.10, 0.5  # of a fraction and of a loss, below an earlier score of the same run
CONSTANT = "constant"


def evaluated_rounds(rounds: int, every: int | None, at: Sequence[int] | str | None = None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run).

    at: instead, the last and these of them; `reference`, as FedRA's released code has it: the 21st, the 41st and so on,
    and the last four.
    """
    if isinstance(at, str):
        return {*range(21, rounds + 1, 20), *range(max(1, rounds - 3), rounds + 1)}
    if at is not None:
        return {rounds, *(t for t in at if t < rounds)}
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))


def by_client(clients: Mapping[tuple[str, int], float]) -> bool:
    """Whether clients were tested, each on images of its own, and not domains."""
    return all(client != GLOBAL for _, client in clients)


Place = tuple[str, int]  # domain, client


Tested = dict[int, dict[Place, float]]  # by round, in the order of the table, the value of every (domain, client)


def by_cell(rows: pandas.DataFrame) -> dict[str, Tested]:
    """By id, the scores of cells. rows: of eval.parquet, those of one metric and split, with the column `id`."""
    found: dict[str, Tested] = {}
    names = ("id", "round", "domain", "client", "value")
    for id, t, domain, client, value in zip(*(rows[name].tolist() for name in names), strict=True):
        found.setdefault(id, {}).setdefault(t, {})[domain, client] = value
    return found


def by_round(table: pyarrow.Table, metric: str, split: str) -> Tested:
    """The scores of one cell, of its eval.parquet."""
    rows = table.to_pandas(use_threads=False)
    chosen = rows[(rows["metric"] == metric) & (rows["split"] == split)]
    return by_cell(chosen.assign(id=""))[""] if len(chosen) else {}


def by_domain(clients: Mapping[tuple[str, int], float]) -> dict[str, float]:
    grouped: dict[str, dict[int, float]] = {}
    for (domain, client), value in clients.items():
        grouped.setdefault(domain, {})[client] = value
    return {d: by[GLOBAL] if GLOBAL in by else mean(list(by.values())) for d, by in grouped.items()}


def average(clients: Mapping[tuple[str, int], float]) -> float:
    """The plain mean over clients where they were tested, else over domains."""
    return mean(list((clients if by_client(clients) else by_domain(clients)).values()))


def spread(values: Sequence[float], lost: int = 0) -> float:
    """The standard deviation over len(values) - lost, numpy's to the bit as `mean`."""
    n = len(values)
    if n < PAIRWISE_FROM:
        middle = mean(values)
        return math.sqrt(_sum([(x - middle) * (x - middle) for x in values]) / (n - lost))
    import numpy as np

    return float(np.std(values, ddof=lost))


def mean(values: Sequence[float]) -> float:
    """numpy's, to the bit. Of fewer than eight values it adds one after the other; a call takes far longer."""
    n = len(values)
    if 0 < n < PAIRWISE_FROM:
        return _sum(values) / n
    import numpy as np

    return float(np.mean(values))


def _sum(values: Sequence[float]) -> float:
    """One after the other; Python's own `sum` is exacter from 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


# Collapse: a run that ends with a constant prediction, or far below a score that it had before


def collapse(scores: Mapping[int, float], constant: Collection[int], metric: str) -> str | None:
    """How a run collapsed by its last tested round; None where it did not.

    Args:
        scores: of one run, by tested round.
        constant: the rounds after which it said the same of every example; none where that was not recorded.
        metric: what the scores are of.

    Returns:
        `constant` where it says the same of every example, or `fell after round t` where its last score lies more than
        POINTS of a fraction, or NATS of a loss, below its best one; t is the last round that does not.
    """
    known = {t: value for t, value in scores.items() if math.isfinite(value)}
    if max(scores, default=0) in constant:
        return CONSTANT
    most = _most(metric)
    if most is None or not known or max(known) != max(scores) or fall(known, metric) <= most:
        return None
    best = _best(known, metric)
    return f"fell after round {max(t for t, value in known.items() if _below(value, best) <= most)}"


def fall(scores: Mapping[int, float], metric: str) -> float:
    """By how much the last score lies below the best one, in the metric's own unit; 0 where it is the best."""
    return _below(scores[max(scores)], _best(scores, metric)) if scores else 0.0


def constant_rounds(answers: pandas.DataFrame, split: str, metric: str) -> set[int]:
    """The rounds after which the output that a metric is of ("last" for `accuracy/last`) said the same of every
    example. answers: the rows of answers.parquet of one cell."""
    output = metric.partition("/")[2]
    same = answers[(answers["split"] == split) & (answers["output"] == output) & (answers["top_share"] == 1.0)]
    return set(same["round"].tolist())


def _most(metric: str) -> float | None:
    """The largest fall that is none; None for metrics of other units, of which nobody knows what much is."""
    if measure(metric).unit == "%":
        return POINTS
    name = metric.partition("/")[0]
    return NATS if name in ("loss", "nll") or name.endswith("_loss") else None


def _best(scores: Mapping[int, float], metric: str) -> float:
    return (max if higher_is_better(metric) else min)(scores.values())


def _below(value: float, best: float) -> float:
    return without_noise(abs(best - value))
