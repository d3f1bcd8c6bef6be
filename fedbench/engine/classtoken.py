"""The last layer of a class-token ViT, computed only where it is read: exact, with less work.

A client's classifier reads the class token alone. In its last layer the other tokens are needed as keys and
values, but neither their queries nor their projection nor their MLP.
"""

from __future__ import annotations

from timm.models.vision_transformer import Attention, Block
from torch import Tensor, nn

from fedbench.backbone import Blocks


def applies(model: Blocks, j: int) -> bool:
    """Whether layer j is a plain timm ViT block of a model that reads its class token, which stands first."""
    block = model.blocks[j]
    return (
        getattr(model.model, "global_pool", None) == "token"
        and getattr(model.model, "attn_pool", None) is None
        and getattr(model.model, "num_prefix_tokens", 1) == 1  # a distilled DeiT reads a second token
        and type(block) is Block
        and type(block.attn) is Attention
        and getattr(block.attn, "gate", None) is None
        and hasattr(block.attn, "attn_dim")
    )


def last_layer(block: Block, x: Tensor) -> Tensor:
    """(B, T, D) -> (B, 1, D): what the whole block would make of the first token."""
    first = x[:, :1]
    first = first + block.drop_path1(block.ls1(_attention(block.attn, block.norm1(x))))
    return first + block.drop_path2(block.ls2(block.mlp(block.norm2(first))))


def _attention(attn: Attention, x: Tensor) -> Tensor:
    """The attention's output for the first token. x: (B, T, D) -> (B, 1, D)"""
    B, T, _ = x.shape
    width = attn.attn_dim
    if type(attn.qkv) is nn.Linear:
        weight, bias = attn.qkv.weight, attn.qkv.bias
        q = nn.functional.linear(x[:, :1], weight[:width], None if bias is None else bias[:width])
        kv = nn.functional.linear(x, weight[width:], None if bias is None else bias[width:])
    else:  # an adapter stands there, which needs to see every token
        q, kv = attn.qkv(x).split([width, 2 * width], dim=-1)
        q = q[:, :1]
    q = attn.q_norm(q.reshape(B, 1, attn.num_heads, attn.head_dim).transpose(1, 2))
    k, v = kv.reshape(B, T, 2, attn.num_heads, attn.head_dim).permute(2, 0, 3, 1, 4)
    scores = (q * attn.scale) @ attn.k_norm(k).transpose(-2, -1)  # (B, heads, 1, T)
    mixed = (attn.attn_drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(B, 1, width)
    return attn.proj_drop(attn.proj(attn.norm(mixed)))
