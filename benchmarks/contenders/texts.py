"""What users of peft would bring to Flower for texts: `transformers`' model with peft's adapters, and a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from work import ALPHA, CLASSES, RANK, TextWork


def lora_bert(work: TextWork) -> nn.Module:
    """The frozen BERT with peft's adapters on all layers and a trained head."""
    from peft import LoraConfig, get_peft_model

    bert = work.bert()
    get_peft_model(bert, LoraConfig(r=RANK, lora_alpha=int(ALPHA), target_modules=list(work.targets)))
    bert.head = nn.Linear(work.dim, CLASSES)
    return bert


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
