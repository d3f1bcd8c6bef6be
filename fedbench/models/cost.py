"""What a client pays, and what a server that trains with it: FLOPs counted by torch, bytes on the wire, memory.
Measured on the meta device, from shapes alone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from fedbench.models.backbone import Blocks
from fedbench.models.optimizer import optimizer_states
from fedbench.models.places import holds
from fedbench.types import ClientCost, Exit, Objective, Sent

Model = TypeVar("Model", bound=nn.Module)

# What a client's regulariser keeps for every trained tensor: where it started, and FedDyn's g_n. Neither travels.
_REGULARIZER_COPIES = {"fedprox": 1, "feddyn": 2}

# What this process has measured: a plan meets the same model at the same depth in many cells.
_measured: dict[Hashable, tuple[int, int]] = {}


def measure(
    model: Blocks,
    layers: Sequence[int],
    exits: Sequence[Exit],
    objective: Objective,
    train: Mapping[str, Any],
    image_size: int,
) -> ClientCost:
    """The cost of a client that holds `layers` and the classifiers of `exits`."""
    flops, activations = _one_image(model, layers, exits, objective, image_size)
    classifiers = {exit.classifier for exit in exits}
    shared = {name: p for name, p in model.shared().items() if holds(classifiers, name)}
    read_out = sum(p.nbytes for name, p in shared.items() if not name.startswith("model."))
    trained_bytes = sum(p.nbytes for p in (*shared.values(), *(p for j in layers for p in model.r(j).values())))
    frozen_bytes = model.frozen_bytes(len(layers))
    copies = 2 + optimizer_states(train["optimizer"]) + regularizer_copies(train)
    return ClientCost(
        flops_per_image=flops,
        bytes_down=frozen_bytes + trained_bytes,
        bytes_up=trained_bytes,
        memory_bytes=frozen_bytes + copies * trained_bytes + train["batch_size"] * activations,
        sent=tuple(
            Sent(what, down, up)
            for what, down, up in (
                ("backbone", frozen_bytes, 0),
                ("adapters", trained_bytes - read_out, trained_bytes - read_out),
                ("classifiers", read_out, read_out),
            )
            if down
        ),
    )


def regularizer_copies(train: Mapping[str, Any]) -> int:
    """How many tensors a client's regulariser keeps for every trained one."""
    return sum(_REGULARIZER_COPIES[name] for name in train.get("regularizer") or {})


def activations(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Objective, image_size: int
) -> int:
    """Bytes that autograd saves for one image, attention scores included (fused kernels do not keep them)."""
    return _one_image(model, layers, exits, objective, image_size)[1]


def _one_image(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Objective, image_size: int
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


def _alike(blocks: nn.Sequential) -> bool:
    """Whether every block has the same modules and the same parameters, trainable in the same places."""

    def shape(block: nn.Module) -> list[Hashable]:
        modules = [(name, type(module)) for name, module in block.named_modules()]
        return modules + [(name, p.shape, p.requires_grad) for name, p in block.named_parameters()]

    first = shape(blocks[0])
    return all(shape(block) == first for block in blocks[1:])


def _measured_once(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Objective, image_size: int
) -> tuple[int, int]:
    if model.origin is None:
        return _measure(model, layers, exits, objective, image_size)
    parameters = tuple((name, p.shape, p.requires_grad) for name, p in model.named_parameters())
    key = (model.origin, parameters, tuple(layers), tuple(exits), _identity(objective), image_size)
    if key not in _measured:
        _measured[key] = _measure(model, layers, exits, objective, image_size)
    return _measured[key]


def _identity(objective: Callable[..., Any]) -> Hashable:
    """Equal for one function with the same options."""
    if isinstance(objective, functools.partial):
        return objective.func, repr(objective.args), repr(sorted(objective.keywords.items()))
    return objective


def _measure(
    model: Blocks, layers: Sequence[int], exits: Sequence[Exit], objective: Objective, image_size: int
) -> tuple[int, int]:
    return counted(model, lambda twin, x, y: objective(twin(x, layers, exits), y, 0), image_size)


def counted(model: nn.Module, loss: Callable[[Any, Tensor, Tensor], Tensor], image_size: int) -> tuple[int, int]:
    """FLOPs, and bytes of saved activations, of loss(model, x (1, 3, H, W), y (1,)) and its backward pass, counted on
    the meta device."""
    twin = on_meta(model)
    x, y = one_image(twin, image_size)
    return count(twin, lambda: loss(twin, x, y).backward())


def on_meta(model: Model) -> Model:
    """A copy that has shapes alone, with attention as explicit products, which the counter knows on every device."""
    twin = copy.deepcopy(model).to("meta")
    module: Any  # timm has the attribute in every kind of attention
    for module in twin.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return twin


def one_image(model: nn.Module, image_size: int) -> tuple[Tensor, Tensor]:
    """x (1, 3, H, W) and y (1,) on the meta device."""
    like = next(model.parameters()).dtype
    x = torch.empty(1, 3, image_size, image_size, device="meta", dtype=like)
    return x, torch.zeros(1, dtype=torch.long, device="meta")


def count(model: nn.Module, work: Callable[[], Any]) -> tuple[int, int]:
    """FLOPs of work(), and the bytes that autograd saves in it, but for the model's weights."""
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    saved: dict[int, int] = {}

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(remember, lambda tensor: tensor):
        work()
    return counter.get_total_flops(), sum(saved.values())


def layer_costs(model: Blocks, image_size: int) -> Tensor:
    """(L,) float64: FLOPs of one image through each layer, forward and backward. All layers of a ViT or Mixer
    cost the same."""
    head = next(iter(model.classifiers))

    def flops(depth: int) -> int:
        return _one_image(model, range(depth), [Exit(depth, head)], lambda o, y, t: o[0].sum(), image_size)[0]

    one = flops(2) - flops(1) if model.num_layers > 1 else flops(1)
    return torch.full((model.num_layers,), float(one), dtype=torch.float64)
