"""timm's own modules computed with less work: attention by explicit products, and the last layer of a client only
where it is read.

A client's classifier reads the class token alone. In its last layer the other tokens are needed as keys and
values, but neither their queries nor their projection nor their MLP. All of it is exact up to the order of sums.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeGuard

import torch
from timm.layers import Mlp
from timm.models.vision_transformer import Attention, Block
from torch import Tensor, nn

from fedbench.models.backbone import Blocks
from fedbench.models.kernels import frozen_linear, gelu_of_product

# Up to this many tokens the score matrix is small, and plain products beat the fused kernel on a CPU.
EXPLICIT_ATTENTION_TOKENS = 128


@contextmanager
def fast(model: nn.Module) -> Iterator[None]:
    """Inside, on a CPU, the model's frozen linear layers, short attentions and MLPs take the faster ways.

    Its texts pass without padding there, where it can do that. Elsewhere torch's own kernels are the faster ones.
    """
    changed = []
    here = all(parameter.device.type == "cpu" for parameter in model.parameters())
    packing = model if here and isinstance(model, Blocks) and getattr(model.model, "packs", False) else None
    if packing is not None:
        packing.packs = True
    for module in model.modules() if here else ():
        if type(module) is nn.Linear and not any(p.requires_grad for p in module.parameters()):
            vars(module)["forward"] = functools.partial(_linear, module)
        elif is_plain_attention(module):
            vars(module)["forward"] = functools.partial(_attention, module)
        elif _has_plain_gelu(module):
            vars(module)["forward"] = functools.partial(_mlp, module)
        else:
            continue
        changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            del vars(module)["forward"]
        if packing is not None:
            packing.packs = False


def reads_class_token(model: Blocks, j: int) -> bool:
    """Whether layer j is a plain timm ViT block of a model that reads its class token, which stands first."""
    block = model.blocks[j]
    return (
        getattr(model.model, "global_pool", None) == "token"
        and getattr(model.model, "attn_pool", None) is None
        and getattr(model.model, "num_prefix_tokens", 1) == 1  # a distilled DeiT reads a second token
        and type(block) is Block
        and is_plain_attention(block.attn)
    )


def last_layer(block: nn.Module, x: Tensor) -> Tensor:
    """(B, T, D) -> (B, 1, D): what the whole block would make of the first token."""
    assert isinstance(block, Block) and is_plain_attention(block.attn)  # `reads_class_token` says so
    first = x[:, :1]
    first = first + block.drop_path1(block.ls1(attention(block.attn, block.norm1(x), queries=1)))
    return first + block.drop_path2(block.ls2(block.mlp(block.norm2(first))))


def attention(attn: Attention, x: Tensor, queries: int | None = None) -> Tensor:
    """What a plain timm Attention makes of its tokens, or of the first `queries` of them, by explicit products.

    (B, T, D) -> (B, queries or T, D). Each of q, k and v is copied once and used in place.
    """
    B, T, _ = x.shape
    heads, width = attn.num_heads, attn.head_dim
    if queries is None or type(attn.qkv) is not nn.Linear:  # an adapter there has to see every token
        q, k, v = attn.qkv(x).view(B, T, 3, heads, width).permute(2, 0, 3, 1, 4).contiguous().unbind(0)
        q = q[:, :, :queries]
    else:
        weight, bias, cut = attn.qkv.weight, attn.qkv.bias, attn.attn_dim
        q = frozen_linear(x[:, :queries], weight[:cut], None if bias is None else bias[:cut])
        kv = frozen_linear(x, weight[cut:], None if bias is None else bias[cut:])
        q = q.view(B, queries, heads, width).transpose(1, 2)
        k, v = kv.view(B, T, 2, heads, width).permute(2, 0, 3, 1, 4).contiguous().unbind(0)
    q, k, v = (part.reshape(B * heads, -1, width) for part in (attn.q_norm(q), attn.k_norm(k), v))
    scores = torch.baddbmm(q.new_zeros(()), q, k.mT, beta=0, alpha=attn.scale)  # (B heads, queries, T)
    mixed = torch.bmm(scores.softmax(-1), v).view(B, heads, -1, width).transpose(1, 2).reshape(B, -1, attn.attn_dim)
    return attn.proj(attn.norm(mixed))


def is_plain_attention(module: nn.Module) -> TypeGuard[Attention]:
    """Whether `attention` says what the module computes, dropout aside, which frozen backbones do not have."""
    return type(module) is Attention and getattr(module, "gate", None) is None and hasattr(module, "attn_dim")


def _linear(module: nn.Linear, x: Tensor) -> Tensor:
    return frozen_linear(x, module.weight, module.bias)


def _has_plain_gelu(module: nn.Module) -> TypeGuard[Mlp]:
    """Whether it begins with a frozen linear layer and GELU."""
    if type(module) is not Mlp or type(module.act) is not nn.GELU or module.act.approximate != "none":
        return False
    return type(module.fc1) is nn.Linear and not any(p.requires_grad for p in module.fc1.parameters())


def _mlp(module: Mlp, x: Tensor) -> Tensor:
    graph = torch.is_grad_enabled() and x.requires_grad
    if graph or module.training or torch.is_autocast_enabled("cpu"):
        return type(module).forward(module, x)
    return module.fc2(module.norm(gelu_of_product(x, module.fc1.weight, module.fc1.bias)))


def _attention(module: Attention, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    short = x.shape[1] <= EXPLICIT_ATTENTION_TOKENS
    if short and attn_mask is None and not is_causal and not module.training:
        return attention(module, x)
    return type(module).forward(module, x, attn_mask, is_causal)
