"""What users of peft would bring to Flower for texts: `transformers`' model with peft's adapters, and a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from work import ALPHA, CLASSES, RANK, Continuations, TextWork


def lora_bert(work: TextWork) -> nn.Module:
    """The frozen BERT with peft's adapters on all layers and a trained head."""
    from peft import LoraConfig, get_peft_model

    bert = work.bert()
    get_peft_model(bert, LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=list(work.targets)))
    bert.head = nn.Linear(work.dim, CLASSES)
    return bert


def lora_llama(work: Continuations) -> nn.Module:
    """The frozen Llama with its head and peft's adapters on all layers."""
    from peft import LoraConfig, get_peft_model

    llama = work.llama()
    get_peft_model(llama, LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=list(work.targets)))
    return llama


def token_logits(llama: Any, x: Tensor, layers: Sequence[int]) -> Tensor:
    """(B, T, V) of ids x (B, T), -1 where a text has ended, with only these layers."""
    mask, body = x >= 0, llama.model
    hidden = body.embed_tokens(x.clamp(min=0))
    positions = body.rotary_emb(hidden, torch.arange(x.shape[1])[None])
    seen = mask[:, None, None, :] & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    added = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    for j in layers:
        out = body.layers[j](hidden, attention_mask=added, position_embeddings=positions)
        hidden = out[0] if isinstance(out, tuple) else out
    return llama.lm_head(body.norm(hidden))


def text_logits(bert: Any, x: Tensor, layers: Sequence[int]) -> Tensor:
    """(B, CLASSES) of ids x (B, T), -1 where a text has ended, with only these layers: of the mean over tokens."""
    mask = x >= 0
    hidden = bert.embeddings(input_ids=x.clamp(min=0))
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[:, None, None]
    for j in layers:
        out = bert.encoder.layer[j](hidden, attention_mask=added)
        hidden = out[0] if isinstance(out, tuple) else out
    counted = mask.unsqueeze(-1)
    return bert.head((hidden * counted).sum(1) / counted.sum(1))
