"""When models are tested."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from fedbench.results.scores import evaluated_rounds, mean, spread


@pytest.mark.parametrize(
    ("rounds", "every", "expected"),
    [(12, None, {2, 4, 6, 8, 10, 12}), (3, None, {1, 2, 3}), (10, 4, {2, 6, 10}), (5, 100, {5})],
)
def test_evaluation_is_spread_and_always_includes_the_last_round(rounds, every, expected):
    assert evaluated_rounds(rounds, every) == expected


@pytest.mark.parametrize(
    ("rounds", "at", "expected"),
    [
        (100, "reference", [21, 41, 61, 81, 97, 98, 99, 100]),
        (150, "reference", [21, 41, 61, 81, 101, 121, 141, 147, 148, 149, 150]),
        (22, "reference", [19, 20, 21, 22]),
        (12, "reference", [9, 10, 11, 12]),
        (3, "reference", [1, 2, 3]),
        (100, [1, 50], [1, 50, 100]),
        (10, [1, 10, 50], [1, 10]),
    ],
)
def test_rounds_can_be_named_and_the_released_codes_are(rounds, at, expected):
    assert sorted(evaluated_rounds(rounds, None, at)) == expected


def test_means_and_spreads_are_numpys_to_the_bit():
    chance = random.Random(0)
    odd = (0.0, -0.0, 1 / 3, 1e300, float("inf"), float("nan"))
    for n in (*range(1, 12), 129):
        for _ in range(40):
            x = [chance.choice(odd) if chance.random() < 0.1 else chance.gauss(0.5, 0.2) for _ in range(n)]
            with np.errstate(all="ignore"):
                theirs = [np.mean(x), np.std(x), *([np.std(x, ddof=1)] if n > 1 else [])]
                ours = [mean(x), spread(x), *([spread(x, 1)] if n > 1 else [])]
            assert [struct.pack("d", v) for v in ours if v == v] == [struct.pack("d", v) for v in theirs if v == v], x
