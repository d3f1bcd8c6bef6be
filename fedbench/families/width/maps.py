"""Which hidden units there are in a model: in timm's transformers and mixers by their names, in others along the way
from the image to the features."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import nn

from fedbench.families.body import WholeModel
from fedbench.families.width.chain import cannot, chain_of
from fedbench.families.width.units import Axis, Units, WidthMap
from fedbench.models.backbone import Blocks

D, A, QKV, H = "embedding", "attn", "attn*3", "mlp"  # what axes follow; all but D belong to one layer
Named = dict[str, tuple[str | None, ...]]

# Every parameter of such a model by its name: an expression, and what its axes follow.
_MLP: Named = {
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc1\.weight": (H, D),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc1\.bias": (H,),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc2\.weight": (D, H),
    r"blocks\.\d+\.(mlp|mlp_channels)\.fc2\.bias": (D,),
    r"(blocks\.\d+\.)?(norm\d?|norm_pre|fc_norm)\.(weight|bias)": (D,),
    r"blocks\.\d+\.ls[12]\.gamma": (D,),
    r"(patch_embed|stem)\.proj\.weight": (D, None, None, None),
    r"(patch_embed|stem)\.(proj\.bias|norm\.(weight|bias))": (D,),
}
NAMES: dict[str, Named] = {
    "VisionTransformer": {
        **_MLP,
        r"(cls_token|reg_token|pos_embed)": (None, None, D),
        r"blocks\.\d+\.attn\.qkv\.weight": (QKV, D),
        r"blocks\.\d+\.attn\.qkv\.bias": (QKV,),
        r"blocks\.\d+\.attn\.proj\.weight": (D, A),
        r"blocks\.\d+\.attn\.proj\.bias": (D,),
    },
    "MlpMixer": {
        **_MLP,
        r"blocks\.\d+\.mlp_tokens\.fc1\.weight": ("mlp_tokens", None),
        r"blocks\.\d+\.mlp_tokens\.fc1\.bias": ("mlp_tokens",),
        r"blocks\.\d+\.mlp_tokens\.fc2\.weight": (None, "mlp_tokens"),
        r"blocks\.\d+\.mlp_tokens\.fc2\.bias": (None,),
    },
}


def map_of(model: WholeModel) -> WidthMap:
    """The hidden units of a body and its classifiers; pixels, tokens and classes are none.

    A VisionTransformer's are its embedding dimension, in every layer the dimensions of each head, the same of q, k and
    v, and the MLP's hidden units; an MlpMixer's its channels and its MLPs' hidden units; another model's its channels,
    see `chain_of`. Raises NotApplicable with what stands in the way.
    """
    body = model.body
    kinds = [kind.__name__ for kind in type(body.model).__mro__ if kind.__name__ in NAMES]
    if isinstance(body, Blocks):
        if not kinds:
            raise cannot(body.model, f"its layers are known of {' and '.join(NAMES)} alone")
        units, axes = _by_names(body, NAMES[kinds[0]])
        features = D
    else:
        units, axes, features = chain_of(body.model)
    _check_all(body.model, axes)
    named = {f"model.{name}": value for name, value in axes.items()}
    for name in body.classifiers:
        named |= {f"{name}.weight": (None, Axis(features)), f"{name}.bias": (None,)}
    return WidthMap(units, named)


def _check_all(model: nn.Module, axes: Iterable[str]) -> None:
    known = set(axes)
    for name, _ in model.named_parameters():
        if name not in known:
            raise cannot(model, f"nothing says which units its parameter {name} follows")


def _by_names(body: Blocks, named: Named) -> tuple[dict[str, Units], dict[str, tuple[Axis | None, ...]]]:
    """Units and axes of a model whose parameters have timm's names; the head is not one of them."""
    units = {D: Units(body.num_features)}
    block: Any
    for j, block in enumerate(body.blocks):
        for part in ("mlp", "mlp_channels", "mlp_tokens"):
            if hasattr(block, part):
                units[f"{j}.{H if part == 'mlp_channels' else part}"] = Units(getattr(block, part).fc1.out_features)
        if hasattr(block, "attn"):
            units[f"{j}.{A}"] = Units(*_heads(body.model, block.attn))
    axes = {}
    for name, parameter in body.model.named_parameters():
        follows = next((axes for pattern, axes in named.items() if re.fullmatch(pattern, name)), None)
        if follows is None or len(follows) != parameter.dim():
            raise cannot(body.model, f"nothing says which units its parameter {name} follows")
        axes[name] = tuple(_axis(name, units_of) for units_of in follows)
    return units, axes


def _heads(model: nn.Module, attention: Any) -> tuple[int, int]:
    """(d_head, heads) of timm's Attention."""
    if type(attention).__name__ != "Attention" or not hasattr(attention, "attn_dim"):
        raise cannot(model, f"the heads of its {type(attention).__name__} are not known")
    return attention.head_dim, attention.num_heads


def _axis(name: str, units: str | None) -> Axis | None:
    if units is None or units == D:
        return None if units is None else Axis(D)
    layer = name.split(".")[1]
    kind, _, times = units.partition("*")
    return Axis(f"{layer}.{kind}", int(times or 1))
