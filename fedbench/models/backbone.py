"""A pre-trained model: cut into layers that can be left out, with the classifiers that read them, or as a whole."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fedbench.errors import NotApplicable, UserError
from fedbench.models.draws import Draws
from fedbench.models.layered import Decoder, Layered, Mask, Packing, Tokenizer, cut, is_layered
from fedbench.models.tokens import TokenStates
from fedbench.types import Exit

HEAD = "head"  # the classifier at the end of every model
Begin = Literal["pretrained", "random"]
STARTS = get_args(Begin)

Found = TypeVar("Found")
Model = TypeVar("Model", bound=nn.Module)
Parameters = tuple[tuple[str, Hashable, bool], ...]
_found: dict[Hashable, Any] = {}  # what `once` keeps


@dataclass(frozen=True)
class Architecture:
    """How timm makes such a model.

    Attributes:
        name: One that `timm.create_model` knows, or a class as `module:Class`.
        args: Its arguments but for num_classes.
        layers: How many of its `blocks` are kept, the first ones; None for all.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    layers: int | None = None

    def make(self, num_classes: int) -> nn.Module:
        """The model, its weights drawn from torch's current random state."""
        import timm

        module, _, kind = self.name.rpartition(":")
        make = getattr(import_module(module), kind) if module else functools.partial(timm.create_model, self.name)
        made: nn.Module = make(num_classes=num_classes, **self.args)
        if self.layers is not None:
            cast(Any, made).blocks = cast(Any, made).blocks[: self.layers]
        return made


@dataclass(frozen=True)
class Source:
    """What a backbone plugin returns.

    Attributes:
        model: A timm model without its classifier: a VisionTransformer, Eva or MlpMixer, which can be cut into layers,
            or any other whose forward gives pooled features (B, D). Or a `fedbench.models.layered.Layered`, which a
            model of texts is.
        image_size: Pixels a side; of a model of texts, how many tokens it takes at most.
        mean: Per channel, for images in [0, 1].
        std: Per channel.
        fingerprint: Identifies the weights, and enters the identity of every cell.
        architecture: How timm makes the model again, where it is to be exported with its weights.
        tokenizer: Makes tokens of texts; None for a model of images.
    """

    model: nn.Module
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fingerprint: str
    architecture: Architecture | None = None
    tokenizer: Tokenizer | None = None


class Classifier(nn.Linear):
    """A linear read-out of pooled features, drawn as nn.Linear draws itself, but from a given generator."""

    def draw(self, generator: torch.Generator) -> None:
        bound = self.in_features**-0.5
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)


class Body(nn.Module):
    """A model without its classifier, frozen until somebody trains it, and the classifiers that read it.

    origin: what it is made of, and its adapters once they are attached, where known; what models of one origin cost is
    measured once. num_features: D, how many pooled features an image has: what `pooled` gives, and a classifier reads.
    Raises UserError where the model remembers what it has seen, or is of half precision.
    """

    def __init__(self, model: nn.Module, num_features: int, origin: str | None = None) -> None:
        if any(getattr(module, "running_mean", None) is not None for module in model.modules()):
            raise UserError(
                f"{type(model).__name__} keeps running statistics (batch norm), which no client's own training could "
                "average; take a model with group norm (try resnet50_gn)"
            )
        if half := next((p.dtype for p in model.parameters() if p.dtype in (torch.bfloat16, torch.float16)), None):
            kind, dtype = type(model).__name__, str(half).removeprefix("torch.")
            raise UserError(f"{kind} has parameters of {dtype}; a backbone's are float32, as costs count them")
        super().__init__()
        self.model = model.requires_grad_(False)
        self.num_features, self.origin = num_features, origin
        self.classifiers = nn.ModuleDict()
        self.predicts_tokens = False

    @property
    def reads_texts(self) -> bool:
        """Whether its inputs are the ids of tokens, (B, T) int64, and not images, (B, 3, H, W)."""
        return bool(getattr(self.model, "reads_texts", False))

    def example(self, size: int) -> Tensor:
        """One input of so many pixels a side, or tokens, all zeros."""
        like = next(self.model.parameters())
        if self.reads_texts:
            return torch.zeros(1, size, dtype=torch.int64, device=like.device)
        return like.new_zeros(1, 3, size, size)

    def target(self, size: int) -> Tensor:
        """The class of that input, (1,), or its next tokens, (1, T), all of which count; zeros."""
        shape = (1, size) if self.predicts_tokens else (1,)
        return torch.zeros(shape, dtype=torch.int64, device=self.device)

    def predict_tokens(self) -> None:
        """Let exits be read by the frozen head that the decoder came with. Raises UserError for another model."""
        if not (self.reads_texts and hasattr(type(self.model), "open_head")):
            raise UserError(
                f"{type(self.model).__name__} predicts no next tokens: that takes a decoder, such as micro_llama, "
                "smollm2_135m, or with `hf` a Llama, Qwen, Mistral or GPT-2"
            )
        self.decoder.open_head()
        self.model.requires_grad_(False)
        self.predicts_tokens = True

    @property
    def decoder(self) -> Decoder:
        """The model by what a decoder can do besides."""
        return cast(Decoder, self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def add_classifier(self, name: str, num_classes: int) -> None:
        """Add a trainable classifier; of a model that predicts tokens an exit, which its frozen head reads."""
        like = next(self.model.parameters())
        if self.predicts_tokens:
            self.classifiers[name] = nn.Identity()
            return
        self.classifiers[name] = Classifier(self.num_features, num_classes).to(like.device, like.dtype)

    def draw(self, generator: torch.Generator) -> None:
        """Initialise from one generator all that knows how (`draw`): adapters and classifiers."""
        device = self.device
        for module in self.modules():
            draw = getattr(module, "draw", None)
            if module is not self and draw is not None:
                drawn = [p for p in module.parameters() if p.requires_grad and p.device != generator.device]
                for parameter in drawn:
                    parameter.data = parameter.data.to(generator.device)  # a GPU would draw other numbers
                draw(generator)
                for parameter in drawn:
                    parameter.data = parameter.data.to(device)


class Blocks(Body):
    """theta: a frozen backbone whose L layers can be run in any ascending selection S_n, as FedRA's clients do
    (Sec. 3.5).

    Adapters are put inside `blocks` (they become r_j) or elsewhere (they are shared); classifiers read the
    features after any number of layers through the frozen final norm. bases: the weights as they came, where something
    is added to them, see `fedbench.models.lowrank`. recomputes: who draws while layers are computed again in the
    backward pass, see `recomputed`; None where their activations are kept. packs: whether texts pass without padding,
    see `Packing`.
    """

    def __init__(self, model: nn.Module, origin: str | None = None) -> None:
        if (layers := cut(model)) is None:
            raise UserError(
                f"{type(model).__name__} cannot be cut into layers: needed is a timm VisionTransformer, Eva or "
                "MlpMixer (try vit_base_patch16_224 or mixer_b16_224)"
            )
        super().__init__(model, layers.num_features, origin)
        self.wrapper: Callable[[nn.Module], Any] | None = None if is_layered(model) else type(layers)
        self.bases: dict[str, Tensor] = {}
        self.recomputes: Sequence[Draws] | None = None
        self.packs = False

    @property
    def layered(self) -> Layered:
        """The model by what a model in layers can do."""
        return cast(Layered, self.model if self.wrapper is None else self.wrapper(self.model))

    @property
    def blocks(self) -> nn.Sequential:
        return cast(nn.Sequential, self.model.blocks)

    @property
    def num_layers(self) -> int:
        """L, how many layers it can be cut into."""
        return len(self.blocks)

    def embed(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) or ids (B, T) -> (B, T, D); what are features already, (B, D), stays so."""
        return x if x.is_floating_point() and x.dim() == 2 else self.layered.embed(x)

    def mask(self, x: Tensor) -> Tensor | None:
        """Which of the ids (B, T) are tokens of their text, (B, T) bool; None for anything else."""
        return None if x.is_floating_point() else self.layered.mask(x)

    def embedded(self, x: Tensor) -> tuple[Tensor, Mask]:
        """(B, 3, H, W) or ids (B, T) -> what the first layer takes: hidden states (B, T, D) or packed, and their
        mask."""
        return self.packed(self.embed(x), self.mask(x))

    def packed(self, tokens: Tensor, mask: Tensor | None) -> tuple[Tensor, Mask]:
        """Hidden states (B, T, D) and their mask, as they are or without padding, (1, N, D), where `packs` says so."""
        if mask is None or not self.packs:
            return tokens, mask
        packing = Packing.of(mask)
        return packing.packed(tokens), packing

    def layer(self, j: int, tokens: Tensor, mask: Mask = None) -> Tensor:
        """(B, T, D) -> what layer j makes of them, (B, T, D)."""
        if self.recomputes is None:
            return self.layered.run(j, tokens, mask)
        return recomputed(lambda x: self.layered.run(j, x, mask), tokens, self.recomputes)

    @torch.no_grad()
    def tokens(self, size: int) -> int:
        """T, for inputs of that size."""
        return self.embed(self.example(size)).shape[1]

    def features(self, tokens: Tensor, mask: Mask = None) -> Tensor:
        """(B, T, D) -> (B, D): the frozen final norm, then the model's pooling. Features stay what they are. Where the
        model predicts tokens, after the norm alone, (B, T, D)."""
        if isinstance(mask, Packing):
            tokens, mask = mask.padded(tokens), mask.mask
        if self.predicts_tokens:
            return self.decoder.states(tokens)
        return tokens if tokens.dim() == 2 else self.layered.pool(tokens, mask)

    def answer(self, name: str, features: Tensor) -> Tensor:
        """Features (B, D) -> the logits (B, C) of the classifier of that name. Where the model predicts tokens, what
        its head is to read, `TokenStates`, which stands in their place."""
        if self.predicts_tokens:
            return cast(Tensor, TokenStates(features, self.decoder.vocabulary))
        logits: Tensor = self.classifiers[name](features)
        return logits

    def pooled(self, x: Tensor, layers: Sequence[int] | None = None) -> Tensor:
        """(B, 3, H, W) or ids (B, T) -> (B, D): the features after these layers, by default after all."""
        tokens, mask = self.embedded(x)
        for j in range(self.num_layers) if layers is None else layers:
            tokens = self.layer(j, tokens, mask)
        return self.features(tokens, mask)

    def forward(self, x: Tensor, layers: Sequence[int], exits: Sequence[Exit]) -> list[Tensor]:
        """(B, 3, H, W) or ids (B, T) -> the logits (B, C) of every exit, running only `layers`, in order. It takes
        features (B, D), too, where `reads_features` says so."""
        if x.is_floating_point() and x.dim() == 2:
            return [self.answer(exit.classifier, x) for exit in exits]
        at: dict[int, list[str]] = {}
        for exit in exits:
            at.setdefault(exit.depth, []).append(exit.classifier)
        (tokens, mask), logits = self.embedded(x), {}
        for depth in range(len(layers) + 1):
            if depth > 0:
                tokens = self.layer(layers[depth - 1], tokens, mask)
            if depth in at:
                features = self.features(tokens, mask)
                logits.update({name: self.answer(name, features) for name in at[depth]})
        return [logits[exit.classifier] for exit in exits]

    def reads_features(self, layers: Sequence[int], exits: Sequence[Exit]) -> bool:
        """Whether such a model is classifiers upon features of all layers in which nothing is trained, nor added to:
        what they read of an image never changes."""
        last = len(layers) == self.num_layers and all(exit.depth == self.num_layers for exit in exits)
        last = last and not self.predicts_tokens
        return last and not self.bases and not any(p.requires_grad for p in self.model.parameters())

    def r(self, j: int) -> dict[str, nn.Parameter]:
        """r_j: the trainable parameters standing in layer j, by name."""
        return {name: p for name, p in self.blocks[j].named_parameters() if p.requires_grad}

    def shared(self) -> dict[str, nn.Parameter]:
        """What is trained outside the layers: `head.weight`, `exit3.bias`, `model.patch_embed.proj.lora_A`, ..."""
        outside = {
            name: p for name, p in self.named_parameters() if p.requires_grad and not name.startswith("model.blocks.")
        }
        return {name.removeprefix("classifiers."): p for name, p in outside.items()}

    def trained(self) -> dict[str, nn.Parameter]:
        """r_j of every layer and what is shared, by place: `r/<layer>/<name>`, `shared/<name>`."""
        inside = {f"r/{j}/{name}": p for j in range(self.num_layers) for name, p in self.r(j).items()}
        return inside | {f"shared/{name}": p for name, p in self.shared().items()}

    def frozen_bytes(self, layers: int) -> int:
        """Bytes of the frozen parameters a client with that many layers is sent: embedding, layers and norm.

        Layers are equal in size, so that only their number counts.
        """
        frozen = [(name, p) for name, p in self.model.named_parameters() if not p.requires_grad]
        outside = sum(p.nbytes for name, p in frozen if not name.startswith("blocks."))
        return outside + layers * sum(p.nbytes for name, p in frozen if name.startswith("blocks.0."))


def recomputed(run: Callable[[Tensor], Tensor], x: Tensor, draws: Sequence[Draws] = ()) -> Tensor:
    """run(x), of which the backward pass keeps x alone and computes the rest again, with the numbers that the first
    time was given (activation checkpointing, Chen et al., 2016, arXiv 1604.06174). draws: of the clients whose rows
    pass."""
    if not torch.is_grad_enabled():
        return run(x)
    begun = [one.state() for one in draws]
    passes = iter((False, True))

    def again(x: Tensor) -> Tensor:
        if not next(passes, True):
            return run(x)
        now = [one.state() for one in draws]
        try:
            for one, state in zip(draws, begun, strict=True):
                one.resume(state)
            return run(x)
        finally:
            for one, state in zip(draws, now, strict=True):
                one.resume(state)

    out: Tensor = checkpoint(again, x, use_reentrant=False, preserve_rng_state=False)
    return out


class Plain(Body):
    """A model that is used as a whole, such as a ResNet; it counts as one layer.

    Raises UserError where its forward pass gives no pooled features.
    """

    num_layers = 1

    def __init__(self, model: nn.Module, origin: str | None = None, image_size: int | None = None) -> None:
        super().__init__(model, _width(model, image_size or _own_size(model)), origin)

    def pooled(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D)"""
        return cast(Tensor, self.model(x))


def body_of(model: nn.Module, origin: str | None = None, image_size: int | None = None) -> Blocks | Plain:
    """The model cut into layers, or as a whole where layer after layer would compute something else. Raises UserError.

    Args:
        origin: see `Body`.
        image_size: pixels a side of images that it takes, by default as its parts say.
    """
    if is_layered(model):
        return Blocks(model, origin)
    size = image_size or _own_size(model)
    if cut(model) is not None and once(
        origin, parameters_of(model), ("cut", size), lambda: _is_its_layers(model, size)
    ):
        return Blocks(model, origin)
    return Plain(model, origin, size)


def in_layers(body: Body) -> Blocks:
    """The body, where it is cut into layers. Raises NotApplicable."""
    if not isinstance(body, Blocks):
        raise NotApplicable(
            f"{type(body.model).__name__} cannot be cut into layers, and this method gives clients some of them"
        )
    return body


@torch.no_grad()
def _is_its_layers(model: nn.Module, image_size: int) -> bool:
    """Whether `pooled` is the model's own forward pass: tried on one image, in a copy with two layers and any weights,
    so that shapes alone say the same."""
    blocks, generator = cast(Any, model).blocks, torch.Generator().manual_seed(0)
    try:
        with torch.device("cpu"):  # where shapes alone are made, new tensors have no values
            copied = copy.deepcopy(model, {id(blocks): copy.deepcopy(blocks[:2])}).eval()
            like = next(copied.parameters())
            copied = copied.to_empty(device="cpu")
            for tensor in (*copied.parameters(), *copied.buffers()):
                bound = tensor[0].numel() ** -0.5 if tensor.dim() > 1 else 1.0
                tensor.uniform_(-bound, bound, generator=generator) if tensor.is_floating_point() else tensor.zero_()
            x = torch.randn(1, 3, image_size, image_size, generator=generator, dtype=like.dtype)
            cut, own = Blocks(copied).pooled(x), copied(x)
    except UserError:
        raise
    except Exception:  # whatever a model of another kind raises that is called in pieces
        return False
    return own.shape == cut.shape == (1, copied.num_features) and torch.allclose(cut, own, 1e-3, 1e-5, equal_nan=True)


@torch.no_grad()
def _width(model: nn.Module, image_size: int) -> int:
    """D of a model that is used as a whole, by what it makes of one image; as it says itself where it is shapes alone
    and takes none. Raises UserError."""
    kind, like = type(model).__name__, next(model.parameters())
    try:
        features = model(torch.ones(1, 3, image_size, image_size, dtype=like.dtype, device=like.device))
    except Exception as error:
        if like.is_meta and isinstance(D := getattr(model, "num_features", None), int):
            return D
        why = f"its forward pass takes no image of {image_size} pixels a side: {str(error).partition(chr(10))[0]:.200}"
        raise UserError(f"{kind} cannot be a backbone: {why}") from error
    if not isinstance(features, Tensor) or features.dim() != 2:
        given = f"a tensor {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise UserError(f"{kind} cannot be a backbone: its forward pass gives {given}, no pooled features (1, D)")
    return features.shape[1]


def _own_size(model: nn.Module) -> int:
    """Pixels a side of the images that a model is made for; 32 where its parts do not say."""
    parts = (getattr(model, name, None) for name in ("patch_embed", "stem"))
    return next((size[0] for part in parts if (size := getattr(part, "img_size", None))), 32)


def load(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    """Copy values into parameters of the same names."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])


def begin(body: Body, option: str, how: str, seed: int) -> None:
    """Leave the model's weights as the backbone came, or draw all of them again. Raises UserError for another `how`;
    option: what the user calls it."""
    if how not in STARTS:
        raise UserError(f"{option} is {' or '.join(STARTS)}, not {how!r}")
    if how == "random" and not next(body.model.parameters()).is_meta:  # shapes alone have nothing to draw
        redraw(body.model, seed)


@torch.no_grad()
def redraw(model: nn.Module, seed: int) -> None:
    """Draw all weights of a timm model again, as torch and timm draw such layers. Raises UserError where a parameter is
    drawn by neither, and leaves a model then that is of no use."""
    for parameter in model.parameters():
        parameter.fill_(math.nan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model.modules():
            if (reset := getattr(module, "reset_parameters", None)) is not None:
                reset()
        if (init := getattr(model, "init_weights", None)) is not None:
            init()
    for name, parameter in model.named_parameters():
        if parameter.isnan().any():
            raise UserError(
                f"{type(model).__name__} cannot be drawn again: nothing in it draws its parameter {name}; take "
                "`pretrained`, with a backbone of `pretrained: false` where no weights of others are wanted"
            )


def copy_of(model: Model, kept: Mapping[int, Any] = MappingProxyType({})) -> Model:
    """A copy of a model. It has new tables of hooks, a dozen in every module, since copying the empty ones takes longer
    than all else.

    kept: what takes the place of parts of it, by their ids, as `copy.deepcopy` has it.
    """
    of_modules = (value for module in model.modules() for value in vars(module).values())
    empty = [value for value in of_modules if isinstance(value, dict | set) and not value]
    return copy.deepcopy(model, {**{id(value): type(value)() for value in empty}, **kept})


def once(origin: str | None, parameters: Parameters, key: Hashable, find: Callable[[], Found]) -> Found:
    """What find() gives, kept for models of this origin (see `Body`) with these parameters; computed again where the
    origin is not known. key: what else it depends on."""
    if origin is None:
        return find()
    whole_key = (origin, parameters, key)
    if whole_key not in _found:
        _found[whole_key] = find()
    found: Found = _found[whole_key]
    return found


def parameters_of(model: nn.Module) -> Parameters:
    """All parameters by name, with their shapes, and whether they are trained."""
    return tuple((name, p.shape, p.requires_grad) for name, p in model.named_parameters())


def identity(function: Callable[..., Any]) -> Hashable:
    """Equal for one function with the same options."""
    if isinstance(function, functools.partial):
        return function.func, repr(function.args), repr(sorted(function.keywords.items()))
    return function
