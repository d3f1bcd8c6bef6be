"""When models are tested."""

from __future__ import annotations

import pytest

from fedbench.results.scores import evaluated_rounds


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
