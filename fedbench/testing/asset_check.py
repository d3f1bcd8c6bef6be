"""Checks of backbones and data sets: what they hold, and whether their fingerprints tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.data.checked import (
    fault_of_load,
    fault_of_split,
    fault_of_splits,
    repeated,
    repeated_message,
    too_many,
    untrained_message,
)
from fedbench.models.backbone import Blocks, Plain, Source, body_of
from fedbench.models.layered import PADDING
from fedbench.testing.setups import expect, refuse, same, shaken, untouched
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
    if source.tokenizer or getattr(source.model, "reads_texts", False):
        _check_parts(source)
    weights = {name: value.clone() for name, value in source.model.state_dict().items()}
    body = body_of(source.model, image_size=source.image_size).eval()
    body.add_classifier("head", 3)
    draw, side = torch.Generator().manual_seed(0), source.image_size
    x = _tokens(source) if source.tokenizer else torch.randn(1, 3, side, side, generator=draw)
    n = len(x)
    with torch.no_grad(), untouched(what="the model", instead="a frozen model draws nothing"):
        features = _pooled(body, x)
        logits = body.classifiers["head"](features)
        expect(logits.shape == (n, 3) and logits.isfinite().all(), "the model gives no finite features")
        if source.tokenizer:
            alone = body.pooled(x[:1, : int((x[0] != PADDING).sum())])
            expect(
                torch.allclose(alone, features[:1], rtol=1e-3, atol=1e-4),
                "padding behind a text changes its features: `run` and `pool` must leave out what `mask` does",
            )
        if isinstance(body, Blocks) and getattr(source.model, "packs", False):
            _check_packing(body, x, features)
        for layers in ([0], range(0, body.num_layers, 2), range(body.num_layers)) if isinstance(body, Blocks) else ():
            logits = body(x, layers, [Exit(len(layers), "head")])[0]
            expect(logits.shape == (n, 3) and logits.isfinite().all(), f"layers {list(layers)} give no finite logits")
        expect(same(weights, source.model.state_dict() | {}), "a forward pass changes the model: it must keep nothing")
    if again:
        _check_weights(source, weights, again, variants)


def _check_parts(source: Source) -> None:
    """Whether a text model has what it is cut into layers by, and a tokenizer."""
    model: Any = source.model
    parts = ("embed", "mask", "run", "pool", "blocks", "num_features", "last_fc")
    lacking = [name for name in parts if not hasattr(model, name)]
    expect(not lacking, f"a text model needs {', '.join(lacking)}, see fedbench.models.layered.Layered")
    expect(
        source.tokenizer and getattr(model, "reads_texts", False),
        "a text model says `reads_texts = True`, and its Source has a `tokenizer`: one of the two is missing",
    )
    expect(
        isinstance(model.blocks, nn.Sequential | nn.ModuleList),
        f"`blocks` must be an nn.Sequential, so that the model has their parameters, not {type(model.blocks).__name__}",
    )
    there = [name for name, module in model.blocks[0].named_modules() if isinstance(module, nn.Linear)]
    unknown = [name for name in model.last_fc if name not in there]
    expect(
        not unknown,
        f"`last_fc` names {', '.join(unknown)}, and the linear layers of a block are {', '.join(there)}: adapters are "
        "put there",
    )


def _tokens(source: Source) -> Tensor:
    """(4, T) ids, PADDING behind, of a plain text, an empty and a long one, and one beyond ASCII.

    Raises: AssertionError where they are none.
    """
    most, tokenizer = source.image_size, source.tokenizer
    assert tokenizer is not None
    texts = ["A text, and more.", "", "long " * (2 * most), "déjà vu, 日本語 \U0001f642"]
    for asked in (texts, [(text, "another") for text in texts]):
        ids = tokenizer(asked, most)
        lengths = [len(own) for own in ids]
        expect(
            len(ids) == len(asked) and all(1 <= length <= most for length in lengths),
            f"the tokenizer must give 1 to {most} ids (`image_size`) of each text, of an empty and a long one too, not "
            f"{lengths} of {len(asked)}",
        )
    given = tokenizer(texts, most)
    odd = next((token for own in given for token in own if not isinstance(token, int) or token < 0), None)
    expect(odd is None, f"the tokenizer must give whole numbers from 0, not {odd!r}")
    rows = [torch.tensor(own) for own in given]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)


def _check_packing(body: Blocks, x: Tensor, features: Tensor) -> None:
    body.packs = True
    try:
        packed = body.pooled(x)
    except Exception as error:
        raise AssertionError(
            f"`run` takes no `Packing`, which `packs` promises: {type(error).__name__}: {error}"
        ) from error
    finally:
        body.packs = False
    expect(
        torch.allclose(packed, features, rtol=1e-3, atol=1e-4),
        "texts in one row have other features than padded ones: `run` must keep apart the texts of a `Packing`",
    )


def _pooled(body: Blocks | Plain, x: Tensor) -> Tensor:
    """The features of images or ids. Raises AssertionError where the model takes none of their size."""
    try:
        return body.pooled(x)
    except Exception as error:
        if x.dim() == 2:
            raise AssertionError(
                f"the model takes no ids of {x.shape[1]} tokens: {type(error).__name__}: {error}"
            ) from error
        message = f"takes no image of {x.shape[-1]} x {x.shape[-1]}, its `image_size`: {type(error).__name__}: {error}"
        raise AssertionError(f"the model {message}") from error


def _check_weights(source: Source, weights: dict[str, Any], again: Callable[..., Source], variants: Variants) -> None:
    made, bare = again(), again(load=False)
    _check_fingerprint(source, made)
    _check_fingerprint(source, bare, "with `load=False`")
    expect(
        same(weights, dict(made.model.state_dict())),
        "made again with the same options, the weights are others: draw them from a seed (torch.manual_seed within "
        "torch.random.fork_rng)",
    )
    for what, variant in _confused(source, variants):
        expect(
            same(weights, dict(variant.model.state_dict())),
            f"the weights are others with {what}, and the fingerprint is {source.fingerprint!r} all the same: "
            "whatever changes the weights must change it, or old results are taken for new ones",
        )


def _check_fingerprint(one: Source | Dataset, other: Source | Dataset, how: str = "again") -> None:
    expect(
        one.fingerprint == other.fingerprint,
        f"made {how}, the fingerprint is {other.fingerprint!r}, and was {one.fingerprint!r}: it must be a function of "
        "the options and the files, or no result would ever be found again",
    )


def _confused(one: Source | Dataset, variants: Variants) -> Iterator[tuple[str, Any]]:
    """The variants of equal fingerprint, by what differs."""
    made = ((what, make()) for what, make in variants)
    return ((what, variant) for what, variant in made if variant and variant.fingerprint == one.fingerprint)


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
    _check_fingerprint(dataset, made)
    for what, variant in _confused(dataset, variants if len(one.train) <= MOST_IMAGES else ()):
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
