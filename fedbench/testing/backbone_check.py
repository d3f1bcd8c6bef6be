"""Checks of backbones: what they compute, and whether their fingerprints identify their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.models.backbone import Blocks, Plain, Source, body_of
from fedbench.models.layered import PADDING
from fedbench.testing.setups import Variants, check_fingerprint, confused, expect, same, untouched
from fedbench.types import Exit


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
    check_fingerprint(source, made)
    check_fingerprint(source, bare, "with `load=False`")
    expect(
        same(weights, dict(made.model.state_dict())),
        "made again with the same options, the weights are others: draw them from a seed (torch.manual_seed within "
        "torch.random.fork_rng)",
    )
    for what, variant in confused(source, variants):
        expect(
            same(weights, dict(variant.model.state_dict())),
            f"the weights are others with {what}, and the fingerprint is {source.fingerprint!r} all the same: "
            "whatever changes the weights must change it, or old results are taken for new ones",
        )
