"""FLOPs, saved activations and memory of a piece of work, counted from shapes alone.

Values make no difference to them, and so the work is done where that is quickest: a small model's on the CPU, where
torch's kernels take microseconds, any other's on the meta device, whose kernels are Python.
"""

from __future__ import annotations

import collections
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from fedbench.models.adapter import SeededDropout
from fedbench.models.backbone import Blocks, Body, Model, copy_of
from fedbench.models.lowrank import pairs
from fedbench.models.param_paths import holds, layer_of, name_of
from fedbench.types import Exit

Found = TypeVar("Found")

SMALL = 2_000_000  # parameters, up to which a model is counted on the CPU
SIDE = 64  # pixels, of images that are counted there
BATCH = 32  # images, of which there are enough for activations to outweigh the weights' own gradients


class Elsewhere(Exception):
    """The CPU has an operator of its own for this, which the meta device has not."""


def _elsewhere(*shapes: Any, **others: Any) -> int:
    """In the place of a formula. Raises Elsewhere."""
    raise Elsewhere


ATTENTION_OF_CPUS = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _elsewhere}


def counted(
    model: nn.Module,
    loss: Callable[..., Tensor],
    image_size: int,
    unused: Iterable[nn.Module] = (),
    recomputes: bool = False,
) -> tuple[int, int]:
    """FLOPs, and bytes of saved activations, of loss(model, x (1, 3, H, W), y (1,)) and its backward pass.

    Args:
        unused: parts of the model that the loss does not call.
        recomputes: whether layers are computed again in the backward pass.
    """

    def on(device: str) -> tuple[int, int]:
        copied = blank(model, unused, device, training=True)
        x, y = one_image(copied, image_size)
        return count(copied, lambda: loss(copied, x, y).backward(), recomputes)

    return quickest(on, model, image_size, unused)


def quickest(on: Callable[[str], Found], model: nn.Module, image_size: int, unused: Iterable[nn.Module] = ()) -> Found:
    """What on(device) gives, on the CPU where the model is small and that works there.

    The head of next tokens is multiplied by a kernel of the CPU that the counter does not know.
    """
    left_out = sum(p.numel() for part in unused for p in part.parameters())
    there = not getattr(model, "predicts_tokens", False)
    if there and image_size <= SIDE and sum(p.numel() for p in model.parameters()) - left_out <= SMALL:
        # As the default device, a mode stands around every call of torch, which doubles what they take.
        elsewhere = torch.get_default_device().type != "cpu"
        try:
            with torch.random.fork_rng(devices=[]), torch.device("cpu") if elsewhere else nullcontext():
                return on("cpu")
        except Exception:  # the meta device says what is wrong, if anything is
            return on("meta")
    return on("meta")


def blank(model: Model, unused: Iterable[nn.Module] = (), device: str = "meta", training: bool = False) -> Model:
    """A copy in shape, all zeros, with attention as explicit products, which the counter knows on every device.

    Args:
        unused: parts in whose place it has nothing.
        training: whether dropout has masks, as while a client trains.
    """
    made: dict[int, Any] = {id(part): nn.Identity() for part in unused}
    own = (p for p in _used(model, made) if type(p) is nn.Parameter)
    made |= {id(p): nn.Parameter(torch.zeros(p.shape, dtype=p.dtype, device=device), p.requires_grad) for p in own}
    made |= {id(b): torch.zeros_like(b, device=device) for b in model.buffers() if type(b) is Tensor}
    copied = copy_of(model, made).to(device)
    module: Any  # timm has the attribute in every kind of attention
    for module in copied.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
        if isinstance(module, SeededDropout):
            module.all_kept = training
    return copied


def _used(module: nn.Module, left_out: Mapping[int, Any]) -> Iterator[nn.Parameter]:
    """The parameters of a model but for those of parts that are left out."""
    yield from module.parameters(recurse=False)
    for part in module.children():
        if id(part) not in left_out:
            yield from _used(part, left_out)


def one_image(model: nn.Module, image_size: int) -> tuple[Tensor, Tensor]:
    """x (1, 3, H, W), or of a model of texts (1, T), and y (1,), or next tokens (1, T), on the model's device."""
    bodies = (module for module in model.modules() if isinstance(module, Body))
    if (body := next(bodies, None)) is not None:
        return body.example(image_size), body.target(image_size)
    x = next(model.parameters()).new_zeros(1, 3, image_size, image_size)
    return x, torch.zeros(1, dtype=torch.long, device=x.device)


def count(model: nn.Module, work: Callable[[], Any], recomputes: bool = False) -> tuple[int, int]:
    """FLOPs of work(), and the bytes that autograd saves in it, but for the model's weights. recomputes: of layers the
    inputs alone, and of one layer at a time what it holds while it is computed again, for one more forward pass."""
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    saved: dict[int, tuple[int, int]] = {}  # bytes, and in which layer, by the address of the storage
    inputs, forward = [Tensor()], [0]  # of layers in the order in which they are called; before them stands none
    called: list[Callable[[Tensor], Tensor]] = [lambda tokens: tokens]
    inside = 0  # the number of the layer that is being called

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved.setdefault(storage._cdata, (storage.nbytes(), inside))
        return tensor

    def layer(blocks: Blocks, j: int, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        nonlocal inside
        inputs.append(tokens)
        inside, before = len(inputs) - 1, counter.get_total_flops()
        called.append(functools.partial(type(blocks).layer, blocks, j, mask=mask))
        out = called[-1](tokens)
        forward.append(counter.get_total_flops() - before)
        inside = 0
        return out

    for part in model.modules() if recomputes else ():
        if "recomputes" in vars(part):  # it is computed once, and what would be computed again is added
            vars(part)["recomputes"] = None
        if isinstance(part, Blocks):
            vars(part)["layer"] = functools.partial(layer, part)
    counter = FlopCounterMode(display=False, custom_mapping=ATTENTION_OF_CPUS)
    for hooks in ("__enter__", "__exit__"):  # which find an operator's module, and take longer than the operator
        setattr(counter.mod_tracker, hooks, lambda: None)
    with counter, saved_tensors_hooks(remember, lambda tensor: tensor):
        work()
    flops = counter.get_total_flops()
    if not recomputes:
        return flops, sum(size for size, _ in saved.values())
    storages = [tokens.untyped_storage() for tokens in inputs]
    kept = {storage._cdata for storage in storages}
    own = [(size, where) for at, (size, where) in saved.items() if at not in kept]
    each = [sum(size for size, where in own if where == j) for j in range(len(inputs))]
    again = [j for j in range(1, len(inputs)) if each[j]]
    largest = max(range(len(inputs)), key=lambda j: each[j] if j else 0)
    held = each[0] + sum(storages[j].nbytes() for j in again)
    held += _there_and_back(called[largest], inputs[largest], weights) if again else 0
    return flops + sum(forward[j] for j in again), held


def _there_and_back(layer: Callable[[Tensor], Tensor], tokens: Tensor, weights: set[int]) -> int:
    """Bytes for each image that exist at once at most while a layer is computed and gone back through, without its
    input.

    Args:
        tokens: of one image.
        weights: addresses of what is not counted.
    """

    def most(B: int) -> int:
        x = tokens.new_zeros(B, *tokens.shape[1:]).requires_grad_(tokens.requires_grad)
        alive, outside = _Alive(), weights | {x.untyped_storage()._cdata}

        def remember(tensor: Tensor) -> Tensor:
            alive.hold(tensor, outside)
            return tensor

        with alive, saved_tensors_hooks(remember, lambda tensor: tensor):
            out = layer(x)
            out.backward(torch.empty_like(out))
        return alive.most

    most(1)  # gradients of weights are kept from step to step
    few, many = (most(B) for B in (BATCH, 2 * BATCH))
    return (many - few) // BATCH


def to_answer(
    model: Model,
    answer: Callable[[Model, Tensor], Any],
    image_size: int,
    unused: Iterable[nn.Module] = (),
    training: bool = False,
) -> int:
    """Bytes, without weights, that exist at once at most while answer(model, x (1, 3, H, W)) computes: the image and
    what is made of it, attention scores included (fused kernels do not keep them).

    Args:
        unused: parts of the model that the answer does not call.
        training: whether dropout has masks.
    """

    def on(device: str) -> int:
        copied = blank(model, unused, device, training)
        x, _ = one_image(copied, image_size)
        with torch.no_grad():
            return int(x.nbytes) + most_alive(lambda: answer(copied, x))

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
        j = layer_of(place)
        if holds(classifiers, name_of(place)) if j is None else j < depth:
            terms = p.shape[axes[place]] if place in axes else 1
            own += p.nbytes * (terms if rank is None else min(rank, terms)) // terms
    unused = model.blocks[depth:] if type(model).forward is Blocks.forward else ()  # another may call them all
    computing = to_answer(model, lambda copied, x: copied(x, range(depth), exits), image_size, unused)
    return model.frozen_bytes(depth) + own + computing


def to_run_all(model: Model, weights: Iterable[Tensor], answer: Callable[[Model, Tensor], Any], image_size: int) -> int:
    """The same of a model that is there as a whole, with these of its weights."""
    return sum(w.nbytes for w in weights) + to_answer(model, answer, image_size)


class _Alive(TorchDispatchMode):
    """Counts the bytes of what is computed inside, as long as anybody holds it. most: the most at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.holders = collections.Counter[int]()  # tensors of each piece of memory, by its address in torch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(made):
            if isinstance(one, Tensor):
                self.hold(one, given)
        self.most = max(self.most, self.now)
        return made

    def hold(self, one: Tensor, given: set[int]) -> None:
        """Count a tensor from now on, unless it is a view of what is given."""
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
