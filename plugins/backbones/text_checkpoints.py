"""Checkpoints of `transformers`: what is read of them, what is refused, and what identifies them."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.disk import hash_of_bytes, hash_of_file
from fedbench.errors import UserError
from fedbench.models.layered import PADDING
from fedbench.words import shortened

CLOSE = 1e-4  # of the largest hidden state: what float32 may lose where sums are taken in another order
FEWEST = 5  # words of a vocabulary; without its file some tokenizers know three or four, by which they mark things


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raises UserError for whatever `transformers`, tokenizers and the Hub's client raise; the cause is kept."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        where = "in that folder" if Path(name).is_dir() else "fetched from the Hub; a folder can be given"
        wanted = f"wanted: config.json, model.safetensors and a tokenizer, {where}"
        raise UserError(f"{name}: the model cannot be read: {first} ({wanted})") from error


def tokenizer_of(name: str, config: Any) -> Any:
    """The tokenizer of a model, of the commit of its configuration. Raises UserError for one without words, which
    `transformers` makes without a warning where there is no file of them."""
    auto: Any = import_module("transformers").AutoTokenizer
    tokenizer = auto.from_pretrained(name, trust_remote_code=False, **_commit(config))
    if len(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)) < FEWEST:
        files = ", ".join(sorted(set(type(tokenizer).vocab_files_names.values())))
        raise UserError(
            f"{name}: its tokenizer has no words: needed is tokenizer.json, or what it is made of ({files})"
        )
    return tokenizer


def loaded(name: str, config: Any, body: Mapping[str, str]) -> Any:
    """The model with its weights in float32.

    Args:
        name: Of the model.
        config: Its configuration.
        body: What it calls the parts that are used.

    Raises:
        UserError: The checkpoint lacks weights of these parts, or has others.
    """
    model, report = _read("AutoModel", name, config, ignore_mismatched_sizes=True)  # so that the report names them
    _must_be_whole(name, hasattr(model, "peft_config"))
    _must_fit(name, model, report, body)
    return model


def _read(kind: str, name: str, config: Any, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A model of a class of `transformers`, in float32, and the report on its weights."""
    auto: Any = getattr(import_module("transformers"), kind)
    found: tuple[Any, dict[str, Any]] = auto.from_pretrained(
        name,
        config=config,
        trust_remote_code=False,
        use_safetensors=True,
        dtype="float32",
        output_loading_info=True,
        **more,
        **_commit(config),
    )
    return found


def head(name: str, config: Any) -> Tensor:
    """The head (V, D) of a decoder that has one besides its embeddings, in float32. Raises UserError where its logits
    are not the products with it alone."""
    with readable(name):
        model, report = _read("AutoModelForCausalLM", name, config)
    if lacking := [key for key in report["missing_keys"] if key.startswith("lm_head")]:
        raise UserError(f"{name}: the checkpoint has no head ({lacking[0]}), without which no next token is predicted")
    made = model.get_output_embeddings()
    if getattr(made, "bias", None) is not None:
        raise UserError(f"{name}: its head has a bias, and a head of next tokens here is a matrix")
    weight: Tensor = made.weight.detach()
    return weight


def checked(name: str, model: Any, body: Mapping[str, str]) -> Any:
    """The model as it is, after its checkpoint was looked at as `loaded` does, by the names and shapes that a folder's
    files begin with. Raises UserError as `loaded` does."""
    folder = Path(name)
    _must_be_whole(name, (folder / "adapter_config.json").is_file())
    if not (files := _weights_in(folder)):  # of the Hub, whose weights are fetched by those who need them
        return model
    safe_open: Any = import_module("safetensors").safe_open
    shapes: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, "pt") as opened:
            of_file = {key: opened.get_slice(key).get_shape() for key in opened.keys()}  # noqa: SIM118 - no mapping
        shapes |= {key: torch.zeros((), device="cpu").expand(shape) for key, shape in of_file.items()}
    given = {"config": copy.deepcopy(model.config), "state_dict": shapes, "ignore_mismatched_sizes": True}
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        _, report = type(model).from_pretrained(None, dtype="float32", output_loading_info=True, **given)
    _must_fit(name, model, report, body)
    return model


def _weights_in(folder: Path) -> list[Path]:
    """The files that `transformers` reads the weights in a folder from."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole] if whole.is_file() else []
    return [folder / file for file in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))]


def _must_be_whole(name: str, adapts: bool) -> None:
    """Raises UserError where a folder's weights are for those of another model, which no fingerprint has."""
    if adapts:
        raise UserError(f"{name}: holds adapters for another model (adapter_config.json); merge them into it first")


def _must_fit(name: str, model: Any, report: Mapping[str, Collection[Any]], body: Mapping[str, str]) -> None:
    """Raises UserError where parts of the body were drawn at random, or left out, while a checkpoint was loaded. A head
    or a pooler may be there or not: neither is used."""
    parts = tuple(f"{part}." for part in body.values() if part)

    def used(keys: Collection[str]) -> list[str]:
        prefix = f"{model.base_model_prefix}."
        own = sorted(key for key in keys if key.removeprefix(prefix).startswith(parts))
        return [key for key in own if not key.endswith(("inv_freq", "position_ids"))]  # made, not learnt

    sizes = sorted(report["mismatched_keys"])
    shapes = {key: f"{key} as {tuple(found)} in place of {tuple(wanted)}" for key, found, wanted in sizes}
    if missing := used(report["missing_keys"]):
        wrapped = _wrapped(missing[0], report["unexpected_keys"])
        why = f"lacks {shortened(missing, 3)}"
        if wrapped:
            why += f"; it has {wrapped}, as of a model in a wrapper: save the model within it"
    elif odd := used(shapes):
        why = f"has {shortened([shapes[key] for key in odd], 3)}"
    elif more := used(report["unexpected_keys"]):
        why = f"has {shortened(more, 3)} in addition"
    else:
        return
    raise UserError(
        f"{name}: its weights do not fit the {type(model).__name__} of its config.json: the checkpoint {why}"
    )


def _wrapped(missing: str, unexpected: Collection[str]) -> str | None:
    """Under what name a checkpoint has a weight that it lacks."""
    return min((key for key in unexpected if key.endswith(f".{missing}")), key=len, default=None)


@torch.no_grad()
def must_agree(name: str, model: Any, made: Any, attention: str) -> None:
    """Raises UserError where layer after layer gives other hidden states of two padded texts than the model's own
    forward pass. Shapes alone are not compared.

    Args:
        name: Of the model.
        model: Of `transformers`.
        made: The `TextModel` of it.
        attention: By what name `transformers` knows the attention that `made` computes with.
    """
    own, model.config._attn_implementation = model.config._attn_implementation, attention
    if next(made.parameters()).is_meta:
        return
    T = min(made.most, max(16, made.window + 8))
    ids = torch.randint(made.known, (2, T), generator=torch.Generator().manual_seed(0))
    ids[0, T // 2 :] += made.known * (made.segments > 1)
    ids[1, T // 2 :] = PADDING
    mask = made.mask(ids)
    model.config._attn_implementation = own
    expected = model.eval()(**made.inputs(ids), attention_mask=mask.long()).last_hidden_state[mask]
    model.config._attn_implementation = attention
    hidden = made.embed(ids)
    for j in range(len(made.blocks)):
        hidden = made.run(j, hidden, mask)
    found = made.norm(hidden)[mask]
    if not expected.isfinite().all():
        raise UserError(f"{name}: its hidden states are not finite numbers: its weights are damaged")
    if (found - expected).abs().max() > CLOSE * expected.abs().max():
        raise UserError(
            f"{name}: layer after layer, this {type(model).__name__} gives other hidden states than transformers' own "
            "forward pass: its config.json has a setting that fedbench does not know"
        )


def fingerprint(name: str, config: Any, tokenizer: Any, pretrained: bool) -> str:
    """Of a folder its files, those included that the tokenizer was made of, of a model of the Hub its commit."""
    folder = Path(name)
    if folder.is_dir():
        kinds = ("*.json", "*.txt", "*.safetensors" if pretrained else "*.model")
        files = {file for kind in kinds for file in folder.glob(kind)}
        if not (folder / "tokenizer.json").is_file():  # which is all of a tokenizer where it is there
            files |= {folder / Path(file).name for file in _read_by(tokenizer)}
        of_files = " ".join(f"{file.name} {hash_of_file(file)}" for file in sorted(files))
        print_ = hash_of_bytes(of_files.encode())[:16]
    else:
        print_ = f"{name}@{_commit(config).get('revision', 'unknown')}"
    return f"transformers:{print_}{'' if pretrained else ':drawn'}"


def _read_by(tokenizer: Any) -> list[str]:
    """The files that a tokenizer was made of."""
    given = (tokenizer.init_kwargs.get(option) for option in type(tokenizer).vocab_files_names)
    return [file for file in given if isinstance(file, str) and Path(file).is_file()]


def _commit(config: Any) -> dict[str, str]:
    """Of a model of the Hub the commit that its configuration was read from, so that all of it is from one."""
    commit = getattr(config, "_commit_hash", None)
    return {"revision": commit} if commit else {}
