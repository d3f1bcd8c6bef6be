"""fedbench/report/statistics/paired.py: McNemar's exact test, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.report.statistics.paired import Discordant, mcnemar, unpacked


def right(text):
    return np.array([letter == "1" for letter in text])


def test_only_images_that_one_model_alone_has_right_count():
    # Six such images, five of them ours: 2 (6 + 1) / 2^6.
    found = mcnemar(right("1111" + "11111" + "0" + "00"), right("1111" + "00000" + "1" + "00"))
    assert found == Discordant(12, 5, 1, pytest.approx(14 / 64))


def test_models_that_answer_alike_are_not_told_apart():
    assert mcnemar(right("1100"), right("1100")) == Discordant(4, 0, 0, 1.0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_it_is_blind_to_the_order_of_images_and_of_models(pairs):
    ours, theirs = np.array(pairs).T
    found, turned = mcnemar(ours, theirs), mcnemar(theirs[::-1], ours[::-1])
    assert (found.ours, found.theirs) == (turned.theirs, turned.ours)
    assert found.p == pytest.approx(turned.p) and 0 < found.p <= 1


def test_bits_are_read_as_they_are_kept():
    images = right("1011000110")
    assert (unpacked(np.packbits(images).tobytes(), 10) == images).all()
