"""Lines of other people's pictures: thinned, measured to, dealt, and painted."""

import numpy as np
import pytest

from fedbench_plugins.datasets import glyphs


def test_thinning_leaves_a_line_and_keeps_a_ring_closed():
    ink = np.zeros((2, 16, 16), dtype=bool)
    ink[0, 3:13, 6:9] = True  # a bar three pixels wide
    ink[1, 2:14, 2:14] = True
    ink[1, 6:10, 6:10] = False  # a ring
    line, ring = glyphs.thin(ink)
    assert (line.sum(axis=1) <= 1).all() and line.sum() >= 6
    from scipy.ndimage import label

    assert label(~ring)[1] == 2  # an inside and an outside


def test_distance_is_measured_in_the_units_of_the_glyphs():
    line = np.zeros((1, glyphs.FINE, glyphs.FINE), dtype=bool)
    line[0, :, 32] = True
    field = glyphs.centre_distance(line, glyphs.FINE)
    assert field.dtype == np.float32
    assert field[0, 10, 42] == pytest.approx(10 * 2 * glyphs.SPAN / glyphs.FINE)


def test_hands_are_even_and_each_image_is_in_one():
    target = np.repeat(np.arange(3), [20, 21, 22])
    dealt = list(glyphs.hands(target, 6, np.random.default_rng(0)))
    assert sorted(np.concatenate([hand for _, hand in dealt])) == list(range(63))
    assert sorted(player for player, _ in dealt) == sorted([*range(6)] * 3)
    assert all(len(set(target[hand])) == 1 and len(hand) in (3, 4) for _, hand in dealt)


def test_paint_asks_for_few_fields_at_a_time_and_fills_every_image():
    domain = np.arange(2 * 6 * glyphs.CHUNK + 6) % 6
    asked = []

    def fields(part):
        asked.append(len(part))
        return np.full((len(part), 4, 4), 9, dtype=np.float32)

    x = np.zeros((len(domain), 3, 4, 4), dtype=np.uint8)
    glyphs.paint_styles(x, domain, fields, lambda style: np.random.default_rng(1))
    assert max(asked) == glyphs.CHUNK and sum(asked) == len(domain)
    assert x[domain == 5].min() > 200  # nothing but paper
