"""digits: every scan is used once, and dealt evenly."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits  # here, because importing it sets environment variables

from fedbench.errors import UserError
from fedbench_plugins.datasets import digits

ALL = 1797


def few_digits(count):
    """scikit-learn's digits, as if there were so many."""
    scans = load_digits()
    return lambda: SimpleNamespace(images=scans.images[:count], target=scans.target[:count])


def test_every_scan_is_used_once():
    target = load_digits().target
    domain, test = digits.deal(target, 0.2, np.random.default_rng(0))
    assert len(domain) == len(test) == 1797
    cells = np.stack([domain, target], axis=1)
    sizes = np.unique(cells, axis=0, return_counts=True)[1]
    assert len(sizes) == 60 and set(sizes) <= {29, 30, 31}
    assert (np.unique(cells[test], axis=0, return_counts=True)[1] == 6).all()


@pytest.mark.parametrize(("count", "tested"), [(240, 60), pytest.param(ALL, 360, marks=pytest.mark.slow)])
def test_arrays_have_the_promised_shapes_and_counts(tmp_path, monkeypatch, count, tested):
    """To paint all of them takes seconds; how all are dealt the test before says."""
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("sklearn.datasets.load_digits", few_digits(count))
    splits = digits.make(16).load()
    assert len(splits.train) + len(splits.test) == count
    assert len(splits.test) == tested
    for images in (splits.train, splits.test):
        assert images.x.shape[1:] == (3, 16, 16)
        assert (images.x.dtype, images.y.dtype, images.domain.dtype) == (np.uint8, np.int64, np.int64)
        assert set(images.y) == set(range(10)) and set(images.domain) == set(range(6))
    assert len(np.unique(np.concatenate([splits.train.x, splits.test.x]).reshape(count, -1), axis=0)) == count


def test_draw_decides_the_deal():
    target = np.repeat(np.arange(10), 30)
    deals = [digits.deal(target, 0.2, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(deals[0], deals[1]) and not np.array_equal(deals[0], deals[2])
    assert (
        len({digits.make(32, draw=draw, test_share=share).fingerprint for draw in (0, 1) for share in (0.2, 0.3)}) == 4
    )


@pytest.mark.parametrize("options", [{"test_share": 0}, {"test_share": 1.0}, {"draw": -1}, {"image_size": 0}])
def test_impossible_options_are_told_with_their_name(options):
    with pytest.raises(UserError, match=next(iter(options))):
        digits.make(**{"image_size": 32, **options})
