"""Checks of data sets: what they hold, and whether their fingerprints identify it."""

from __future__ import annotations

from collections.abc import Callable

from fedbench.data.checked import (
    fault_of_load,
    fault_of_split,
    fault_of_splits,
    repeated,
    repeated_message,
    too_many,
    untrained_message,
)
from fedbench.testing.setups import Variants, check_fingerprint, confused, expect, refuse, same, shaken, untouched
from fedbench.types import Dataset, Images, Splits, Texts

MOST_IMAGES = 2000  # of a data set that is made again with other options


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
        again_given = [(getattr(two, split), "on the second load"), (getattr(three, split), "when it is made again")]
        _check_split(getattr(one, split), dataset, split, image_size)
        for other, when in again_given:
            expect(same(vars(getattr(one, split)), vars(other)), f"{split} is another one {when}; {seeded}")
    _check_learnable(one, dataset, official)
    check_fingerprint(dataset, made)
    for what, variant in confused(dataset, variants if len(one.train) <= MOST_IMAGES else ()):
        other = variant.load()
        expect(
            all(same(vars(getattr(one, split)), vars(getattr(other, split))) for split in ("train", "test")),
            f"the {'texts' if dataset.texts else 'images'} are others with {what}, and the fingerprint is "
            f"{dataset.fingerprint!r} all the same: "
            "whatever changes an image, a label or the split must change it, or old results are taken for new ones",
        )


def _check_split(given: Images | Texts, dataset: Dataset, split: str, image_size: int | None) -> None:
    """Types, shapes and ranges of a split, its size in pixels, and its outline."""
    refuse(fault_of_split(given, dataset, split))
    lacking = set(range(len(dataset.domains))) - set(given.domain.tolist())
    noun = "text" if dataset.texts else "image"
    expect(not lacking, f"{split} has no {noun} of domain {lacking and dataset.domains[min(lacking)]!r}")
    if isinstance(given, Images):
        H = given.x.shape[-1]
        expect(
            image_size in (None, H),
            f"the images of {split} are {H} x {H}, and `image_size` {image_size} was asked for: scale them to that, or "
            "take no `image_size` if there is but one size",
        )
    if dataset.outline:
        _check_outline(getattr(dataset.outline(), split), given, split)


def _loaded(dataset: Dataset) -> Splits:
    refuse(fault_of_load(dataset.load))
    splits = dataset.load()
    refuse(fault_of_splits(splits))
    return splits


def _check_learnable(splits: Splits, dataset: Dataset, official: bool) -> None:
    """Every class can be learnt, and test images tell whether it was."""
    refuse("" if official else untrained_message(splits.train, dataset))
    count, n = repeated(splits), len(splits.test)
    expect(
        not too_many(count, n),
        f"{repeated_message(count, dataset, n)}: test on others, or scores are of what was learnt by heart",
    )


def _check_outline(outline: Images | Texts, images: Images | Texts, split: str) -> None:
    fits = type(outline) is type(images) and same([outline.y, outline.domain], [images.y, images.domain])
    if fits and isinstance(outline, Images) and isinstance(images, Images):
        fits = (outline.x.shape, outline.x.dtype) == (images.x.shape, images.x.dtype)
    expect(
        fits,
        f"{split} of `outline` must have the labels, domains, shape and dtype of what `load` gives: plans are made of "
        "it",
    )
