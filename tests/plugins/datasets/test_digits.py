"""digits: every scan is used once, and dealt evenly."""

import numpy as np
import pytest
from sklearn.datasets import load_digits  # here, because importing it sets environment variables

from fedbench.errors import UserError
from fedbench_plugins.datasets import digits


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield digits.make(16).load()


def test_every_scan_is_used_once():
    target = load_digits().target
    domain, test = digits.deal(target, 0.2, np.random.default_rng(0))
    assert len(domain) == len(test) == 1797
    cells = np.stack([domain, target], axis=1)
    sizes = np.unique(cells, axis=0, return_counts=True)[1]
    assert len(sizes) == 60 and set(sizes) <= {29, 30, 31}
    assert (np.unique(cells[test], axis=0, return_counts=True)[1] == 6).all()


def test_arrays_have_the_promised_shapes_and_counts(splits):
    assert len(splits.train) + len(splits.test) == 1797
    assert len(splits.test) == 360
    for images in (splits.train, splits.test):
        assert images.x.shape[1:] == (3, 16, 16)
        assert (images.x.dtype, images.y.dtype, images.domain.dtype) == (np.uint8, np.int64, np.int64)
        assert set(images.y) == set(range(10)) and set(images.domain) == set(range(6))
    assert len(np.unique(np.concatenate([splits.train.x, splits.test.x]).reshape(1797, -1), axis=0)) == 1797


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
