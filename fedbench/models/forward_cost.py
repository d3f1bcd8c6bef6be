"""What a client pays that computes forward passes alone: it keeps no activations, and may send scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from fedbench.models.backbone import Blocks, identity, once
from fedbench.models.cost import Holding, Shape, cut_to, head_bytes, images_at_once, tensor_sizes, unused_layers
from fedbench.models.counting import blank, count, most_alive, one_image, quickest
from fedbench.types import ClientCost, Frozen, Objective, Sent

FEW = 8  # images, of which what each adds is measured


@dataclass(frozen=True)
class ForwardPasses:
    """What the steps of a forward-only rule consist of.

    Attributes:
        passes: Of every batch.
        tangents: Whether a pass also computes derivatives along a direction (forward mode).
        copies: How many tensors a client keeps for every trained one, besides the tensor itself.
        gradients: Whether clients send gradients in place of trained tensors, and are sent the last one with these.
        scalars: Bytes (down, up) of what is sent in place of trained tensors, from which clients draw them again; None
            where they are sent.
    """

    passes: int = 2
    tangents: bool = False
    copies: int = 0
    gradients: bool = False
    scalars: tuple[int, int] | None = None

    @property
    def sends_weights(self) -> bool:
        """Whether clients send what they have trained."""
        return self.scalars is None and not self.gradients


def forward_pricing(
    model: Blocks, objective: Objective, train: Mapping[str, Any], image_size: int, forward: ForwardPasses
) -> Callable[..., ClientCost]:
    """price(holding, added=0) of such a client, as `fedbench.models.cost.pricing` has it; each measured once."""
    shape = Shape(model)

    def constant(layers: int) -> int:
        """Bytes of what a client with so many layers could keep; scalars say how to move pre-trained tensors."""
        return shape.frozen_bytes(layers) + (_pretrained(model, layers) if forward.scalars is not None else 0)

    def price(holding: Holding, added: int = 0) -> ClientCost:
        flops, alive = _of_a_pass(shape, holding, objective, image_size, forward.tangents)
        frozen_bytes, sizes = shape.frozen_bytes(holding.depth), tensor_sizes(shape, holding)
        outside, layer = constant(0), constant(1) - constant(0)
        held, trained = sum(s.held for s in sizes), sum(s.trained for s in sizes)
        at_once = images_at_once(train)
        head = head_bytes(shape, holding, objective, at_once * image_size)
        words = outside if model.reads_texts else 0
        rest = constant(holding.depth) - words - added
        frozen = (Sent("embedding", words), Sent("backbone", rest), Sent("additions", added))
        if forward.scalars is not None:
            tuned: tuple[Sent, ...] = (Sent("scalars", *forward.scalars),)
        else:
            kinds = {"adapters": [s for s in sizes if not s.reads], "classifiers": [s for s in sizes if s.reads]}
            up = 0 if forward.gradients else 1
            tuned = tuple(Sent(k, sum(s.held for s in of), up * sum(s.trained for s in of)) for k, of in kinds.items())
            tuned += (Sent("gradients", trained, trained),) if forward.gradients else ()
        sent = tuple(one for one in (*frozen, *tuned) if one.down or one.up)
        return ClientCost(
            flops_per_image=forward.passes * flops,
            bytes_down=sum(one.down for one in sent),
            bytes_up=sum(one.up for one in sent),
            memory_bytes=frozen_bytes + held + forward.copies * trained + head + at_once * alive,
            sent=sent,
            batch=at_once,
            passes=((head, alive),),
            frozen=Frozen(words, outside - words, layer),
        )

    return functools.cache(price)


def _pretrained(model: Blocks, layers: int) -> int:
    """Bytes of the pre-trained tensors that such a client trains, counted as `Blocks.frozen_bytes` counts others."""
    own = [
        (f"{path}.", p.nbytes)
        for path, module in model.model.named_modules()
        for p in getattr(module, "plain_state", dict)().values()
        if isinstance(p, nn.Parameter) and p.requires_grad
    ]
    outside = sum(nbytes for path, nbytes in own if not path.startswith("blocks."))
    return outside + layers * sum(nbytes for path, nbytes in own if path.startswith("blocks.0."))


def _of_a_pass(
    shape: Shape, holding: Holding, objective: Objective, image_size: int, tangents: bool
) -> tuple[int, int]:
    """FLOPs of one image's forward pass, and the bytes that exist at once at most while it is computed."""
    model = shape.model
    unused = list(unused_layers(model, holding.depth))

    def on(device: str) -> tuple[int, int]:
        copied = blank(model, unused, device, training=tangents)
        cut_to(copied, holding)
        image, target = one_image(copied, image_size)
        w = {name: p.detach() for name, p in copied.named_parameters() if p.requires_grad}
        v = {name: torch.zeros_like(p) for name, p in w.items()}

        def answers(x: Tensor, w: dict[str, Tensor]) -> list[Any]:
            made: list[Any] = functional_call(copied, w, (x, range(holding.depth), holding.exits))
            return [getattr(one, "states", one) for one in made]

        @torch.no_grad()
        def derived() -> None:
            jvp(functools.partial(answers, image), (w,), (v,))

        @torch.no_grad()
        def passed(B: int) -> None:
            x, y = image.repeat(B, *[1] * (image.dim() - 1)), target.repeat(B, *[1] * (target.dim() - 1))
            objective(copied(x, range(holding.depth), holding.exits), y, 0)

        few, many = (most_alive(functools.partial(passed, B)) for B in (FEW, 2 * FEW))  # without what all images share
        flops, _ = count(copied, derived if tangents else functools.partial(passed, 1))
        return flops, (2 if tangents else 1) * (many - few) // FEW  # every number has a tangent

    key = ("forward", tangents, holding, identity(objective), image_size, shape.dropouts)
    found: tuple[int, int] = once(model.origin, shape.parameters, key, lambda: quickest(on, model, image_size, unused))
    return found
