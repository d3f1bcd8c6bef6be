"""Images on their way into a model."""

import numpy as np
import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks, Source
from fedbench.models.layered import PADDING
from fedbench.simulation import batches
from fedbench.simulation.batches import Pixels, TokenIds
from fedbench.simulation.federated_data import inputs_of
from fedbench.testing.setups import tiny_vit
from fedbench.types import Images, Texts


def some(n=150, **options):
    draw = np.random.default_rng(0)
    images = Images(draw.integers(0, 256, (n, 3, 8, 8), np.uint8), draw.integers(0, 3, n), np.zeros(n, np.int64))
    return Pixels(images, (0.5,) * 3, (0.5,) * 3, "cpu", **options)


def test_pixels_are_normalised_per_channel():
    images = Images(np.full((1, 3, 2, 2), 51, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
    x, _ = Pixels(images, (0.2, 0.1, 0.0), (1.0, 0.5, 0.1), "cpu")(np.array([0]))
    assert x[0, :, 0, 0].tolist() == pytest.approx([0.0, 0.2, 2.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float_images_are_taken_as_they_are_beyond_0_and_1_too(dtype):
    floats = np.array([-0.1, 0.2, 1.09], np.float32).reshape(1, 3, 1, 1)
    images = Images(np.broadcast_to(floats, (1, 3, 2, 2)), np.zeros(1, np.int64), np.zeros(1, np.int64))
    x, _ = Pixels(images, (0.2, 0.1, 0.0), (1.0, 0.5, 0.1), "cpu", dtype)(np.array([0]))
    assert x.dtype == dtype and x[0, :, 1, 1].tolist() == pytest.approx([-0.3, 0.2, 10.9])


def test_kept_features_equal_those_made_anew_whatever_is_asked_for_first():
    model, kept, fresh = Blocks(tiny_vit()).double(), some(dtype=torch.float64), some(dtype=torch.float64)
    kept.keep_features(model.pooled)
    for indices in (np.array([149, 3, 3, 64]), np.array([0]), np.arange(150)):
        x, y = kept.features(indices)
        plain, labels = fresh(indices)
        torch.testing.assert_close(x, model.pooled(plain), rtol=1e-12, atol=1e-12)
        assert torch.equal(y, labels)


def test_features_of_each_image_are_made_once():
    asked, images = [], some()
    assert torch.equal(images.features(np.array([70]))[0], images(np.array([70]))[0])  # none are kept yet
    images.keep_features(lambda x: asked.append(len(x)) or x.flatten(1))
    for _ in range(3):
        images.features(np.array([0, 1, 70]))
    assert asked == [1, 64, 64]  # one for its shape, then two lots of 64


def test_features_that_take_too_much_memory_are_not_kept(monkeypatch):
    monkeypatch.setattr(batches, "KEPT_BYTES", 149 * 3 * 64 * 4)
    images = some()
    images.keep_features(lambda x: x.flatten(1))
    assert images.features(np.array([0]))[0].shape == (1, 3, 8, 8)


def letters(texts, max_length):
    """A token for each letter, between a first and a last one."""
    return [[0, *map(ord, text[: max_length - 2]), 1] for text in texts]


def some_texts(*texts, length=0):
    return Texts(list(texts), np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64), length)


def test_texts_are_padded_to_the_longest_of_a_batch_in_multiples_of_eight():
    ids = TokenIds(some_texts("a", "bc", "d" * 9, "e" * 50), letters, most=20, device="cpu")
    assert ids.size == 20
    x, y = ids(np.array([1, 0]))
    assert x.tolist() == [[0, 98, 99, 1] + [PADDING] * 4, [0, 97, 1] + [PADDING] * 5] and y.tolist() == [0, 0]
    assert ids(np.array([2]))[0].shape == (1, 16) and ids(np.array([3]))[0].shape == (1, 20)


def test_no_backbone_is_given_more_tokens_than_it_takes():
    source = Source(None, 32, (0.0,) * 3, (1.0,) * 3, "letters", tokenizer=letters)
    config = {"backbone": {"name": "letters"}, "data": {"name": "mine"}}
    assert inputs_of(some_texts("a" * 99), config, source, "cpu").size == 32
    with pytest.raises(UserError, match="max_length 33: the backbone 'letters' takes at most 32 tokens"):
        inputs_of(some_texts("a"), {**config, "data": {"max_length": 33}}, source, "cpu")


def test_blank_texts_count_as_many_tokens_as_they_are_said_to_have():
    assert TokenIds(some_texts("", length=33), letters, most=64, device="cpu").size == 40
    assert TokenIds(some_texts("", length=99), letters, most=64, device="cpu").size == 64
    assert TokenIds(some_texts("", length=33), letters, most=64, device="cpu").example(3).shape == (3, 40)
