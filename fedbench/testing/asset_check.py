"""Checks of backbones and data sets: what they hold, and whether their fingerprints tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.checked import (
    fault_of_load,
    fault_of_split,
    fault_of_splits,
    repeated,
    told_repeated,
    told_untrained,
    too_many,
)
from fedbench.models.backbone import Blocks, Plain, Source, body_of
from fedbench.testing.setups import expect, same, shaken, untouched
from fedbench.types import Dataset, Exit, Images, Splits, Texts

Variants = Iterable[tuple[str, Callable[[], Any]]]
MOST_IMAGES = 2000  # of a data set that is made again with other options


def check_backbone(source: Source, again: Callable[..., Source] | None = None, variants: Variants = ()) -> None:
    """Check a backbone.

    It gives finite features of the size it names, also with some of its layers where it can be cut into layers. Its
    facts have the right types, and its fingerprint identifies its weights.

    Args:
        source: The backbone.
        again: Makes it again, with `load=False` too where it can.
        variants: What to call it made with another option, and how.
    """
    expect(isinstance(source, Source), f"a backbone is a fedbench.models.backbone.Source, not {type(source).__name__}")
    expect(isinstance(source.fingerprint, str) and source.fingerprint, "the fingerprint must be a text")
    expect(
        len(source.mean) == len(source.std) == 3 and all(s > 0 for s in source.std), "mean and std: three numbers each"
    )
    expect(
        all(0 <= m <= 1 for m in source.mean) and all(s <= 1 for s in source.std),
        f"mean {tuple(source.mean)} and std {tuple(source.std)} are of images between 0 and 1: divide those of pixels "
        "from 0 to 255 by 255",
    )
    weights = {name: value.clone() for name, value in source.model.state_dict().items()}
    body = body_of(source.model, image_size=source.image_size).eval()
    body.add_classifier("head", 3)
    x = torch.randn(1, 3, source.image_size, source.image_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), untouched(what="the model", instead="a frozen model draws nothing"):
        logits = body.classifiers["head"](_pooled(body, x))
        expect(logits.shape == (1, 3) and logits.isfinite().all(), "the model gives no finite features")
        for layers in ([0], range(0, body.num_layers, 2), range(body.num_layers)) if isinstance(body, Blocks) else ():
            logits = body(x, layers, [Exit(len(layers), "head")])[0]
            expect(logits.shape == (1, 3) and logits.isfinite().all(), f"layers {list(layers)} give no finite logits")
        expect(same(weights, source.model.state_dict() | {}), "a forward pass changes the model: it must keep nothing")
    if again:
        _check_weights(source, weights, again, variants)


def _pooled(body: Blocks | Plain, x: Tensor) -> Tensor:
    """The features of images. Raises AssertionError where the model takes none of their size."""
    try:
        return body.pooled(x)
    except Exception as error:
        message = f"takes no image of {x.shape[-1]} x {x.shape[-1]}, its `image_size`: {type(error).__name__}: {error}"
        raise AssertionError(f"the model {message}") from error


def _check_weights(source: Source, weights: dict[str, Any], again: Callable[..., Source], variants: Variants) -> None:
    made, bare = again(), again(load=False)
    for other, how in ((made, "again"), (bare, "with `load=False`")):
        expect(
            other.fingerprint == source.fingerprint,
            f"made {how}, the fingerprint is {other.fingerprint!r}, and was {source.fingerprint!r}: it must be a "
            "function of the options and the files, or no result would ever be found again",
        )
    expect(
        same(weights, dict(made.model.state_dict())),
        "made again with the same options, the weights are others: draw them from a seed (torch.manual_seed within "
        "torch.random.fork_rng)",
    )
    for what, make in variants:
        variant = make()
        if variant is not None and variant.fingerprint == source.fingerprint:
            expect(
                same(weights, dict(variant.model.state_dict())),
                f"the weights are others with {what}, and the fingerprint is {source.fingerprint!r} all the same: "
                "whatever changes the weights must change it, or old results are taken for new ones",
            )


def check_dataset(
    dataset: Dataset,
    again: Callable[[], Dataset] | None = None,
    variants: Variants = (),
    image_size: int | None = None,
    official: bool = False,
) -> None:
    """Check a data set.

    Types, shapes and ranges of both splits are right. Both have images of every domain, every class can be learnt, test
    images are others, every load gives the same, and the fingerprint identifies them.

    Args:
        dataset: The data set.
        again: As of `check_backbone`.
        variants: As of `check_backbone`.
        image_size: The size that was asked for.
        official: Whether official lists say which images there are of which class.
    """
    expect(isinstance(dataset, Dataset), f"a data set is a fedbench.types.Dataset, not {type(dataset).__name__}")
    expect(isinstance(dataset.fingerprint, str) and dataset.fingerprint, "the fingerprint must be a text")
    for what, names in (("domains", dataset.domains), ("classes", dataset.classes)):
        expect(names and len(set(names)) == len(names), f"{what} must be different names, at least one")
    seeded = "take fedbench.seeding.numpy_generator"
    with shaken(1), untouched(what="`load`", instead=seeded):
        one = _loaded(dataset)
    with shaken(2):
        two, made = _loaded(dataset), again() if again else dataset
        three = _loaded(made) if again else two
    for split in ("train", "test"):
        images: Images | Texts = getattr(one, split)
        check_images(images, dataset, split)
        if isinstance(images, Images):
            H = images.x.shape[-1]
            expect(
                image_size in (None, H),
                f"the images of {split} are {H} x {H}, and `image_size` {image_size} was asked for: scale them to "
                "that, or take no `image_size` if there is but one size",
            )
        expect(_alike(images, getattr(two, split)), f"{split} is another one on the second load; {seeded}")
        expect(
            _alike(images, getattr(three, split)), f"{split} is another one when the data set is made again; {seeded}"
        )
        if dataset.outline:
            _check_outline(getattr(dataset.outline(), split), images, split)
    _check_learnable(one, dataset, official)
    expect(
        made.fingerprint == dataset.fingerprint,
        f"made again, the fingerprint is {made.fingerprint!r}, and was {dataset.fingerprint!r}: it must be a function "
        "of the options and the files, or no result would ever be found again",
    )
    for what, make in variants if len(one.train) <= MOST_IMAGES else ():
        variant = make()
        if variant is not None and variant.fingerprint == dataset.fingerprint:
            other = variant.load()
            expect(
                _alike(one.train, other.train) and _alike(one.test, other.test),
                f"the {'texts' if dataset.texts else 'images'} are others with {what}, and the fingerprint is "
                f"{dataset.fingerprint!r} all the same: "
                "whatever changes an image, a label or the split must change it, or old results are taken for new ones",
            )


def _loaded(dataset: Dataset) -> Splits:
    fault = fault_of_load(dataset.load)
    expect(not fault, fault)
    splits = dataset.load()
    fault = fault_of_splits(splits)
    expect(not fault, fault)
    return splits


def _check_learnable(splits: Splits, dataset: Dataset, official: bool) -> None:
    """Every class can be learnt, and test images tell whether it was."""
    untrained = "" if official else told_untrained(splits.train, dataset)
    expect(not untrained, untrained)
    count, n = repeated(splits), len(splits.test)
    expect(
        not too_many(count, n),
        f"{told_repeated(count, dataset, n)}: test on others, or scores are of what was learnt by heart",
    )


def check_images(images: Images | Texts, dataset: Dataset, split: str) -> None:
    """Types, shapes and ranges of a split of images or texts."""
    noun = "text" if dataset.texts else "image"
    fault = fault_of_split(images, dataset, split)
    expect(not fault, fault)
    lacking = set(range(len(dataset.domains))) - set(images.domain.tolist())
    expect(not lacking, f"{split} has no {noun} of domain {lacking and dataset.domains[min(lacking)]!r}")


def _check_outline(outline: Images | Texts, images: Images | Texts, split: str) -> None:
    fits = type(outline) is type(images) and _same_labels(outline, images)
    if fits and isinstance(outline, Images) and isinstance(images, Images):
        fits = (outline.x.shape, outline.x.dtype) == (images.x.shape, images.x.dtype)
    expect(
        fits,
        f"{split} of `outline` must have the labels, domains, shape and dtype of what `load` gives: plans are made of "
        "it",
    )


def _same_labels(one: Images | Texts, other: Images | Texts) -> bool:
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("y", "domain"))


def _alike(one: Images | Texts, other: Images | Texts) -> bool:
    if isinstance(one, Texts) or isinstance(other, Texts):
        same_values = isinstance(one, Texts) and isinstance(other, Texts) and list(one.text) == list(other.text)
    else:
        same_values = np.array_equal(one.x, other.x)
    return same_values and _same_labels(one, other)
