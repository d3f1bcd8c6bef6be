"""Significance: which methods differ, their tie groups, and the sentence that says what is concluded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from fedbench.report.statistics.pairs import BETTER, FEWEST, WORSE, Pair, apart, letters
from fedbench.results.scores import is_fraction
from fedbench.words import counted, shortened

POINT = 0.01  # of a fraction that is shown in percent
NAMED = 6  # methods that a sentence names
CONDITIONS = "Benjamini-Hochberg over the pairs of ranked methods of a leaderboard"

Scores = Mapping[int, float]  # by seed, or by draw


def margin_of(metric: str, equivalent: float | None) -> float | None:
    """The margin of equivalence as a difference of the metric.

    Args:
        metric: its name; of one in percent the margin is 1 point unless another is asked for.
        equivalent: points; None for the usual margin. A loss has none.
    """
    if is_fraction(metric):
        return POINT * (1.0 if equivalent is None else equivalent)
    return equivalent


def margin_text(metric: str, margin: float | None) -> str:
    """The margin in the metric's unit; "" for none."""
    return f"{(100 if is_fraction(metric) else 1) * margin:.4g}" if margin else ""


def correction_of(boards: Iterable[Sequence[Pair]]) -> str:
    """What q is corrected for, by the pairs of each leaderboard; "" where nothing was tested."""
    tested = [sum(pair.p == pair.p for pair in pairs) for pairs in boards]
    most = counted(max(tested, default=0), "pair")
    return f"Benjamini-Hochberg over the {most}{' at most' * (len(tested) > 1)} of a leaderboard" if any(tested) else ""


def groups_of(scores: Mapping[str, Scores], pairs: Sequence[Pair]) -> dict[str, str]:
    """Tie groups as letters: methods that share one are not significantly different.

    Args:
        scores: by ranked method, the best first, its score by replicate.
        pairs: all pairs of these methods, with verdicts.
    """
    enough = list(compared(scores))
    return letters(enough, apart(pairs)) if len(enough) > 1 else {}


def compared(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    """The methods of which every two have enough replicates in common to be tested; who has least in common with the
    others is left out first, of several the last."""
    kept = {name: by_draw for name, by_draw in scores.items() if len(by_draw) >= FEWEST}
    while kept:
        apart_from = {
            name: sum(len(own.keys() & other.keys()) < FEWEST for other in kept.values()) for name, own in kept.items()
        }
        last = max(reversed(kept), key=apart_from.__getitem__)
        if not apart_from[last]:
            break
        del kept[last]
    return kept


def too_few(scores: Mapping[str, Scores], replicate: str = "seed") -> str:
    """A sentence where some methods have too few replicates to conclude anything; "" where none has."""
    tested = compared(scores)
    few = [name for name, by_draw in scores.items() if len(by_draw) < FEWEST]
    uncommon = [name for name in scores if name not in tested and name not in few]
    if len(scores) < 2:
        return ""
    if len(few) == len(scores):
        most = counted(max(map(len, scores.values())), replicate)
        return f"{most}: too few to say which method is best; that takes at least three {replicate}s."
    reasons = {f"fewer than three {replicate}s": few, f"fewer than three {replicate}s in common": uncommon}
    found = [f"{', '.join(names)}: {why}, nothing is concluded about them." for why, names in reasons.items() if names]
    return " ".join(found)


def conclusion(scores: Mapping[str, Scores], pairs: Sequence[Pair], replicate: str = "seed") -> str:
    """One sentence on which method is best, and which are not significantly different from it.

    Args:
        scores: by ranked method, the best first, its score by replicate.
        pairs: all pairs of these methods, with verdicts.
        replicate: what is tested, a seed or a draw.
    """
    few = too_few(scores, replicate)
    tested = compared(scores)
    if len(scores) < 2 or len(tested) < 2:
        return few
    best, *others = tested
    differ = apart(pairs)
    same = [name for name in others if frozenset((best, name)) not in differ]
    if equal := [name for name in others if math.isclose(fmean(tested[name].values()), fmean(tested[best].values()))]:
        text = f"No ranked method is best: {_listed([best, *equal])} have equal means."
    elif not same:
        other = "the other ranked method" if len(others) == 1 else "all other ranked methods"
        text = f"{best} is significantly better than {other}."
    elif same == others:
        difference = "the difference is not" if len(others) == 1 else "no difference from it is"
        text = f"{best} has the best mean of the ranked methods; {difference} significant."
    else:
        are = "is" if len(same) == 1 else "are"
        text = f"{best} has the best mean of the ranked methods; {_listed(same)} {are} not significantly different."
    return f"{text} {few}" if few else text


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`; of many some, and how many more."""
    several = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return shortened(names, NAMED) if len(names) > NAMED else several


def crossing(boards: Mapping[str, Sequence[Pair]]) -> dict[tuple[str, str], tuple[str, str]]:
    """The pairs that depend on the scenario: significantly better in one and significantly worse in another.

    Args:
        boards: by scenario, the pairs of its ranked methods with verdicts.

    Returns:
        By pair, a scenario in which the first is better and one in which it is worse.
    """
    better: dict[tuple[str, str], str] = {}
    for scenario, pairs in boards.items():
        for pair in pairs:
            if pair.verdict in (BETTER, WORSE):
                both = (pair.method, pair.other) if pair.verdict == BETTER else (pair.other, pair.method)
                better.setdefault(both, scenario)
    return {
        (one, two): (scenario, better[two, one])
        for (one, two), scenario in better.items()
        if (two, one) in better and one < two
    }


def legend_of_groups(unranked: Mapping[str, Sequence[str]]) -> str:
    """What the letters mean. unranked: by role, the methods that have none."""
    parts = [f"{', '.join(names)} ({role})" for role, names in unranked.items()]
    left = f" Not ranked: {', '.join(parts)}." if parts else ""
    return f"group: methods that share a letter are not significantly different (paired t-tests, {CONDITIONS}).{left}"


def legend_of_verdicts(metric: str, margin: float | None) -> str:
    """What better, worse, equal and inconclusive mean."""
    text = "verdict: better or worse where q <= 0.05"
    if within := margin_text(metric, margin):
        text += f", else equal where the interval lies within {within} of zero; (<{within}): both"
    return f"{text}; inconclusive: none of these."
