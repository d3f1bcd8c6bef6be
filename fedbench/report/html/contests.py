"""How methods were tuned, as curves: the best score to expect of so many candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbench.errors import UserError
from fedbench.report.html.series import rounded
from fedbench.report.measures import is_fraction
from fedbench.report.tuning import Tuned, boards, of_results
from fedbench.results import Result


def drawn(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One for each of `boards`: by method, what is to be expected of 1, 2, ... candidates, and the score of each.
    Nothing where nothing was tuned."""
    try:
        tuned = of_results(results)
    except UserError:
        return []
    return [
        {
            "title": title,
            "metric": ones[0].search.metric,
            "fraction": is_fraction(ones[0].search.metric),
            "methods": {one.method: _curve(one) for one in ones if one.scores},
        }
        for title, ones in boards(tuned)
    ]


def _curve(one: Tuned) -> dict[str, Any]:
    trials = range(1, len(one.search.candidates) + 1)
    return {
        "expected": [rounded(one.expected(n)) for n in trials],
        "scores": {str(k): rounded(score) for k, score in one.scores.items()},
        "winner": one.contest.winner,
    }
