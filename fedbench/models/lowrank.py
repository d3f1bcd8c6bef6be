"""The low-rank adapters of a model: where they stand, who holds and trains which of their rank-one terms, and what a
server has added to the frozen weights under them (FLoRA, FedEx-LoRA)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.models.param_paths import holders, layer_of, trainers
from fedbench.types import Plan

FROZEN = "frozen"  # under which a state keeps its additions, {place of the adapter: (out, in)}
ADDED = "added"  # and the ranks of those that were made last, {place: rank}


@dataclass(frozen=True)
class AdapterPair:
    """One low-rank adapter: the places of its factors A (R, ...) and B (out, R, ...), its own place, the module's, and
    alpha / R."""

    place: str
    A: str
    B: str
    rank: int
    scaling: float


_pairs_of: WeakKeyDictionary[Blocks, Sequence[AdapterPair]] = WeakKeyDictionary()


def pairs(model: Blocks) -> Sequence[AdapterPair]:
    """Every low-rank adapter of the model with a trained factor, in the order of the layers.

    They are looked for once: adapters stay as they were attached.
    """
    if not (found := _pairs_of.get(model, ())):  # none are attached yet
        found = _pairs_of[model] = [*_pairs(model)]
    return found


def _pairs(model: Blocks) -> Iterator[AdapterPair]:
    for path, module in _modules(model):
        own = module.low_rank()
        names = {id(p): _place(f"{path}.{name}") for name, p in module.named_parameters() if p.requires_grad}
        if id(own.A) in names and id(own.B) in names:
            yield AdapterPair(_place(path), names[id(own.A)], names[id(own.B)], own.rank, own.alpha / own.rank)


def rank_of(model: Blocks) -> int:
    """R, the one rank of all the model's low-rank adapters. Raises UserError where there is none, or not one."""
    ranks = sorted({pair.rank for pair in pairs(model)})
    if len(ranks) != 1:
        have = f"ranks {', '.join(map(str, ranks))}" if ranks else "none"
        raise UserError(
            f"unequal ranks need low-rank adapters of one rank; the model's have {have} (try adapter: lora)"
        )
    return ranks[0]


@contextmanager
def scaled(model: Blocks, scale: float | None) -> Iterator[None]:
    """Let every low-rank adapter multiply its product B A with `scale`; with None, with its own alpha / R."""
    if scale is None:
        yield
        return
    modules = [cast(Any, module) for _, module in _modules(model)]
    own = [module.scaling for module in modules]
    for module in modules:
        module.scaling = scale
    try:
        yield
    finally:
        for module, value in zip(modules, own, strict=True):
            module.scaling = value


def weights(model: Blocks) -> dict[str, Tensor]:
    """The frozen W under every low-rank adapter, by the adapter's place."""
    return {_place(path): module.low_rank().weight for path, module in _modules(model)}


@torch.no_grad()
def load_additions(model: Blocks, values: Mapping[str, Tensor] | None) -> None:
    """Let the model's frozen weights be W + addition where there is one, and W, to the bit, everywhere else.

    values: by the adapter's place (`r/<layer>/<module>`, `shared/<module>`), in the shape of its W. Raises UserError
    for a place where no low-rank adapter stands.
    """
    values = values or {}
    if not values and not model.bases:
        return
    under = weights(model)
    if unknown := [place for place in values if place not in under]:
        raise UserError(f"a frozen addition is meant for {unknown[0]}, where no low-rank adapter stands")
    for place in {*values, *model.bases}:
        weight = under[place]
        base = model.bases.setdefault(place, weight.detach().clone())
        weight.copy_(base + values[place].view_as(base) if place in values else base)
        if place not in values:
            del model.bases[place]


def bytes_added(state: Mapping[str, Any], plan: Plan) -> list[int]:
    """What the additions that were made last take of what each client is sent, those to the weights that it holds:
    factors of their rank, or the matrix where that is smaller. A client that kept the weights but missed rounds would
    need more.
    """
    bytes_of = [0] * len(plan.M)
    for place, rank in state.get(ADDED, {}).items():
        matrix = state[FROZEN][place]
        size = matrix.element_size() * min(matrix.numel(), rank * sum(matrix.flatten(1).shape))
        for n in holders(plan, place):
            bytes_of[n] += size
    return bytes_of


class Terms:
    """Which coordinates of every tensor a plan's clients hold and train, where it has rank-one terms.

    Shared adapters, which stand in no layer, have the terms that a client has in any of its layers.
    """

    def __init__(self, model: Blocks, plan: Plan) -> None:
        """Raises UserError where the plan speaks of other ranks than the model's."""
        self.plan, self.device = plan, model.device
        given = [terms for terms in (plan.terms, plan.trained_terms) if terms is not None]
        found = pairs(model) if given else []
        for pair in found:
            if any(terms.shape[-1] != pair.rank for terms in given):
                raise UserError(
                    f"the plan has {given[0].shape[-1]} rank-one terms, the adapter at {pair.place} {pair.rank}"
                )
        self.axes = {place: axis for pair in found for place, axis in ((pair.A, 0), (pair.B, 1))}

    def held(self, place: str, clients: Sequence[int], dim: int) -> Tensor | None:
        """(n, ...) bool over a tensor of `dim` axes with one row for each client; None where they hold all of it."""
        return self._mask(self.plan.terms, place, clients, dim)

    def trained(self, place: str, clients: Sequence[int], dim: int) -> Tensor | None:
        """The same of what they train."""
        trained = self.plan.trained_terms
        return self._mask(self.plan.terms if trained is None else trained, place, clients, dim)

    def of_uploads(self, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Which coordinates of its row each client trained, of every tensor of `sent` (n, ...) that has such terms."""
        masks = {}
        for place, rows in sent.items():
            mask = self.trained(place, trainers(self.plan, place), rows.dim() - 1)
            if mask is not None:
                masks[place] = mask
        return masks

    def _mask(self, terms: Tensor | None, place: str, clients: Sequence[int], dim: int) -> Tensor | None:
        if terms is None or place not in self.axes:
            return None
        layer = layer_of(place)
        rows = terms[list(clients)]
        rows = rows.any(1) if layer is None else rows[:, layer]  # (n, R)
        shape = [1] * dim
        shape[self.axes[place]] = rows.shape[-1]
        return rows.view(len(clients), *shape).to(self.device)


def _modules(model: Blocks) -> Iterator[tuple[str, Any]]:
    for path, module in model.model.named_modules():
        if hasattr(module, "low_rank"):
            yield path, module


def _place(path: str) -> str:
    """`r/3/attn.proj` of `blocks.3.attn.proj`; `shared/model.patch_embed.proj` of what stands outside the layers."""
    if path.startswith("blocks."):
        _, layer, name = path.split(".", 2)
        return f"r/{layer}/{name}"
    return f"shared/model.{path}"
