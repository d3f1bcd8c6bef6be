"""How often verdicts are wrong, and how often a difference is found: docs/statistics.md has what came out, with n."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, false_discovery_control, ttest_1samp

from fedbench.report.statistics.pairs import OPPOSITE, bca, student, verdicts

PAGE = Path("docs/statistics.md")
BOARDS, METHODS = 1000, 6
MANY = 10_000  # leaderboards without differences: of 1,000 a share of 5 % is known to 0.7 points only
MOST = 400_000  # of so many to 0.03


def leaderboards(number: int, seeds: int, better: float):
    """Leaderboards as judged pairs: scores are a seed's own level, which all methods share, plus the noise of a cell
    with standard deviation 1; the first method is better by `better`."""
    rng = np.random.default_rng(seeds)
    for _ in range(number):
        values = rng.normal(size=(METHODS, seeds)) + 3 * rng.normal(size=(1, seeds))
        values[0] += better
        yield verdicts({f"m{i}": dict(enumerate(row)) for i, row in enumerate(values.tolist())}, True, None)


def said(pattern: str) -> list[str]:
    """What a row of the page says."""
    (row,) = re.findall(rf"^\| {pattern} \|(.*)\|$", PAGE.read_text(), flags=re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10])
def test_false_discoveries_and_power(seeds):
    """Benjamini-Hochberg holds its level, and is not below it: of leaderboards without differences 5 % have a false
    "better", but for what chance does to a count of them."""
    false = [any(pair.verdict in OPPOSITE for pair in board) for board in leaderboards(MANY, seeds, 0.0)]
    for number in (BOARDS, MANY):
        assert sum(false[:number]) <= binom.ppf(0.99, number, 0.05)
    found, claims, wrong = [], 0, 0
    for board in leaderboards(BOARDS, seeds, 1.0):
        told, mine = ([p for p in board if p.verdict in OPPOSITE], [p for p in board if p.method == "m0"])
        found.append(np.mean([pair.verdict == "better" for pair in mine]))
        claims += len(told)
        wrong += sum(pair.method != "m0" or pair.verdict == "worse" for pair in told)
    rates = [f"{100 * np.mean(false[:number]):.1f} %" for number in (BOARDS, MANY)]
    assert said(f"{seeds} seeds") == [*rates, f"{100 * np.mean(found):.1f} %", f"{wrong} of {claims}"]


def smallest(values: np.ndarray) -> np.ndarray:
    """The smallest q of each leaderboard's pairs, boards x methods x seeds, by scipy instead of our own code."""
    first, second = np.triu_indices(METHODS, 1)
    p = ttest_1samp(values[:, first] - values[:, second], 0.0, axis=-1).pvalue
    return false_discovery_control(p, axis=1).min(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10])
def test_false_discoveries_to_three_hundredths(seeds):
    """Of more leaderboards than are judged one by one; that scipy says the same is looked at on a hundred of them."""
    rng = np.random.default_rng(seeds)
    false = 0
    for part in range(MOST // MANY):
        values = rng.normal(size=(MANY, METHODS, seeds))
        least = smallest(values)
        false += int((least <= 0.05).sum())
        for scores, q in zip(values[: 0 if part else 100], least, strict=False):
            board = {f"m{i}": dict(enumerate(row)) for i, row in enumerate(scores.tolist())}
            assert min(pair.q for pair in verdicts(board, True, None)) == pytest.approx(q, rel=1e-9)
    assert false <= binom.ppf(0.99, MOST, 0.05)
    assert f"{seeds} seeds: {100 * false / MOST:.2f} %" in PAGE.read_text()


@pytest.mark.slow
def test_coverage_of_the_intervals():
    """Of the mean of n values, normal or skewed (the log of which is normal with standard deviation 0.7)."""
    rng = np.random.default_rng(1)
    for n in (5, 10, 20, 50):
        row = []
        for draw, truth in ((rng.normal, 0.0), (lambda size: rng.lognormal(sigma=0.7, size=size), np.exp(0.245))):
            samples = [draw(size=n).tolist() for _ in range(2000)]
            for make in (student, bca):
                inside = [(found := make(x)).low <= truth <= found.high for x in samples]
                row.append(f"{100 * np.mean(inside):.1f} %")
        assert said(str(n)) == row
