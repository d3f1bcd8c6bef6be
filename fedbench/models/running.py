"""What it takes to run a model: bytes that are needed at once to answer one image, measured from shapes alone."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedbench.models.backbone import Blocks
from fedbench.models.counting import Model, blank, one_image, quickest
from fedbench.models.lowrank import pairs
from fedbench.models.places import holds, layer_of, name_of
from fedbench.types import Exit


def to_answer(
    model: Model,
    answer: Callable[[Model, Tensor], Any],
    image_size: int,
    unused: Iterable[nn.Module] = (),
    training: bool = False,
) -> int:
    """Bytes, beside weights, that exist at once at most while answer(model, x (1, 3, H, W)) computes: the image and
    what is made of it, attention scores included (fused kernels do not keep them). unused: parts of the model that the
    answer does not call · training: whether dropout has masks."""

    def on(device: str) -> int:
        twin = blank(model, unused, device, training)
        x, _ = one_image(twin, image_size)
        with torch.no_grad():
            return int(x.nbytes) + most_alive(lambda: answer(twin, x))

    return quickest(on, model, image_size, unused)


def most_alive(work: Callable[[], Any]) -> int:
    """Bytes that exist at once at most of what work() computes."""
    alive = _Alive()
    with alive:
        work()
    return alive.most


def to_run(model: Blocks, depth: int, exits: Sequence[Exit], image_size: int, rank: int | None = None) -> int:
    """Bytes that a device needs to answer one image with so many layers and these classifiers: frozen weights,
    adapters, which are not merged into them, classifiers, and `to_answer`.

    rank: how many rank-one terms of low-rank adapters it holds, by default all. All layers of a ViT or Mixer are of one
    size.
    """
    axes = {place: axis for pair in pairs(model) for place, axis in ((pair.A, 0), (pair.B, 1))}
    classifiers, own = {exit.classifier for exit in exits}, 0
    for place, p in model.trained().items():
        if _is_held(place, depth, classifiers):
            terms = p.shape[axes[place]] if place in axes else 1
            own += p.nbytes * (terms if rank is None else min(rank, terms)) // terms
    unused = model.blocks[depth:] if type(model).forward is Blocks.forward else ()  # another may call them all
    computing = to_answer(model, lambda twin, x: twin(x, range(depth), exits), image_size, unused)
    return model.frozen_bytes(depth) + own + computing


def to_run_all(model: Model, weights: Iterable[Tensor], answer: Callable[[Model, Tensor], Any], image_size: int) -> int:
    """The same of a model that is there as a whole, with these of its weights."""
    return sum(w.nbytes for w in weights) + to_answer(model, answer, image_size)


def _is_held(place: str, depth: int, classifiers: Iterable[str]) -> bool:
    """Whether the first so many layers with these classifiers have the tensor that stands there."""
    j = layer_of(place)
    return holds(classifiers, name_of(place)) if j is None else j < depth


class _Alive(TorchDispatchMode):
    """Counts the bytes of what is computed inside, as long as anybody holds it. most: the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.holders: Counter[int] = Counter()  # tensors of each piece of memory, by its address in torch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `counting.Counter`."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(made):
            if isinstance(one, Tensor):
                self._hold(one, given)
        self.most = max(self.most, self.now)
        return made

    def _hold(self, one: Tensor, given: set[int]) -> None:
        storage = one.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in given and address not in self.holders:  # a view of a weight, or of the image
            return
        if not self.holders[address]:
            self.now += size
        self.holders[address] += 1
        weakref.finalize(one, self._let_go, address, size)

    def _let_go(self, address: int, size: int) -> None:
        self.holders[address] -= 1
        if not self.holders[address]:
            del self.holders[address]
            self.now -= size
