"""Pre-trains `micro_llama` by next words of upstream phrases; the command line stands at the end.

Upstream is narrow on purpose: other combinations of concepts than the data set's, in the register `plain` alone, with
fewer details. A text is a prompt of `phrases6` and a completion in the same register, and all its words count. How the
other registers say things is new to the backbone, and so are the rare words of tales. One CPU type and one torch
version give the same file, bit for bit: one thread, everything counted in steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import bert_pretrain
import micro_pretrain
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedbench.models.layered import PADDING
from fedbench.models.tokens import UNCOUNTED, continued
from fedbench_plugins.backbones import micro_llama
from fedbench_plugins.backbones.micro_llama import END, MicroLlama, WordTokenizer
from fedbench_plugins.datasets import phrases6

SCRIPT = 1  # raise it whenever the same arguments would give other weights
STEPS, BATCH, WARM_UP = 600, 48, 60
FASTER = 2.0  # than micro_vit's learning rate
WEIGHT_DECAY, CLIP = 0.05, 1.0
DETAILS = 0.4  # in place of the data set's 0.6
REGISTER = "plain"


class Upstream(nn.Module):
    """The backbone, by the name that `micro_pretrain.save` knows."""

    def __init__(self, backbone: MicroLlama) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, T) -> logits (B, T, words)."""
        hidden = self.backbone.embed(x)
        for j in range(len(self.backbone.blocks)):
            hidden = self.backbone.run(j, hidden, None)
        return self.backbone.states(hidden) @ self.backbone.vocabulary.T


class Batch(NamedTuple):
    """Ids x (B, T), the word after each, y (B, T), and where that stands in a completion, (B, T)."""

    x: Tensor
    y: Tensor
    completes: Tensor


def words() -> list[str]:
    """The vocabulary: special tokens, those of `micro_bert`, and what the prompts have besides."""
    known = bert_pretrain.words()[4:]
    return ["[BEGIN]", "[END]", "[UNK]", *sorted({*known, *phrases6.REGISTERS, "=", ">", ":"})]


def upstream_batches(generator: np.random.Generator, batch: int) -> Iterator[Batch]:
    """Fresh upstream texts, without end."""
    tokenizer, meanings = WordTokenizer(), phrases6.class_meanings("upstream")
    while True:
        chosen = meanings[generator.integers(0, len(meanings), batch)]
        prompts = tokenizer.pieces(phrases6.prompts(chosen, REGISTER, generator, DETAILS), begins=True)
        completions = tokenizer.pieces(phrases6.write(REGISTER, chosen, generator, DETAILS))
        rows = [continued(p, [*c, END], micro_llama.MOST_TOKENS) for p, c in zip(prompts, completions, strict=True)]
        ids = [torch.tensor(one.ids) for one in rows]
        whole = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PADDING)
        x, y = whole[:, :-1], whole[:, 1:].masked_fill(whole[:, 1:] < 0, UNCOUNTED)
        starts = torch.tensor([one.start for one in rows])
        yield Batch(x, y, (torch.arange(1, whole.shape[1]) >= starts[:, None]) & (y != UNCOUNTED))


def pretrain(seed: int, steps: int = STEPS, batch: int = BATCH, say: Callable[[str], None] = print) -> Upstream:
    """The model after `steps` steps on fresh texts; sets torch's seed and thread count."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    model = Upstream(MicroLlama(len(micro_llama.vocabulary()))).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY, betas=(0.9, 0.98))
    batches = upstream_batches(np.random.default_rng((seed, 0)), batch)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = FASTER * micro_pretrain.learning_rate(step, steps, min(WARM_UP, steps // 2))
        drawn = next(batches)
        logits = model(drawn.x).transpose(1, 2)
        each = cross_entropy(logits, drawn.y, ignore_index=UNCOUNTED, reduction="none")  # (B, T)
        loss = each.sum() / (drawn.y != UNCOUNTED).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (step + 1) % 50 == 0:
            own = each[drawn.completes].mean()
            say(f"step {step + 1} of {steps}  loss {loss:.3f} ({own:.3f})  {time.process_time():.0f} CPU seconds")
    return model.eval()


@torch.no_grad()
def scores(model: Upstream, seed: int, batches: int = 10) -> dict[str, float]:
    """Of the completions of fresh upstream texts: nats a word, and the share of words that are predicted."""
    drawn = upstream_batches(np.random.default_rng((seed, 1)), 200)
    nll, hits, count = 0.0, 0, 0
    for _, (x, y, completes) in zip(range(batches), drawn, strict=False):
        logits = model(x)[completes]
        nll += cross_entropy(logits, y[completes], reduction="sum").item()
        hits += int((logits.argmax(1) == y[completes]).sum())
        count += int(completes.sum())
    return {"completion_nll": nll / count, "completion_accuracy": hits / count}


def facts_of(seed: int, steps: int) -> dict:
    """What is noted in the file."""
    return {
        "arch": micro_llama.NAME, "script": SCRIPT, "writer": phrases6.WRITER, "seed": seed, "steps": steps,
        "batch": BATCH, "torch": torch.__version__, "numpy": np.__version__,
    }  # fmt: skip


if __name__ == "__main__":
    bert_pretrain.command(STEPS, pretrain, scores, facts_of)()
