"""What of a metric is better and how it is shown; and which round is chosen: the one that is best on validation images,
and never by a test image."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

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
