"""A model cut in three: the client's head H, the server's encoder E, the client's tail T (FedV, Sec. 3.1)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from typing import Any, cast

from torch import Tensor, nn

from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import HEAD, Blocks, Classifier, redraw
from fedbench.models.param_paths import of_classifier
from fedbench.seeding import generator, seed_of

AFTER = ("norm", "fc_norm", "attn_pool", "head_drop")  # what timm's models compute after their blocks


def after_layers(name: str) -> bool:
    """Whether a tensor outside the layers is used after them, by its name in `Blocks.shared`."""
    return of_classifier(name) or name.removeprefix("model.").split(".")[0] in (*AFTER, "lm_head")


class Cut:
    """w = (w_H, w_E, w_T) of a backbone with its classifier, and the three maps they are the weights of.

    Names are those of `Blocks.shared`: `model.blocks.3.norm1.weight`, `head.bias`. Raises UserError where nothing
    would remain for the server.

    Attributes:
        head_blocks: how many of the first blocks stand in H, behind the embedding of patches, tokens and positions.
        tail_blocks: how many of the last stand in T, before final norm, pooling and classifier; with none of them norm
            and pooling are the server's, and what it sends is (B, D).
        client_start: `random` or `pretrained`, see `start`.
        came: the weights that the backbone came with, where the model's are others by now.
    """

    def __init__(
        self,
        model: Blocks,
        num_classes: int,
        head_blocks: int = 0,
        tail_blocks: int = 0,
        client_start: str = "random",
        came: Mapping[str, Tensor] | None = None,
    ) -> None:
        if model.reads_texts:
            raise NotApplicable(
                "this method cuts models of images: clients would have to send the padding of texts, too"
            )
        if any(name.startswith("rope.") for name, _ in model.model.named_parameters()):
            raise NotApplicable("rotary positions that are learned are read on both sides of the cut, and sent by none")
        L = model.num_layers
        if head_blocks + tail_blocks >= L:
            raise UserError(
                f"head_blocks + tail_blocks is {head_blocks + tail_blocks}, but of the backbone's {L} blocks at least "
                f"one stays on the server: take at most {L - 1} together"
            )
        if HEAD not in model.classifiers:
            model.add_classifier(HEAD, num_classes)
        self.model, self.first, self.last = model, head_blocks, L - tail_blocks
        self.pools = tail_blocks == 0  # the server
        self._slots = {name: (slots, attribute) for name, slots, attribute in _parameters(model)}
        names = {part: [name for name in self._slots if self._part(name) == part] for part in ("H", "E", "T")}
        self.w_H, self.w_T, self.w_E = (self._now(names[part]) for part in ("H", "T", "E"))
        self.own_names = sorted([*names["H"], *names["T"]])
        for parameter in self.own.values():
            parameter.requires_grad_(True)
        self._given = None
        if client_start == "pretrained":
            begun = came or self.own
            self._given = {name: begun[name].detach().clone() for name in self.own if name.startswith("model.")}

    # --- the maps ---

    def H(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> h (B, T, D), the smashed features."""
        return self._through(self.model.embed(x), 0, self.first)

    def E(self, h: Tensor) -> Tensor:
        """Return b of h (B, T, D): (B, D), or (B, T, D) where the tail has blocks."""
        b = self._through(h, self.first, self.last)
        return self.model.features(b) if self.pools else b

    def T(self, b: Tensor) -> Tensor:
        """Return the logits (B, C) of the encoder's output b."""
        if not self.pools:
            b = self.model.features(self._through(b, self.last, self.model.num_layers))
        o: Tensor = self.model.classifiers[HEAD](b)
        return o

    def _through(self, tokens: Tensor, first: int, last: int) -> Tensor:
        for j in range(first, last):
            tokens = self.model.layer(j, tokens)
        return tokens

    # --- the weights ---

    @property
    def own(self) -> dict[str, nn.Parameter]:
        """(w_H, w_T) of the client whose turn it is."""
        return self._now(self.own_names)

    def wear(self, own: Mapping[str, Tensor]) -> None:
        """Compute with these (w_H, w_T), themselves and no copies of them."""
        for name in self.own_names:
            slots, attribute = self._slots[name]
            slots[attribute] = own[name]

    @property
    def server_modules(self) -> dict[str, nn.Module]:
        """The modules that w_E belongs to, by the prefix of its names."""
        blocks = {f"model.blocks.{j}": self.model.blocks[j] for j in range(self.first, self.last)}
        tops = {f"model.{name}": module for name, module in self.model.model.named_children() if name in AFTER}
        return blocks | (tops if self.pools else {})

    def _now(self, names: list[str]) -> dict[str, nn.Parameter]:
        found = ((name, *self._slots[name]) for name in names)
        return {name: slots[attribute] for name, slots, attribute in found}

    def _part(self, name: str) -> str:
        """H, E or T."""
        _, top, *rest = name.split(".")
        if not name.startswith("model."):
            return "T"
        if top == "blocks":
            return "H" if int(rest[0]) < self.first else "E" if int(rest[0]) < self.last else "T"
        return ("E" if self.pools else "T") if top in AFTER else "H"

    # --- where clients start ---

    def start(self, seed: int, client: int) -> dict[str, Tensor]:
        """(w_H, w_T) of a client that has never taken part, its own draw.

        `random`: all as timm draws such layers, and the classifier as nn.Linear does; `pretrained`: the classifier
        alone is drawn.
        """
        classifier = cast(Classifier, copy.deepcopy(self.model.classifiers[HEAD]).cpu())
        classifier.draw(generator(seed, client=client, use="classifier"))
        values: dict[str, Tensor] = {f"{HEAD}.{name}": p for name, p in classifier.named_parameters()}
        values |= self._given or self._drawn(seed_of(seed, client=client, use="client"))
        return {name: values[name].detach().to(self.model.device, copy=True) for name in self.own_names}

    @functools.cached_property
    def _template(self) -> nn.Module:
        """The model without the server's blocks; on the CPU, so that every device has the same draws."""
        model, blocks = self.model.model, self.model.blocks
        model.blocks = nn.Sequential(*(blocks[j] for j in self._own_blocks))
        try:
            return copy.deepcopy(model).cpu()
        finally:
            model.blocks = blocks

    @property
    def _own_blocks(self) -> list[int]:
        return [j for j in range(self.model.num_layers) if not self.first <= j < self.last]

    def _drawn(self, seed: int) -> dict[str, Tensor]:
        small = self._template
        redraw(small, seed)
        found: dict[str, Tensor] = {}
        for name, parameter in small.named_parameters():
            if name.startswith("blocks."):
                _, place, rest = name.split(".", 2)
                name = f"blocks.{self._own_blocks[int(place)]}.{rest}"
            found[f"model.{name}"] = parameter
        return found


def _parameters(model: Blocks) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every parameter's name, the parameters of the module it belongs to, and what it is called there."""
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield f"{path}.{name}".removeprefix("classifiers."), module._parameters, name
