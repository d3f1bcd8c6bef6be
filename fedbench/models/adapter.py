"""Where adapters attach, and the dropout they share: seeded, so that every engine draws the same masks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws, drawn_by
from fedbench.options import Text
from fedbench.words import meant

# What an adapter's option `targets` takes that `resolve_targets` is to resolve.
SIGNS = frozenset("*+?|()[]^$\\")  # of a regular expression, which no name of a module has
Module = Annotated[str, Text("the name of a module")]
Targets = Annotated[str, Text("last_fc, reference, or the name of a module")] | list[Module]


def resolve_targets(blocks: Blocks, targets: str | Sequence[str]) -> list[tuple[nn.Module, str]]:
    """The (parent, attribute) of every module to adapt.

    Args:
        blocks: The model.
        targets: `last_fc`; `reference`, which also takes the patch embedding's convolution as the FedRA code's name
            pattern does; or names of modules within a layer (`attn.qkv`), or outside (`patch_embed.proj`). As in peft,
            the last parts of a name are enough (`query`), and text with signs of a regular expression is one, for
            whole names (`attention.*(query|value)`).

    Raises:
        UserError: for a name that matches nothing.
    """
    if isinstance(targets, str) and targets not in ("last_fc", "reference"):
        targets = [targets]
    if isinstance(targets, str):
        names = list(last_fc(blocks))
        if targets == "reference" and hasattr(blocks.model, "patch_embed"):
            names.append("patch_embed.proj")
    else:
        names = list(targets)
    found: list[tuple[nn.Module, str]] = []
    for name in names:
        inside = [place for layer in blocks.blocks if (place := _place(layer, name))]
        if len(inside) == blocks.num_layers:
            found.extend(inside)
        elif outside := _place(blocks.model, name):
            found.append(outside)
        elif all(ending := [_ending_so(layer, name) for layer in blocks.blocks]):
            found.extend(place for places in ending for place in places)
        else:
            raise UserError(_no_such_module(blocks, name), option="targets")
    for parent, attribute in found:
        if attribute == "qkv" and getattr(parent, "qkv_bias_separate", None) is False and parent.q_bias is not None:
            raise UserError(
                f"{type(parent).__name__} reads the weight of its qkv and never calls it, so that an adapter there "
                "would do nothing; adapt attn.proj or the MLP",
                option="targets",
            )
    return found


def last_fc(blocks: Blocks) -> tuple[str, str]:
    """The names within a layer of the last fully connected layer of both sub-layers, l_i^0 and l_i^1 (FedRA, Sec. 3.2):
    of the one that mixes tokens, and of the MLP."""
    return blocks.layered.last_fc


def _ending_so(layer: nn.Module, name: str) -> list[tuple[nn.Module, str]]:
    """Where the modules of a layer stand whose names end so, or fit the regular expression."""
    names = [path for path, _ in layer.named_modules()]
    if SIGNS.intersection(name):
        try:
            fitting = [path for path in names if re.fullmatch(name, path)]
        except re.error as error:
            raise UserError(f"adapter.targets: {name!r} is no regular expression: {error}", option="targets") from error
    else:
        fitting = [path for path in names if path.endswith(f".{name}")]
    return [place for path in fitting if path and (place := _place(layer, path))]


def _place(root: nn.Module, name: str) -> tuple[nn.Module, str] | None:
    *path, attribute = name.split(".")
    try:
        parent = root.get_submodule(".".join(path))
    except AttributeError:
        return None
    return (parent, attribute) if isinstance(getattr(parent, attribute, None), nn.Module) else None


def _no_such_module(blocks: Blocks, name: str) -> str:
    linear = [path for path, module in blocks.blocks[0].named_modules() if isinstance(module, nn.Linear)]
    hint = f"{meant(name, linear)} known: {', '.join(linear)}".lstrip()
    return f"adapter.targets: no module is called {name!r} in {type(blocks.model).__name__}; {hint}"


@dataclass(frozen=True)
class LowRank:
    """What a low-rank adapter adds to a frozen layer: (alpha / r) B A next to W (Hu et al., arXiv 2106.09685).

    Attributes:
        weight: W (out, in), or (out, in, kh, kw) of a convolution.
        bias: the layer's own, or None.
        A: (r, in) or (r, in, kh, kw).
        B: (out, r) or (out, r, 1, 1).
        dropout: of its input. A module that has a method `low_rank` with this answer can be exported.
    """

    weight: Tensor
    bias: Tensor | None
    A: Tensor
    B: Tensor
    alpha: float
    dropout: float

    @property
    def rank(self) -> int:
        return len(self.A)

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W + (alpha / r) B A, in the shape of W."""
        product = self.B.flatten(1) @ self.A.flatten(1)
        return self.weight + self.alpha / self.rank * product.view_as(self.weight)


class SeededDropout(nn.Module):
    """Inverted dropout whose masks come from a generator the engine sets for each client; without it, the identity.

    all_kept: whether masks are ones, for what counts shapes alone.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generator: Draws | torch.Generator | None = None
        self.all_kept = False

    def forward(self, x: Tensor, stack: Stack | None = None) -> Tensor:
        """x (B, ...); with a stack the rows of each client draw from that client's generator."""
        if self.p == 0 or (self.generator is None and stack is None and not self.all_kept):
            return x
        return x * self._mask(x, stack).to(x.dtype) / (1 - self.p)

    def _mask(self, x: Tensor, stack: Stack | None) -> Tensor:
        if self.all_kept:
            return torch.ones_like(x, dtype=torch.bool)
        if stack is None:
            assert self.generator is not None  # `forward` has seen to it
            stack = Stack({}, [len(x)], [self.generator])
        if stack.lengths is not None:
            return self._of_lengths(x, stack, stack.lengths)
        shape = x.shape[1:] if stack.tokens is None else (stack.tokens, *x.shape[2:])
        numbers = drawn_by(stack.draws, [B * math.prod(shape) for B in stack.sizes])
        keep = numbers.view(-1, *shape) >= self.p
        return keep[:, : x.shape[1]] if stack.tokens else keep  # the class token's part of the masks of all tokens

    def _of_lengths(self, x: Tensor, stack: Stack, lengths: Sequence[int]) -> Tensor:
        """Masks (B_n, T_n, ...) as each client draws them by itself, behind which there is nothing but padding."""
        shapes = [(B, T, *x.shape[2:]) for B, T in zip(stack.sizes, lengths, strict=True)]
        keep = x.new_zeros(x.shape, dtype=torch.bool)
        numbers = drawn_by(stack.draws, [math.prod(shape) for shape in shapes])
        for rows, own, shape in zip(
            keep.split(list(stack.sizes)), numbers.split([math.prod(s) for s in shapes]), shapes, strict=True
        ):
            rows[:, : shape[1]] = own.view(shape) >= self.p
        return keep


@dataclass(frozen=True)
class Stack:
    """The adapters of several clients, for one forward pass over all their rows.

    Attributes:
        values[name]: (n, ...) one row for each client.
        sizes: how many rows of the batch are each client's.
        draws: their generators.
        tokens: T, where masks are to be drawn for all tokens though fewer pass.
        lengths: of texts, how many tokens of each client's batch are no padding of others'. A module that has an
            attribute `stack` promises to use it; the cohort engine sets it for the time of a pass.
    """

    values: dict[str, Tensor]
    sizes: Sequence[int]
    draws: Sequence[Draws | torch.Generator]
    tokens: int | None = None
    lengths: Sequence[int] | None = None

    @property
    def even(self) -> bool:
        """Whether every client has equally many rows, and products can be batched."""
        return len(set(self.sizes)) == 1

    def within(self, path: str) -> Stack:
        """The part that belongs to the module at `path`, under its own parameter names."""
        own = {
            name.removeprefix(f"{path}."): value for name, value in self.values.items() if name.startswith(f"{path}.")
        }
        return Stack(own, self.sizes, self.draws, self.tokens, self.lengths)

    def for_rows(self, name: str, x: Tensor) -> Tensor:
        """(B, 1, ..., *shape) in the type of x: each client's value (*shape,) of that name, once for every one of its
        rows of x (B, ..., *shape), so that both can be added or multiplied."""
        value = self.values[name].to(x.dtype)
        if self.even:
            rows = value.repeat_interleave(len(x) // len(value), 0)
        else:
            rows = torch.cat([own.expand(B, *own.shape) for own, B in zip(value.unbind(), self.sizes, strict=True)])
        return rows.view(len(rows), *[1] * (x.dim() - value.dim()), *value.shape[1:])

    def map(self, x: Tensor, apply: Callable[..., Tensor]) -> Tensor:
        """apply(rows of x, the client's own values), client after client, put together again."""
        parts = x.split(list(self.sizes))
        return torch.cat([apply(part, {k: v[i] for k, v in self.values.items()}) for i, part in enumerate(parts)])


@contextmanager
def stacked(root: nn.Module, stack: Stack) -> Iterator[None]:
    """Let the modules under `root` that own values of the stack use them."""
    paths = {name.rpartition(".")[0] for name in stack.values}
    modules = {path: cast(Any, root.get_submodule(path)) for path in paths}
    for path, module in modules.items():
        module.stack = stack.within(path)
    try:
        yield
    finally:
        for module in modules.values():
            module.stack = None


def fold(blocks: Blocks) -> None:
    """Let every adapter that can (it has `fold`) add itself to the frozen weight it stands on, until its values
    change: what it computes stays the same, for less work."""
    for module in blocks.modules():
        add = getattr(module, "fold", None)
        if module is not blocks and add is not None:
            add()


def drops_out(blocks: Blocks) -> bool:
    """Whether an adapter draws masks of dropout."""
    return any(isinstance(module, SeededDropout) and module.p > 0 for module in blocks.modules())


def seed_dropout(blocks: Blocks, generator: Draws | torch.Generator | None) -> None:
    """Let every adapter's dropout draw from `generator` (in the order of the forward pass), or switch it off
    with None."""
    for module in blocks.modules():
        if isinstance(module, SeededDropout):
            module.generator = generator
