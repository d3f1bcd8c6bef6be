"""The commonest answer: how large a share of the examples a model gives it, by which constant predictions are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedbench.simulation.evaluation import Answers, Evaluation
from fedbench.types import GLOBAL


def commonest(t: int, evaluation: Evaluation, answers: Answers) -> list[dict[str, Any]]:
    """The rows of answers.parquet of the models after round t, counted from 1.

    The domains of a global model are counted together. Clients' own models are counted one by one, so that the share is
    1 only where each of them says the same of all its examples. A model whose examples are all of one class is left
    out: a good one answers with that class alone. Next tokens have no rows: a text has many answers.
    """
    if evaluation.of_tokens:
        return []
    personal = any(one.client != GLOBAL for one in evaluation.passes)
    parts: dict[tuple[str, int], list[int]] = {}  # by split and model, the places of its splits
    for s, split in enumerate(evaluation.splits):
        parts.setdefault((split.split, split.client if personal else GLOBAL), []).append(s)
    found: dict[tuple[str, str], tuple[int, int]] = {}  # by split and output: examples, and those of the top answers
    for (name, _), places in parts.items():
        chosen = [evaluation.splits[s] for s in places]
        labels = np.concatenate([evaluation.images[name].labelled.y[split.indices] for split in chosen])
        if (labels == labels[0]).all():
            continue
        for output, logits in answers.items():
            said = torch.cat([logits[s].argmax(1) for s in places])
            examples, top = found.get((name, output), (0, 0))
            found[name, output] = examples + len(said), top + int(said.bincount().max())
    return [
        {"round": t, "split": name, "output": output, "examples": examples, "top_share": top / examples}
        for (name, output), (examples, top) in found.items()
    ]
