"""What a client and the server pay for training a model that is cut between them, measured from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbench.families.split.cut import Cut, after_layers
from fedbench.models.backbone import HEAD, Blocks, identity, once, parameters_of
from fedbench.models.cost import Shape, head_bytes, whole
from fedbench.models.counting import BATCH, blank, count, most_alive, one_image, quickest
from fedbench.models.optimizer import optimizer_states
from fedbench.types import ClientCost, Exit, Frozen, Objective, Sent, ServerCost


@dataclass(frozen=True)
class PartPass:
    """One image through one part: FLOPs forward, and backward; bytes that the backward pass needs saved."""

    forward: int
    backward: int
    saved: int


@dataclass(frozen=True)
class CutPart:
    """A part of the cut model, in bytes: its weights, and what it computes from one image.

    `largest` is the weights of its largest module.
    """

    weights: int
    passes: PartPass
    sends: int = 0
    largest: int = 0


@dataclass(frozen=True)
class SplitPrices:
    """The parts H, E and T, E with gradients for its input alone, and E with those of its weights too.

    `at_once` is the most bytes that a client computes at once in a step, saved or not: whatever the batch, and more for
    each image.
    """

    H: CutPart
    E: CutPart
    E_trained: CutPart
    T: CutPart
    at_once: tuple[int, int] = (0, 0)


def measure(cut: Cut, loss: Objective, image_size: int) -> SplitPrices:
    """From shapes alone, once for models of one origin that are cut the same way."""

    def compute() -> SplitPrices:
        prices = quickest(lambda device: _measure(cut, loss, image_size, device), cut.model, image_size)
        return replace(prices, at_once=_at_once(cut, loss, image_size))

    key = ("split", cut.first, cut.last, identity(loss), image_size)
    return once(cut.model.origin, parameters_of(cut.model), key, compute)


def _measure(cut: Cut, loss: Objective, image_size: int, device: str) -> SplitPrices:
    head_blocks, tail_blocks = cut.first, cut.model.num_layers - cut.last
    twin = Cut(blank(cut.model, device=device), 0, head_blocks, tail_blocks)
    x, y = one_image(twin.model, image_size)
    H, h = _part(twin.model, twin.w_H, twin.H, x)
    E, b = _part(twin.model, {}, twin.E, h)
    E_trained, _ = _part(twin.model, twin.w_E, twin.E, h)
    T, _ = _part(twin.model, twin.w_T, lambda b: loss([twin.T(b)], y, 0), b)
    return SplitPrices(H, E, replace(E_trained, largest=_largest(twin)), T)


def _at_once(cut: Cut, loss: Objective, image_size: int) -> tuple[int, int]:
    """What does not grow with the batch, and what does, separated by a batch twice as large."""
    twin = Cut(blank(cut.model), 0, cut.first, cut.model.num_layers - cut.last)
    for parameter in (*twin.w_H.values(), *twin.w_T.values()):
        parameter.requires_grad_(True)
    x, y = one_image(twin.model, image_size)
    with torch.no_grad():
        b_of_one = twin.E(twin.H(x))

    def step(B: int) -> None:
        b = b_of_one.repeat_interleave(B, 0).requires_grad_(True)
        h = twin.H(x.repeat_interleave(B, 0))
        loss([twin.T(b)], y.repeat_interleave(B), 0).backward()
        h.backward(torch.empty_like(h))

    return _fixed_and_per_image(step)


def _fixed_and_per_image(step: Callable[[int], None]) -> tuple[int, int]:
    """The most bytes that step(B) computes at once: those of any batch, and those of each of its B images."""
    step(1)  # gradients are kept from step to step
    few, many = (most_alive(partial(step, B)) for B in (BATCH, 2 * BATCH))
    per_image = (many - few) // BATCH
    return few - BATCH * per_image, per_image


def _part(
    model: Blocks, trained: Mapping[str, Tensor], compute: Callable[[Tensor], Tensor], given: Tensor
) -> tuple[CutPart, Tensor]:
    """The part's numbers, and what it hands on. Where gradients reach `given`, they are computed."""
    for parameter in trained.values():
        parameter.requires_grad_(True)
    made: list[Tensor] = []
    forward, saved = count(model, lambda: made.append(compute(given)))
    out = made[0]
    backward, _ = count(model, lambda: out.backward(torch.empty_like(out)))
    handed_on = out.detach().requires_grad_(True)
    weights = sum(w.nbytes for w in trained.values())
    return CutPart(weights, PartPass(forward, backward, saved), out.nbytes), handed_on


def of_client(
    prices: SplitPrices,
    train: Mapping[str, Any],
    *,
    learns: str | None,
    directions: int = 0,
    averages: bool = False,
    server_optimizer: Mapping[str, Any] | None = None,
) -> ClientCost:
    """One client's round, and what the server computes for it.

    Args:
        prices: Of the parts.
        train: The suite's `train` section.
        learns: `every_step`, `last_step` by back-propagation, `losses`, or None.
        directions: Of SPSA, two losses each.
        averages: Whether heads and tails are averaged at the end of the round.
        server_optimizer: The server's own.
    """
    H, E, T, full = prices.H, prices.E, prices.T, prices.E_trained
    own, batch, losses = H.weights + T.weights, train["batch_size"], 2 * directions
    saved, (fixed, per_image) = H.passes.saved + T.passes.saved, prices.at_once
    sent = [
        Sent("features", down_per_image=E.sends, up_per_image=H.sends, down_last=losses * E.sends),
        Sent("gradients", down_per_image=H.sends, up_per_image=E.sends),
    ]
    if losses:
        sent.append(Sent("losses", up=losses * T.sends))
    if averages:
        sent.append(Sent("weights", up=own, down_after=own))
    return ClientCost(
        flops_per_image=sum(part.passes.forward + part.passes.backward for part in (H, T)),
        flops_last=losses * T.passes.forward,
        bytes_down=sum(one.down for one in sent),
        bytes_up=sum(one.up for one in sent),
        memory_bytes=own * (2 + optimizer_states(train["optimizer"])) + batch * saved,
        sent=tuple(sent),
        workspace_bytes=max(0, fixed + batch * (per_image - saved)),
        batch=batch,
        server=_server(E, full, batch, learns, losses, optimizer_states(server_optimizer) if server_optimizer else 0),
    )


def _server(E: CutPart, full: CutPart, batch: int, learns: str | None, losses: int, states: int) -> ServerCost:
    """Return the server's bytes.

    `full.weights` are those of w_E. Back-propagation holds one gradient of a client and the sum over clients, and
    `states` times as much for the server's optimiser; SPSA holds one module's weights, moved.
    """
    back_propagates = learns in ("every_step", "last_step")
    usual = full if learns == "every_step" else E
    weight_gradient = full.passes.backward - E.passes.backward
    return ServerCost(
        flops_per_image=usual.passes.forward + usual.passes.backward,
        flops_last=losses * E.passes.forward + (weight_gradient if learns == "last_step" else 0),
        memory_bytes=full.weights * (3 + states if back_propagates else 1)
        + (full.largest if losses else 0)
        + batch * (full if back_propagates else E).passes.saved,
    )


def _largest(cut: Cut) -> int:
    modules = (module for top in cut.server_modules.values() for module in top.modules())
    return max(sum(w.nbytes for w in module.parameters(recurse=False)) for module in modules)


def of_adapters(
    model: Blocks,
    c: int,
    loss: Objective,
    train: Mapping[str, Any],
    image_size: int,
    server_optimizer: Mapping[str, Any] | None = None,
) -> ClientCost:
    """One client's round where it trains the adapters of the first c layers, and the server all others.

    Args:
        model: With adapters and classifier.
        c: How many layers are the client's.
        loss: What the server computes of its answers.
        train: The suite's `train` section.
        image_size: Pixels a side, or tokens of a text.
        server_optimizer: The server's own; None for the clients'.
    """
    key = ("split adapters", c, identity(loss), image_size)
    H, E, at_once = once(model.origin, parameters_of(model), key, lambda: _halves(model, c, loss, image_size))
    frozen = {name: p.nbytes for name, p in model.model.named_parameters() if not p.requires_grad}
    layer = sum(nbytes for name, nbytes in frozen.items() if name.startswith("blocks.0."))
    rest = {name: nbytes for name, nbytes in frozen.items() if not name.startswith("blocks.")}
    behind = sum(nbytes for name, nbytes in rest.items() if after_layers(f"model.{name}"))
    outside, batch = sum(rest.values()) - behind, train["batch_size"]
    words = outside if model.reads_texts else 0
    labels = 8 * (image_size if model.predicts_tokens else 1)
    mask = image_size if model.reads_texts else 0
    sent = (
        Sent("embedding", words),
        Sent("backbone", outside - words + c * layer),
        Sent("adapters", H.weights, H.weights),
        Sent("features", up_per_image=H.sends + labels + mask),
        Sent("gradients", down_per_image=H.sends),
    )
    states = optimizer_states(train["optimizer"])
    saved, (fixed, per_image) = H.passes.saved, at_once
    head = head_bytes(Shape(model), whole(model.num_layers, [Exit(model.num_layers, HEAD)]), loss, batch * image_size)
    tied = words if model.predicts_tokens and "lm_head" not in frozen else 0  # the head, which is the embedding
    return ClientCost(
        flops_per_image=H.passes.forward + H.passes.backward,
        bytes_down=sum(one.down for one in sent),
        bytes_up=sum(one.up for one in sent),
        memory_bytes=outside + c * layer + H.weights * (2 + states) + batch * saved,
        sent=tuple(one for one in sent if any((one.down, one.up, one.down_per_image, one.up_per_image))),
        workspace_bytes=max(0, fixed + batch * (per_image - saved)),
        batch=batch,
        server=ServerCost(
            flops_per_image=E.passes.forward + E.passes.backward,
            memory_bytes=behind
            + tied
            + head
            + (model.num_layers - c) * layer
            + E.weights * (3 + optimizer_states(server_optimizer or train["optimizer"]))
            + batch * E.passes.saved,
        ),
        frozen=Frozen(words, outside - words, layer),
    )


def _halves(model: Blocks, c: int, loss: Objective, image_size: int) -> tuple[CutPart, CutPart, tuple[int, int]]:
    """What the clients and the server compute of one image, and what a client computes at once."""

    def on(device: str) -> tuple[CutPart, CutPart]:
        twin = blank(model, device=device, training=True)
        x, y = one_image(twin, image_size)
        H, h = _part(twin, _trained(twin, 0, c), lambda x: _through(twin, x, c), x)
        E, _ = _part(twin, _trained(twin, c, twin.num_layers), lambda h: loss([_rest(twin, h, x, c)], y, 0), h)
        return H, E

    twin = blank(model, training=True)
    x, _ = one_image(twin, image_size)

    def step(B: int) -> None:
        h = _through(twin, x.repeat_interleave(B, 0), c)
        h.backward(torch.empty_like(h))

    return *quickest(on, model, image_size), _fixed_and_per_image(step)


def _trained(model: Blocks, first: int, last: int) -> Mapping[str, Tensor]:
    """What is trained of these layers, and of what stands before them or behind them all."""
    own = {f"{j}.{name}": p for j in range(first, last) for name, p in model.r(j).items()}
    return own | {name: p for name, p in model.shared().items() if after_layers(name) == (first > 0)}


def _through(model: Blocks, x: Tensor, c: int) -> Tensor:
    tokens, mask = model.embed(x), model.mask(x)
    for j in range(c):
        tokens = model.layer(j, tokens, mask)
    return tokens


def _rest(model: Blocks, tokens: Tensor, x: Tensor, c: int) -> Tensor:
    mask = model.mask(x)
    for j in range(c, model.num_layers):
        tokens = model.layer(j, tokens, mask)
    return model.answer(HEAD, model.features(tokens, mask))
