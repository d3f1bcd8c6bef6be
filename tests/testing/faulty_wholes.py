"""Faulty adapters, backbones and data sets: what makes `it`, and what is to be said of it."""

from __future__ import annotations


def _adapter(
    forward: str = "return self.frozen(x) * self.s",
    init: str = "self.s = nn.Parameter(torch.ones(frozen.out_features))",
    draw: str = "nn.init.ones_(self.s)",
    attach: str = "",
) -> str:
    return f"""
from fedbench.models.adapter import resolve_targets

class Scaled(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen
        {init}

    def draw(self, generator):
        {draw}

    def forward(self, x):
        {forward}

def it():
    def attach(blocks):
        {attach or "pass"}
        for parent, attribute in resolve_targets(blocks, "last_fc"):
            setattr(parent, attribute, Scaled(getattr(parent, attribute)))
    return attach
"""


NOISY = "self.s = nn.Parameter(torch.randn(frozen.out_features))"
ADAPTERS = {
    "no draw": (
        _adapter(init=NOISY).replace("def draw", "def drawn"),
        r"starts elsewhere when the adapter is attached again: give its module a `draw\(generator\)`",
    ),
    "a draw by global chance": (
        _adapter(draw="nn.init.normal_(self.s)"),
        r"`draw` draws from a global generator \(of torch\); it must set every parameter from its generator",
    ),
    "torch's dropout": (
        _adapter("return self.s * torch.dropout(self.frozen(x), 0.5, True)"),
        "draws from a global generator .* dropout is fedbench.models.adapter.SeededDropout",
    ),
    "stack ignored": (
        _adapter(init="self.stack = None; self.s = nn.Parameter(torch.ones(frozen.out_features))"),
        "is not trained at all in the cohort engine, which is the default: `stack` promises",
    ),
    "a shared weight": (
        _adapter("return nn.functional.linear(x, self.s)", "self.s = nn.Parameter(frozen.weight.data)", "pass"),
        "thaws frozen parameters: blocks.0.attn.proj.weight",
    ),
    "nothing": ("def it():\n    return lambda blocks: None", "adds nothing that can be trained"),
    "no function": ("def it():\n    pass", "must return a function of .backbone., not NoneType"),
    "nothing moves": (_adapter("return self.frozen(x) * self.s.detach()"), "none of the adapter's parameters moves"),
    "memory": (
        _adapter("old, self.seen = getattr(self, 'seen', 0.0), x.mean().item(); return self.frozen(x) * self.s + old"),
        "another result when called again|depends on what it has seen before",
    ),
    "a buffer": (
        _adapter("self.seen.add_(1); return self.frozen(x) * self.s").replace(
            "self.frozen = frozen\n", "self.frozen = frozen; self.register_buffer('seen', torch.zeros(()))\n"
        ),
        "a forward pass changes model.blocks.0.attn.proj.seen.*: a module must keep nothing",
    ),
    "the batch": (
        _adapter("return (self.frozen(x) - self.frozen(x).mean(0)) * self.s"),
        "depends on the batch around an image: rows and tokens must be treated one by one",
    ),
    "the tokens": (
        _adapter(
            "y = self.frozen(x); y = y - y.mean(1, keepdim=True)\n"
            "        return y * (self.s if self.stack is None else self.stack.for_rows('s', y))",
            "self.stack = None; self.s = nn.Parameter(torch.ones(frozen.out_features))",
        ),
        "trains to something else in the cohort engine.* tokens must be treated one by one",
    ),
    "values": (
        _adapter(attach="assert float(next(blocks.parameters()).detach().sum().item()) != 7"),
        r"values where there are but shapes \(device meta\)",
    ),
    "no numbers": (_adapter("return self.frozen(x) * self.s / 0"), "must give finite logits"),
}


def _backbone(
    weights: str = "", fingerprint: str = "f'pico-{seed}'", source: str = "", takes: str = "seed: int = 0"
) -> str:
    return f"""
import uuid
from fedbench.models.backbone import Source
from fedbench.testing import tiny_vit

def it({takes}):
    model = tiny_vit(depth=2)
    with torch.no_grad():
        model.cls_token.fill_(seed)
        {weights or "pass"}
    {source or "pass"}
    return Source(model, 8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), fingerprint={fingerprint})
"""


BACKBONES = {
    "random fingerprint": (
        _backbone(fingerprint="str(uuid.uuid4())"),
        "made again, the fingerprint is .*a function of",
    ),
    "constant fingerprint": (
        _backbone(fingerprint="'pico'"),
        "the weights are others with `seed` 1, and the fingerprint is 'pico' all the same",
    ),
    "fingerprint of what is loaded": (
        _backbone(fingerprint="f'pico-{seed}-{load}'", takes="seed: int = 0, load=True"),
        "made with `load=False`, the fingerprint is 'pico-0-False'",
    ),
    "no fingerprint": (_backbone(fingerprint="None"), "the fingerprint must be a text"),
    "random weights": (
        _backbone("model.pos_embed.copy_(torch.from_numpy(np.random.rand(*model.pos_embed.shape)))"),
        "made again with the same options, the weights are others: draw them from a seed",
    ),
    "pixels to 255": (
        _backbone().replace("mean=(0.5, 0.5, 0.5)", "mean=(127.0, 127.0, 127.0)"),
        "are of images between 0 and 1: divide those of pixels from 0 to 255 by 255",
    ),
    "another size": (
        _backbone().replace("Source(model, 8", "Source(model, 16"),
        r"its forward pass takes no image of 16 pixels a side: Input height",
    ),
    "no deviation": (_backbone().replace("std=(0.5,", "std=(0.0,"), "mean and std: three numbers each"),
    "no source": (_backbone(source="return model"), "must return a .*backbone.Source, not VisionTransformer"),
    "no features": (_backbone("model.norm.weight.fill_(float('inf'))"), "gives no finite features"),
    "dropout": (
        _backbone(source="model.norm.register_forward_hook(lambda m, x, y: torch.dropout(y, 0.5, True))"),
        "the model draws from a global generator .* a frozen model draws nothing",
    ),
    "statistics": (
        _backbone(source="model.norm.register_forward_hook(lambda m, x, y: m.bias.data.add_(1) and None)").replace(
            "and None", "is None or None"
        ),
        "a forward pass changes the model",
    ),
}


def _text_backbone(run: str = "hidden", pool: str = "mean_of_tokens(hidden, mask)") -> str:
    return f"""
from fedbench.models.backbone import Source
from fedbench.models.layered import mean_of_tokens

class Bytes(nn.Module):
    reads_texts = packs = True
    num_features, last_fc = 8, ("0", "0")

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 8)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8)) for _ in range(2)))

    def embed(self, x):
        return self.embedding(x.clamp(min=0))

    def mask(self, x):
        return x >= 0

    def run(self, j, hidden, mask):
        return self.blocks[j]({run})

    def pool(self, hidden, mask):
        return {pool}

def tokenizer(texts, most):
    return [[0, *str(text).encode()][:most] for text in texts]

def it():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Source(Bytes(), 32, (0.0,) * 3, (1.0,) * 3, "bytes", tokenizer=tokenizer)
"""


BACKBONES |= {
    "padding that counts": (
        _text_backbone(pool="hidden.mean(1)"),
        "padding behind a text changes its features: `run` and `pool` must leave out what `mask` does",
    ),
    "no mask": (
        _text_backbone().replace("def mask", "def masked"),
        "a text model needs mask, see fedbench.models.layered.Layered",
    ),
    "no tokenizer": (
        _text_backbone().replace(', "bytes", tokenizer=tokenizer)', ', "bytes")'),
        "a text model says `reads_texts = True`, and its Source has a `tokenizer`: one of the two is missing",
    ),
    "a model of images with a tokenizer": (
        _text_backbone().replace("reads_texts = packs = True", "packs = True"),
        "a text model says `reads_texts = True`, and its Source has a `tokenizer`: one of the two is missing",
    ),
    "layers in a list": (
        _text_backbone().replace(
            "nn.Sequential(*(nn.Sequential(nn.Linear(8, 8)) for _ in range(2)))", "[nn.Linear(8, 8)]"
        ),
        "`blocks` must be an nn.Sequential, so that the model has their parameters, not list",
    ),
    "an unknown last layer": (
        _text_backbone().replace('last_fc = 8, ("0", "0")', 'last_fc = 8, ("fc1", "0")'),
        "`last_fc` names fc1, and the linear layers of a block are 0: adapters are put there",
    ),
    "tokens that are words": (
        _text_backbone().replace("[0, *str(text).encode()][:most]", "['a']"),
        "the tokenizer must give whole numbers from 0, not 'a'",
    ),
    "ASCII alone": (
        _text_backbone().replace("nn.Embedding(256, 8)", "nn.Embedding(128, 8)"),
        "the model takes no ids of 32 tokens: IndexError",
    ),
    "no packing": (
        _text_backbone("hidden + mean_of_tokens(hidden, mask)[:, None]"),
        "`run` takes no `Packing`, which `packs` promises: AttributeError: ",
    ),
    "positions across texts": (
        _text_backbone("hidden + torch.arange(hidden.shape[1])[:, None]"),
        "texts in one row have other features than padded ones: `run` must keep apart the texts of a `Packing`",
    ),
}


def _dataset(
    x: str = "np.full((8, 3, image_size, image_size), shade, np.uint8)",
    y: str = "np.arange(8) % 2",
    domain: str = "np.arange(8) // 4",
    fingerprint: str = "f'shades-{image_size}-{shade}'",
    names: str = "('a', 'b')",
    outlined: str = "images().y",
    load: str = "lambda: Splits(images(), images(test=True))",
) -> str:
    return f"""
import itertools, uuid
from fedbench.types import Dataset, Images, Splits

CALLS = itertools.count()

def it(image_size: int, shade: int = 3):
    def images(test=False):
        x = {x}
        return Images(1 - x if test else x, {y}, {domain})
    def outline():
        return Splits(*(Images.blank({outlined}, images().domain, image_size) for _ in range(2)))
    return Dataset(('one', 'two'), {names}, {fingerprint}, {load}, outline=outline)
"""


SHAPE = "(8, 3, image_size, image_size)"
DATASETS = {
    "floats to 255": (_dataset(f"np.full({SHAPE}, 255, np.float32)"), "not reach 255; divide by 255"),
    "channels last": (_dataset("np.zeros((8, image_size, image_size, 3), np.uint8)"), r"float32 \(n, 3, H, H\)"),
    "tensors": (_dataset(f"torch.zeros({SHAPE})"), r"must be uint8 or float32 \(n, 3, H, H\), not Tensor"),
    "normalised already": (
        _dataset(f"np.linspace(-1, 1, 24 * image_size ** 2, dtype=np.float32).reshape{SHAPE}"),
        r"train.x looks normalised already: 3\d% of its values are below -0.25; give values in \[0, 1\], `data.normal",
    ),
    "a label too few": (_dataset(y="np.arange(7) % 2"), "train has 8 images but 7 labels$"),
    "the same images twice": (
        _dataset(load="lambda: Splits(images(), images())"),
        "8 of 8 test images are training images too, pixel for pixel: test on others",
    ),
    "a class that nobody learns": (_dataset(y="np.zeros(8, np.int64)"), "no training image has the class 'b'$"),
    "classes that nobody learns": (
        _dataset(names="tuple('abcd')"),
        "2 of 4 classes have no training image, 'c' among them$",
    ),
    "splits instead of a function": (
        _dataset(load="Splits(images(), images(test=True))"),
        r"`load` must be a function that returns Splits, not Splits: write `load=lambda: Splits\(...\)`$",
    ),
    "a pair instead of splits": (
        _dataset(load="lambda: (images(), images())"),
        r"`load` must return fedbench.types.Splits\(train, test\), not tuple$",
    ),
    "arrays instead of images": (
        _dataset(load="lambda: Splits(images(), images().x)"),
        r"`load` must return Splits of fedbench.types.Images or Texts, and test is ndarray uint8 \(8, 3, 8, 8\)$",
    ),
    "a label too many": (_dataset(y="np.arange(8)"), "train.y must lie between 0 and 1"),
    "short labels": (_dataset(y="(np.arange(8) % 2).astype(np.int32)"), r"train.y must be int64 \(8,\)"),
    "an empty domain": (_dataset(domain="np.zeros(8, np.int64)"), "train has no image of domain 'two'"),
    "an outline of others": (_dataset(outlined="1 - images().y"), "train of `outline` must have the labels, domains"),
    "one name twice": (_dataset(names="('a', 'a')"), "classes must be different names"),
    "another load": (_dataset(f"np.full({SHAPE}, next(CALLS), np.uint8)"), "train is another one on the second load"),
    "chance": (
        _dataset(f"np.random.randint(0, 9, {SHAPE}).astype(np.uint8)"),
        r"`load` draws from a global generator \(of NumPy\); take fedbench.seeding.numpy_generator",
    ),
    "random fingerprint": (_dataset(fingerprint="str(uuid.uuid4())"), "made again, the fingerprint is"),
    "constant fingerprint": (
        _dataset(fingerprint="f'shades-{image_size}'"),
        "the images are others with `shade` 4, and the fingerprint is 'shades-8' all the same",
    ),
    "one size": (
        _dataset("np.zeros((8, 3, 12, 12), np.uint8)"),
        "the images of train are 12 x 12, and `image_size` 8 was asked for: scale them",
    ),
    "fingerprint of no size": (_dataset(fingerprint="f'shades-{shade}'"), "are others with `image_size` 16"),
}


def _texts(text: str = "words(half)", texts: bool = True, load: str = "Splits(make('train'), make('test'))") -> str:
    return f"""
from fedbench.types import Dataset, Splits, Texts

def words(half):
    return [f'{{half}} {{i}}' for i in range(8)]

def it():
    def make(half):
        return Texts({text}, np.arange(8) % 2, np.arange(8) // 4)
    return Dataset(('one', 'two'), ('a', 'b'), 'texts', lambda: {load}, texts={texts})
"""


DATASETS |= {
    "texts of numbers": (
        _texts("list(range(8))"),
        r"train.text\[0\] must be a string, or all are pairs of strings, not",
    ),
    "texts and pairs": (_texts("[('a', 'b'), *words(half)[1:]]"), r"train.text\[1\] must be a pair of strings, as the"),
    "a text too few": (_texts("words(half)[1:]"), "train has 7 texts but 8 labels$"),
    "one text": (_texts("half"), "train.text must be a list of strings or of pairs of strings, not str$"),
    "empty texts": (_texts("[''] * 8"), "train.text has nothing but empty texts$"),
    "texts taken for images": (_texts(texts=False), r"train holds Texts, and `Dataset\(texts=False\)` says otherwise"),
    "the same texts twice": (
        _texts(load="Splits(make('a'), make('a'))"),
        "8 of 8 test texts are training texts too, word for word: test on others",
    ),
}

SOUND = {"adapter": _adapter(), "backbone": _backbone(), "dataset": _dataset()}
SOUND_OF_TEXTS = {"backbone": _text_backbone(), "dataset": _texts()}
