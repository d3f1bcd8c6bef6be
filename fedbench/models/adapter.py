"""Where adapters attach, and the dropout they share: seeded, so that every engine draws the same masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Protocol, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.models.draws import Draws, drawn_by
from fedbench.options import Text
from fedbench.words import meant

# The last fully connected layer of each sub-layer, l_i^0 and l_i^1 (FedRA, Sec. 3.2), in timm's names.
LAST_FC = {"VisionTransformer": ("attn.proj", "mlp.fc2"), "MlpMixer": ("mlp_tokens.fc2", "mlp_channels.fc2")}


# What an adapter's option `targets` takes that `resolve_targets` is to resolve.
Module = Annotated[str, Text("the name of a module")]
Targets = Annotated[str, Text("last_fc, reference, or the name of a module")] | list[Module]


def resolve_targets(blocks: Blocks, targets: str | Sequence[str]) -> list[tuple[nn.Module, str]]:
    """The (parent, attribute) of every module to adapt.

    targets: `last_fc`; `reference`, which also takes the patch embedding's convolution as the FedRA code's
    name pattern does; or module names within a layer (`attn.qkv`), or outside (`patch_embed.proj`). Raises
    UserError for a name that matches nothing.
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
        else:
            raise UserError(_no_such_module(blocks, name), option="targets")
    return found


def last_fc(blocks: Blocks) -> tuple[str, str]:
    """The names within a layer of the last fully connected layer of both sub-layers, the one that mixes tokens and the
    MLP. Raises UserError for a model that is neither a ViT nor a Mixer."""
    for kind in type(blocks.model).__mro__:
        if kind.__name__ in LAST_FC:
            return LAST_FC[kind.__name__]
    raise UserError(
        f"last_fc is not defined for {type(blocks.model).__name__}: name the modules in adapter.targets",
        option="targets",
    )


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
    """What a low-rank adapter adds to a frozen layer: (alpha / r) B A beside W (Hu et al., arXiv 2106.09685).

    weight: W (out, in), or (out, in, kh, kw) of a convolution · bias: the layer's own, or None · A: (r, in) or
    (r, in, kh, kw) · B: (out, r) or (out, r, 1, 1) · dropout: of its input. A module that has a method `low_rank`
    with this answer can be exported.
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

    mask: has been drawn already, see `drawn` · all_kept: whether masks are ones, for what counts shapes alone · seen:
    where to note what comes in, in place of dropping any of it.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.generator: Draws | torch.Generator | None = None
        self.mask: Tensor | None = None
        self.all_kept = False
        self.seen: list[tuple[SeededDropout, torch.Size]] | None = None

    def forward(self, x: Tensor, stack: Stack | None = None) -> Tensor:
        """x (B, ...); with a stack the rows of each client draw from that client's generator."""
        if self.seen is not None:
            self.seen.append((self, x.shape[1:]))
            return x
        if self.p == 0 or (self.generator is None and stack is None and not self.all_kept):
            return x
        mask: Tensor = self._mask(x, stack) if self.mask is None else self.mask
        return x * mask.to(x.dtype) / (1 - self.p)

    def _mask(self, x: Tensor, stack: Stack | None) -> Tensor:
        if self.all_kept:
            return torch.ones_like(x, dtype=torch.bool)
        if stack is None:
            assert self.generator is not None  # `forward` has seen to it
            stack = Stack({}, [len(x)], [self.generator])
        keep = self.draw_masks(x.shape[1:] if stack.tokens is None else (stack.tokens, *x.shape[2:]), stack)
        return keep[:, : x.shape[1]] if stack.tokens else keep  # the class token's part of the masks of all tokens

    def draw_masks(self, shape: Sequence[int], stack: Stack) -> Tensor:
        """(B, *shape) bool: which inputs are kept, the rows of each client drawn from its own generator."""
        drawn = stack.sizes if stack.drawn is None else stack.drawn
        numbers = drawn_by(stack.draws, [B * math.prod(shape) for B in drawn])
        keep = numbers.view(-1, *shape) >= self.p
        return keep if list(drawn) == list(stack.sizes) else filled_up(keep.split(list(drawn)), stack.sizes[0])


_inputs: WeakKeyDictionary[nn.Module, tuple[torch.Size, list[tuple[SeededDropout, torch.Size]]]] = WeakKeyDictionary()


@contextmanager
def drawn(root: nn.Module, x: Tensor, stack: Stack) -> Iterator[None]:
    """Inside, the dropouts under `root` find their masks drawn, in the order in which root(x) meets them: a pass that
    is compiled cannot draw."""
    dropouts = [module for module in root.modules() if isinstance(module, SeededDropout) and module.p > 0]
    for module, shape in _met(root, x, dropouts) if dropouts else ():
        module.mask = module.draw_masks(shape, stack)
    try:
        yield
    finally:
        for module in dropouts:
            module.mask = None


def _met(root: nn.Module, x: Tensor, dropouts: Sequence[SeededDropout]) -> list[tuple[SeededDropout, torch.Size]]:
    """The dropouts in the order of a forward pass, and the shape of one row of what comes in; asked of the model once
    for a shape."""
    known = _inputs.get(root)
    if known is None or known[0] != x.shape[1:]:
        seen: list[tuple[SeededDropout, torch.Size]] = []
        try:
            for module in dropouts:
                module.seen = seen
            with torch.no_grad():
                root(x)
        finally:
            for module in dropouts:
                module.seen = None
        known = _inputs[root] = x.shape[1:], seen
    return known[1]


@dataclass(frozen=True)
class Stack:
    """The adapters of several clients, for one forward pass over all their rows.

    values[name]: (n, ...) one row for each client · sizes: how many rows of the batch are each client's ·
    draws: their generators · tokens: T, where masks are to be drawn for all tokens though fewer pass · drawn: for how
    many of its rows each client draws masks, where others fill up its batch. A module that has an attribute `stack`
    promises to use it; the cohort engine sets it for the time of a pass.
    """

    values: dict[str, Tensor]
    sizes: Sequence[int]
    draws: Sequence[Draws | torch.Generator]
    tokens: int | None = None
    drawn: Sequence[int] | None = None
    even: bool = field(init=False)  # whether every client has equally many rows, and products can be batched

    def __post_init__(self) -> None:
        object.__setattr__(self, "even", len(set(self.sizes)) == 1)

    def within(self, path: str) -> Stack:
        """The part that belongs to the module at `path`, under its own parameter names."""
        own = {
            name.removeprefix(f"{path}."): value for name, value in self.values.items() if name.startswith(f"{path}.")
        }
        return Stack(own, self.sizes, self.draws, self.tokens, self.drawn)

    def beside(self, name: str, x: Tensor) -> Tensor:
        """(B, 1, ..., *shape) in the type of x: each client's value (*shape,) of that name, once for every one of its
        rows of x (B, ..., *shape), so that both can be added or multiplied."""
        value = self.values[name].to(x.dtype)
        if self.even:  # asked of shapes, which may differ from pass to pass of a compiled layer
            rows = value.repeat_interleave(len(x) // len(value), 0)
        else:
            rows = torch.cat([own.expand(B, *own.shape) for own, B in zip(value.unbind(), self.sizes, strict=True)])
        return rows.view(len(rows), *[1] * (x.dim() - value.dim()), *value.shape[1:])

    def map(self, x: Tensor, apply: Callable[..., Tensor]) -> Tensor:
        """apply(rows of x, the client's own values), client after client, put together again."""
        parts = x.split(list(self.sizes))
        return torch.cat([apply(part, {k: v[i] for k, v in self.values.items()}) for i, part in enumerate(parts)])


def filled_up(parts: Sequence[Tensor], most: int) -> Tensor:
    """Parts of at most so many rows each one after the other, the short ones filled up with rows of the longest, which
    nobody reads: any are good that are numbers."""
    longest = max(parts, key=len)
    fill = longest if len(longest) == most else longest.repeat(-(-most // len(longest)), *[1] * (longest.dim() - 1))
    fills = {B: fill[B:most] for B in {len(part) for part in parts} - {most}}
    return torch.cat([piece for part in parts for piece in (part, fills.get(len(part))) if piece is not None])


class Stackable(Protocol):
    """A module that can use a stack."""

    stack: Stack | None


class Foldable(Protocol):
    """An adapter that may stand in the frozen weight. settled: whether it does, where that has been asked already."""

    settled: bool | None

    def is_folded(self) -> bool: ...


@contextmanager
def stacked(root: nn.Module, stack: Stack) -> Iterator[None]:
    """Let the modules under `root` that own values of the stack use them."""
    paths = {name.rpartition(".")[0] for name in stack.values}
    modules = {path: cast(Stackable, root.get_submodule(path)) for path in paths}
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


@contextmanager
def settled(root: nn.Module) -> Iterator[None]:
    """Inside, adapters under `root` that say whether they are folded (`is_folded`) know it as `settled`: a pass that is
    compiled cannot ask."""
    modules = [cast(Foldable, module) for module in root.modules() if hasattr(module, "is_folded")]
    for module in modules:
        module.settled = module.is_folded()
    try:
        yield
    finally:
        for module in modules:
            module.settled = None


def seed_dropout(blocks: Blocks, generator: Draws | torch.Generator | None) -> None:
    """Let every adapter's dropout draw from `generator` (in the order of the forward pass), or switch it off
    with None."""
    for module in blocks.modules():
        if isinstance(module, SeededDropout):
            module.generator = generator
