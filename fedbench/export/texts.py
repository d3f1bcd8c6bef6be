"""Models of texts in exports: the Python that makes and asks the plain model, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedbench.errors import UserError
from fedbench.models.layered import PADDING, Pretrained, Tokenizer
from fedbench.registry.registry import Registry

SAMPLE = [("a b", "What is compared is a pair of texts."), ("Another one, with numbers: 1 2 3.", "c")]
POOLED = {
    "cls": "    return model.head(hidden[:, 0])",
    "last": "    return model.head(hidden[torch.arange(len(hidden)), batch['attention_mask'].sum(1) - 1])",
    "mean": "    counted = batch['attention_mask'].unsqueeze(-1)\n"
    "    return model.head((hidden * counted).sum(1) / counted.sum(1))",
}


@dataclass(frozen=True)
class TextBackbone:
    """The backbone of a cell of texts, and how it is made outside of fedbench's simulation.

    Attributes:
        root: the backbone itself.
        tokenizer: its own.
        backbone: the cell's configuration of it.
        max_length: tokens of a text that are kept.
        registry: of the cell's plugins. Where root has an attribute `pretrained`, the plain model is that of
            `transformers`; else it is made by fedbench, and must give pooled features.
    """

    root: Any
    tokenizer: Tokenizer
    backbone: Mapping[str, Any]
    max_length: int
    registry: Registry

    def __post_init__(self) -> None:
        if self.pretrained is None and not callable(getattr(type(self.root), "forward", None)):
            raise UserError(f"{type(self.root).__name__} cannot be exported: its forward gives no pooled features")

    @property
    def pretrained(self) -> Pretrained | None:
        """Which model of `transformers` it is made of."""
        return cast("Pretrained | None", getattr(self.root, "pretrained", None))

    @property
    def names(self) -> Mapping[str, str]:
        """What the plain model calls the parts of the root."""
        return self.pretrained.names if self.pretrained else {}

    @property
    def sample(self) -> Tensor:
        """Ids (2, T) of two pairs of unequal length, on which models are compared."""
        rows = [torch.tensor(row) for row in self.tokenizer(SAMPLE, self.max_length)]
        return pad_sequence(rows, batch_first=True, padding_value=PADDING)

    def answer(self, model: nn.Module, x: Tensor) -> Tensor:
        """Ids (B, T) -> the logits (B, C) of a plain model."""
        head = cast(nn.Linear, model.head)
        if self.pretrained is None:
            return head(model(x))
        mask = self.root.mask(x)
        hidden = model(**self.root.inputs(x), attention_mask=mask.long()).last_hidden_state
        return head(self.root.read(hidden, mask))

    def base(self, layers: Sequence[int], num_classes: int, features: int) -> str:
        """The lines that make the backbone of these layers, its weights loaded, with a classifier that is not."""
        if self.pretrained:
            given = f", revision={self.pretrained.revision!r}" if self.pretrained.revision else ""
            lines = (
                "import torch\nfrom transformers import AutoModel, AutoTokenizer\n"
                f"name = {self.pretrained.name!r}\n"
                f"model = AutoModel.from_pretrained(name{given}, dtype='float32', use_safetensors=True).eval()\n"
                f"tokenizer = AutoTokenizer.from_pretrained(name{given})"
            )
        else:
            files = [str(file) for file in self.registry.files.values()]
            lines = (
                f"import torch\nfrom fedbench.registry.registry import Registry\n"
                f'source = Registry({files or ""}).make("backbone", {dict(self.backbone)!r})\n'
                "model, tokenizer = source.model.eval(), source.tokenizer"
            )
        blocks = "model." + self.names.get("blocks", "blocks")
        if list(layers) == list(range(len(layers))):
            if len(layers) < len(self.root.blocks):
                lines += f"\n{blocks} = {blocks}[:{len(layers)}]"
        else:
            lines += f"\n{blocks} = torch.nn.ModuleList([{blocks}[j] for j in {list(layers)}])"
        return f"{lines}\nmodel.head = torch.nn.Linear({features}, {num_classes})"

    def model(self, layers: Sequence[int], num_classes: int, features: int) -> nn.Module:
        """What the lines of `base` make."""
        if self.pretrained:
            name, revision = self.pretrained.name, self.pretrained.revision
            given = {"revision": revision} if revision else {}
            auto = import_module("transformers").AutoModel
            model = auto.from_pretrained(name, **given, dtype="float32", use_safetensors=True).eval()
        else:
            model = self.registry.make("backbone", dict(self.backbone)).model.eval()
        name = self.names.get("blocks", "blocks")
        blocks = model.get_submodule(name)
        if list(layers) != list(range(len(blocks))):
            model.set_submodule(name, nn.ModuleList([blocks[j] for j in layers]))
        model.head = nn.Linear(features, num_classes)
        return cast(nn.Module, model)

    def whole(self, folder: str, layers: Sequence[int], num_classes: int, features: int) -> str:
        """The lines that make a model of these layers for weights that are loaded; `transformers` reads how from the
        configuration in the folder."""
        if self.pretrained is None:
            return self.base(layers, num_classes, features)
        given = "".join(f", {name}={value!r}" for name, value in self.pretrained.options.items())
        revision = f", revision={self.pretrained.revision!r}" if self.pretrained.revision else ""
        return (
            "import torch\nfrom transformers import AutoConfig, AutoModel, AutoTokenizer\n"
            f"model = AutoModel.from_config(AutoConfig.from_pretrained({folder!r}){given}).eval()\n"
            f"tokenizer = AutoTokenizer.from_pretrained({self.pretrained.name!r}{revision})\n"
            f"model.head = torch.nn.Linear({features}, {num_classes})"
        )

    def whole_model(self, folder: str, layers: Sequence[int], num_classes: int, features: int) -> nn.Module:
        """What the lines of `whole` make."""
        if self.pretrained is None:
            return self.model(layers, num_classes, features)
        transformers: Any = import_module("transformers")
        config = transformers.AutoConfig.from_pretrained(folder)
        model = transformers.AutoModel.from_config(config, **self.pretrained.options).eval()
        model.head = nn.Linear(features, num_classes)
        return cast(nn.Module, model)

    def asking(self) -> str:
        """The lines of a function of texts, which gives logits."""
        if self.pretrained is None:
            return (
                "def logits(texts):  # or pairs of texts\n"
                f"    rows = [torch.tensor(row) for row in tokenizer(texts, {self.max_length})]\n"
                f"    return model.head(model(torch.nn.utils.rnn.pad_sequence(rows, True, {PADDING})))"
            )
        return (
            "tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token\n"
            "def logits(*columns):  # of texts: one list, or two for pairs\n"
            "    batch = tokenizer(*columns, return_tensors='pt', padding=True, padding_side='right',\n"
            f"                      truncation=True, max_length={self.max_length})\n"
            "    hidden = model(**batch).last_hidden_state\n" + POOLED[self.root.pooling]
        )

    def config(self, layers: Sequence[int]) -> dict[str, Any]:
        """The configuration of a model of these layers alone, by which `transformers` makes it."""
        if self.pretrained is None:
            return {}
        config = self.pretrained.config.to_dict()
        for name, value in config.items():
            if isinstance(value, list) and len(value) == len(self.root.blocks):  # something of each layer
                config[name] = [value[j] for j in layers]
        depth = self.pretrained.config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
        return config | {depth: len(layers), "dtype": "float32", "architectures": [self.pretrained.kind]}


@dataclass(frozen=True)
class PlainText:
    """What makes a plain model of texts, in place of timm's `Architecture`. make: takes the number of classes."""

    name: str
    make: Callable[[int], nn.Module]
    args: Mapping[str, Any] = field(default_factory=dict)
