"""What a client pays: FLOPs counted by torch, bytes on the wire, memory. Measured on the meta device, from
shapes alone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from fedbench.backbone import Blocks, holds
from fedbench.types import Exit

# Tensors an optimiser keeps for every trained one.
_OPTIMIZER_STATES = {"sgd": 1, "adamw": 2}

# And what a client's regulariser keeps: where it started, and FedDyn's g_n. Neither travels.
_REGULARIZER_COPIES = {"fedprox": 1, "feddyn": 2}

# What this process has measured: a plan meets the same model at the same depth in many cells.
_measured: dict[Hashable, tuple[int, int]] = {}


@dataclass(frozen=True)
class ClientCost:
    """One client in one round.

    flops_per_image: forward and backward of one image (2 FLOPs a multiply-add) · bytes_down: frozen layers,
    adapters and classifiers sent to the client; the frozen part is counted in every round, as FedRA's step 2
    sends it · bytes_up: adapters and classifiers sent back · memory_bytes: parameters, gradients, optimiser
    state, what a regulariser keeps, and the activations saved for a batch (an estimate: allocator and workspace
    are not in it).
    """

    flops_per_image: int
    bytes_down: int
    bytes_up: int
    memory_bytes: int


def measure(
    model: Blocks,
    layers: Sequence[int],
    exits: Sequence[Exit],
    objective: Callable,
    train: Mapping[str, Any],
    image_size: int,
) -> ClientCost:
    """The cost of a client that holds `layers` and the classifiers of `exits`."""
    flops, activations = _one_image(model, layers, exits, objective, image_size)
    classifiers = {exit.classifier for exit in exits}
    trained = [p for j in layers for p in model.r(j).values()]
    trained += [p for name, p in model.shared().items() if holds(classifiers, name)]
    trained_bytes = sum(p.numel() * p.element_size() for p in trained)
    frozen_bytes = model.frozen_bytes(len(layers))
    optimizer, regularizer = train["optimizer"], train.get("regularizer") or {}
    states = 0 if optimizer["name"] == "sgd" and not optimizer["momentum"] else _OPTIMIZER_STATES[optimizer["name"]]
    kept = sum(_REGULARIZER_COPIES[name] for name in regularizer)
    return ClientCost(
        flops_per_image=flops,
        bytes_down=frozen_bytes + trained_bytes,
        bytes_up=trained_bytes,
        memory_bytes=frozen_bytes + (2 + states + kept) * trained_bytes + train["batch_size"] * activations,
    )


def activations(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Callable, image_size: int
) -> int:
    """Bytes that autograd saves for one image, attention scores included (fused kernels do not keep them)."""
    return _one_image(model, layers, exits, objective, image_size)[1]


def _one_image(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Callable, image_size: int
) -> tuple[int, int]:
    """FLOPs and bytes of saved activations for one image.

    Where all layers are alike, one layer more costs the same wherever it stands: two shallow models with the
    same exits, layer after layer, tell what a deep one costs, to the last FLOP.
    """
    m, depths = len(exits), [exit.depth for exit in exits]
    shallow = depths[-1] == m or depths[0] < 1 or depths != sorted(set(depths))
    if shallow or depths[-1] != len(layers) or not _alike(model.blocks):
        return _measured_once(model, layers, exits, objective, image_size)
    near, far = (
        _measured_once(
            model,
            range(m + more),
            [Exit(i + 1 + more, exit.classifier) for i, exit in enumerate(exits)],
            objective,
            image_size,
        )
        for more in (0, 1)
    )
    left_out = depths[-1] - m
    return near[0] + left_out * (far[0] - near[0]), near[1] + left_out * (far[1] - near[1])


def _alike(blocks: Sequence[nn.Module]) -> bool:
    """Whether every block has the same modules and the same parameters, trainable in the same places."""

    def shape(block: nn.Module) -> list[Hashable]:
        modules = [(name, type(module)) for name, module in block.named_modules()]
        return modules + [(name, p.shape, p.requires_grad) for name, p in block.named_parameters()]

    first = shape(blocks[0])
    return all(shape(block) == first for block in blocks[1:])


def _measured_once(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Callable, image_size: int
) -> tuple[int, int]:
    if model.origin is None:
        return _measure(model, layers, exits, objective, image_size)
    parameters = tuple((name, p.shape, p.requires_grad) for name, p in model.named_parameters())
    key = (model.origin, parameters, tuple(layers), tuple(exits), _identity(objective), image_size)
    if key not in _measured:
        _measured[key] = _measure(model, layers, exits, objective, image_size)
    return _measured[key]


def _identity(objective: Callable) -> Hashable:
    """Equal for one function with the same options."""
    if isinstance(objective, functools.partial):
        return objective.func, repr(objective.args), repr(sorted(objective.keywords.items()))
    return objective


def _measure(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Callable, image_size: int
) -> tuple[int, int]:
    """Count one forward and backward pass on the meta device."""
    twin = copy.deepcopy(model).to("meta")
    for module in twin.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False  # explicit products, which the counter knows on every device
    weights = {p.untyped_storage()._cdata for p in twin.parameters()}
    saved: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    x = torch.empty(1, 3, image_size, image_size, device="meta", dtype=next(twin.parameters()).dtype)
    y = torch.zeros(1, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(remember, lambda tensor: tensor):
        objective(twin(x, layers, exits), y, 0).backward()
    return counter.get_total_flops(), sum(saved.values())


def layer_costs(model: Blocks, image_size: int) -> Tensor:
    """(L,) float64: FLOPs of one image through each layer, forward and backward. All layers of a ViT or Mixer
    cost the same."""
    head = next(iter(model.classifiers))

    def flops(depth: int) -> int:
        return _one_image(model, range(depth), [Exit(depth, head)], lambda o, y, t: o[0].sum(), image_size)[0]

    one = flops(2) - flops(1) if model.num_layers > 1 else flops(1)
    return torch.full((model.num_layers,), float(one), dtype=torch.float64)
