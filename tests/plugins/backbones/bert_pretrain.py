"""Pre-trains `micro_bert` by masked words and the concepts of upstream phrases; the command line stands at the end.

Upstream is narrow on purpose: other combinations of concepts than the data set's, in the register `plain` alone, with
fewer details. Other word orders, terseness, typos, untruths and the rare words of tales are new to the backbone. Masked
words alone leave the mean of all tokens of little use; reading who, what, whom and where from it mends that. One CPU
type and one torch version give the same file, bit for bit: one thread, everything counted in steps.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import micro_pretrain
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedbench.models.layered import PADDING, mean_of_tokens
from fedbench_plugins.backbones import micro_bert
from fedbench_plugins.backbones.micro_bert import MASK, TOKEN, MicroBert, WordTokenizer
from fedbench_plugins.datasets import phrases6

SCRIPT = 1  # raise it whenever the same arguments would give other weights
STEPS, BATCH, WARM_UP = 800, 64, 100
FASTER = 2.0  # than micro_vit's learning rate
WEIGHT_DECAY, CLIP = 0.05, 1.0
MASKED, SHOWN = 0.2, 0.1  # of all words that are guessed, and of those the part that is not hidden
DETAILS = 0.4  # in place of the data set's 0.6
CONCEPTS = (10, 7, 10, 7)  # who, what, whom, where


class Upstream(nn.Module):
    """A backbone that guesses words by its own word embeddings and reads concepts; only the backbone is kept."""

    def __init__(self, backbone: MicroBert) -> None:
        super().__init__()
        self.backbone = backbone
        self.bias = nn.Parameter(torch.zeros(backbone.words.num_embeddings))
        self.concepts = nn.Linear(backbone.num_features, sum(CONCEPTS))

    def forward(self, x: Tensor, where: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits (n, words) of the n tokens of x (B, T) `where` a word is to be guessed, and of the four concepts."""
        tokens = self.backbone.tokens(x)
        read = self.concepts(mean_of_tokens(tokens, self.backbone.mask(x)))
        return tokens[where] @ self.backbone.words.weight.T + self.bias, read.split(CONCEPTS, dim=1)


class Batch(NamedTuple):
    """Ids (B, T) of texts with words masked, `where` (B, T) they are, the words, and the concepts (B, 4)."""

    x: Tensor
    where: Tensor
    word: Tensor
    meaning: Tensor


def words() -> list[str]:
    """The vocabulary: special tokens, then the words of all registers; not the typos of chats."""
    generator = np.random.default_rng(0)
    meanings = np.repeat(phrases6.class_meanings("downstream"), 10, axis=0)
    written = (phrases6.write(register, meanings, generator) for register in phrases6.REGISTERS if register != "chat")
    found = {word for texts in written for text in texts for word in TOKEN.findall(text)} | {"lol", "omg", "haha", "!"}
    tables = (getattr(phrases6, name) for name in ("BEINGS", "RARE_BEINGS", "ACTIONS", "MORE_ACTIONS", "PLACES"))
    found.update(word for table in tables for word in re.findall(r"\w+", table))
    return ["[CLS]", "[SEP]", "[MASK]", "[UNK]", *sorted(found)]


def ids_of(texts: Sequence[str]) -> Tensor:
    """(B, T) ids, with PADDING behind shorter texts."""
    ids = WordTokenizer()(texts, micro_bert.MOST_TOKENS)
    return nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), batch_first=True, padding_value=PADDING)


def masked_batch(generator: np.random.Generator, batch: int) -> Batch:
    """Fresh upstream texts."""
    meanings = phrases6.class_meanings("upstream")
    meanings = meanings[generator.integers(0, len(meanings), batch)]
    x = ids_of(phrases6.write("plain", meanings, generator, DETAILS))
    draw = torch.from_numpy(generator.random(x.shape))
    where = (draw < MASKED) & (x > micro_bert.UNKNOWN)
    hidden = x.masked_fill(where & (draw >= MASKED * SHOWN), MASK)
    return Batch(hidden, where, x[where], torch.from_numpy(meanings))


def pretrain(seed: int, steps: int = STEPS, batch: int = BATCH, say: Callable[[str], None] = print) -> Upstream:
    """The model after `steps` steps on fresh texts; sets torch's seed and thread count."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    model = Upstream(MicroBert(len(micro_bert.vocabulary()))).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY, betas=(0.9, 0.98))
    generator = np.random.default_rng((seed, 0))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = FASTER * micro_pretrain.learning_rate(step, steps, min(WARM_UP, steps // 2))
        drawn = masked_batch(generator, batch)
        words, read = model(drawn.x, drawn.where)
        masked = cross_entropy(words, drawn.word)
        concepts = sum(cross_entropy(logits, drawn.meaning[:, i]) for i, logits in enumerate(read))
        loss = masked + concepts
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (step + 1) % 50 == 0:
            say(
                f"step {step + 1} of {steps}  loss {masked:.3f} + {concepts:.3f}  {time.process_time():.0f} CPU seconds"
            )
    return model.eval()


@torch.no_grad()
def accuracy(model: Upstream, seed: int, batches: int = 10) -> dict[str, float]:
    """Of fresh upstream texts, the share of masked words that are guessed (synonyms count as wrong), and of texts, with
    the same words masked, whose four concepts are all read."""
    generator = np.random.default_rng((seed, 1))
    guessed, read = [], []
    for drawn in (masked_batch(generator, 200) for _ in range(batches)):
        words, concepts = model(drawn.x, drawn.where)
        guessed.append(words.argmax(1) == drawn.word)
        found = torch.stack([logits.argmax(1) for logits in concepts], dim=1)
        read.append((found == drawn.meaning).all(1))
    return {
        "masked_accuracy": torch.cat(guessed).float().mean().item(),
        "upstream_accuracy": torch.cat(read).float().mean().item(),
    }


def facts_of(seed: int, steps: int) -> dict:
    """What is noted in the file."""
    import timm

    return {
        "arch": micro_bert.NAME, "script": SCRIPT, "writer": phrases6.WRITER, "seed": seed, "steps": steps,
        "batch": BATCH, "torch": torch.__version__, "timm": timm.__version__, "numpy": np.__version__,
    }  # fmt: skip


def command(
    most: int,
    pretrain: Callable[..., Any],
    measured: Callable[[Any, int], dict[str, float]],
    facts_of: Callable[[int, int], dict],
) -> click.Command:
    """A command that pre-trains a text model, by default for `most` steps, and writes its weights."""

    @click.command()
    @click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
    @click.option("--steps", type=click.IntRange(min=1), default=most, show_default=True)
    @click.option("--date", default=lambda: datetime.date.today().isoformat(), help="Noted in the file [today].")
    @click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
    def main(seed: int, steps: int, date: str, out: Path) -> None:
        """Pre-train the model and write its weights, as to --out micro_bert-seed0.safetensors."""
        model = pretrain(seed, steps, say=click.echo)
        for parameter in model.backbone.parameters():
            parameter.data = parameter.data.half().float()  # measured as it will be loaded
        found = measured(model, seed)
        micro_pretrain.save(model, out, {**facts_of(seed, steps), **found, "date": date})
        click.echo(f"{found}  {time.process_time():.0f} CPU seconds  wrote {out}")

    return main


if __name__ == "__main__":
    command(STEPS, pretrain, accuracy, facts_of)()
