"""Pre-trains `micro_vit` or `micro_mixer` on upstream glyphs; the command line stands at the end.

Upstream is narrow on purpose: other classes than the data sets', and solid glyphs with a mild texture at
most, so that outline, dim, clutter and sketch are new to the backbone and fine-tuning has work to do. Plain
cross-entropy stays at chance for long; telling the strokes (24 attributes) and the ink of each patch
gets it going. One CPU type and one torch version give the same file, bit for bit: one thread,
everything counted in steps. `micro_recipes.py` has the recipes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import click
import micro_recipes
import numpy as np
import torch
from micro_recipes import RECIPES, SHIPPED, Recipe
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits, cross_entropy

from fedbench_plugins.backbones.micro import IMAGE_SIZE, architecture
from fedbench_plugins.datasets import glyphs

SCRIPT = 1  # raise it whenever the same arguments would give other weights
STEPS, BATCH, WARM_UP = 1300, 128, 100
LEARNING_RATE, CLIP = 1.5e-3, 1.0
LABEL_SMOOTHING, ATTRIBUTE_WEIGHT = 0.05, 5.0
EASY_UNTIL = 0.3  # of all steps: from then on no image is of the easy style
PATCH = 8


class Upstream(nn.Module):
    """A backbone with the three heads of pre-training; only the backbone is kept."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.classes = nn.Linear(backbone.embed_dim, glyphs.UPSTREAM_CLASSES)
        self.attributes = nn.Linear(backbone.embed_dim, glyphs.NUM_STROKES)
        self.mask = nn.Linear(backbone.embed_dim, (PATCH // 2) ** 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of classes (B, 200), strokes (B, 24), ink (B, patches, 16); x (B, 3, 32, 32) in [-1, 1]."""
        return self.read(self.backbone.forward_features(x))

    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same of tokens (B, T, D) that went through the final norm."""
        pooled = self.backbone.forward_head(tokens, pre_logits=True)
        patches = tokens[:, getattr(self.backbone, "num_prefix_tokens", 0) :]
        return self.classes(pooled), self.attributes(pooled), self.mask(patches)


def upstream_images(label: np.ndarray, easy: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images (n, 3, 32, 32) of upstream classes and their ink (n, 32, 32); a share `easy` is plain.

    Plain: hardly moved, black on white or white on black. Otherwise contrast 0.7 to 1, any colours, and on
    every second image a background texture of amplitude up to 0.12.
    """
    n = len(label)
    plain = generator.random(n) < easy
    strength = np.where(plain, 0.3, 1.0)[:, None, None]
    lines = glyphs.draw_glyphs(glyphs.class_strokes("upstream")[label], generator, strength)
    cover = glyphs.ink(glyphs.distance(lines, IMAGE_SIZE), glyphs.uniform(generator, 0.10, 0.16, n))
    over, under = glyphs.colours(generator, n, (0.7, 1.0), tint=0.35)
    amplitude = glyphs.uniform(generator, 0.0, 0.12, n) * (generator.random((n, 1, 1)) < 0.5)
    texture = amplitude.astype(np.float32) * glyphs.pattern(generator, n, IMAGE_SIZE)
    image = glyphs.blend(cover, over, under + texture[:, None])
    flip = (generator.random((n, 1, 1, 1)) < 0.5).astype(np.float32)
    image[plain] = glyphs.blend(cover, flip, 1 - flip)[plain]
    return glyphs.to_bytes(image), cover


def learning_rate(step: int, steps: int, warm_up: int) -> float:
    """A line up over the warm-up steps, then half a cosine down to zero."""
    if step < warm_up:
        return LEARNING_RATE * (step + 1) / warm_up
    return LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * (step - warm_up) / max(1, steps - warm_up)))


def pretrain(
    arch: str, seed: int, recipe: Recipe, steps: int = STEPS, batch: int = BATCH, say: Callable[[str], None] = print
) -> Upstream:
    """The model after `steps` steps on fresh images; sets torch's seed and thread count.

    Runs of one seed begin with the same weights and see the same images, whatever their recipe.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    model = Upstream(micro_recipes.prepared(architecture(f"micro_{arch}"), recipe)).train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=recipe.weight_decay)
    generator, depths = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 2))
    started = time.process_time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, min(WARM_UP, steps // 2))
        label = generator.integers(0, glyphs.UPSTREAM_CLASSES, batch)
        depth = int(depths.integers(1, len(model.backbone.blocks))) if recipe.exits else 0
        easy = max(0.0, 1 - step / (EASY_UNTIL * steps))
        loss, right = _loss(model, label, easy, generator, depth, recipe.exits)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (step + 1) % 50 == 0:
            used = time.process_time() - started
            place = f"step {step + 1} of {steps}"
            say(f"{place}  loss {loss.item():.3f}  batch accuracy {right:.3f}  {used:.0f} CPU seconds")
    micro_recipes.fold(model.backbone)
    return model.eval()


def _loss(
    model: Upstream, label: np.ndarray, easy: float, generator: np.random.Generator, depth: int, exits: float
) -> tuple[Tensor, float]:
    """The loss, with `exits` times that after the first `depth` blocks if depth is not 0, and the accuracy."""
    image, cover = upstream_images(label, easy, generator)
    exit_there = micro_recipes.after_block(model.backbone, depth) if depth else nullcontext()
    with exit_there as seen:
        found = model(as_input(image))
    loss = _loss_of(found, label, cover)
    if depth:
        loss = loss + exits * _loss_of(model.read(model.backbone.norm(seen[0])), label, cover)
    return loss, (found[0].argmax(1) == torch.from_numpy(label)).float().mean().item()


def _loss_of(found: tuple[Tensor, Tensor, Tensor], label: np.ndarray, cover: np.ndarray) -> Tensor:
    classes, attributes, mask = found
    y = torch.from_numpy(label)
    has = torch.from_numpy(stroke_table()[label])
    half = avg_pool2d(torch.from_numpy(cover)[:, None], 2)  # (B, 1, 16, 16)
    per_patch = nn.functional.unfold(half, PATCH // 2, stride=PATCH // 2).transpose(1, 2)  # (B, patches, 16)
    return (
        cross_entropy(classes, y, label_smoothing=LABEL_SMOOTHING)
        + ATTRIBUTE_WEIGHT * binary_cross_entropy_with_logits(attributes, has)
        + binary_cross_entropy_with_logits(mask, per_patch)
    )


def stroke_table() -> np.ndarray:
    """(200, 24) float32: which strokes an upstream class has."""
    strokes = glyphs.class_strokes("upstream")
    return (strokes[:, :, None] == np.arange(glyphs.NUM_STROKES)).any(1).astype(np.float32)


def as_input(image: np.ndarray) -> Tensor:
    """uint8 images as the backbones see them: (x / 255 - 0.5) / 0.5."""
    return torch.from_numpy(image).float() / 127.5 - 1


@torch.no_grad()
def accuracy(model: Upstream, seed: int, per_class: int = 20) -> float:
    """Share of fresh upstream images, none of them easy, whose class is found."""
    generator = np.random.default_rng((seed, 1))
    label = np.tile(np.arange(glyphs.UPSTREAM_CLASSES), per_class).reshape(-1, 100)
    found = [model(as_input(upstream_images(row, 0.0, generator)[0]))[0].argmax(1).numpy() for row in label]
    return float(np.mean(np.stack(found) == label))


def save(model: Upstream, file: Path, facts: dict) -> None:
    """Write the backbone in half precision; the facts stand as JSON in the header."""
    from safetensors.torch import save as to_file

    tensors = {name: tensor.half().contiguous() for name, tensor in model.backbone.state_dict().items()}
    part = file.with_name(f".{file.name}.part")
    # One key only: several would be written in no fixed order, and equal runs would give unequal files.
    part.write_bytes(to_file(tensors, metadata={"provenance": json.dumps(facts, sort_keys=True)}))
    os.replace(part, file)


def facts_of(arch: str, seed: int, recipe: str | None, steps: int) -> dict:
    """What is noted in the file. Without a recipe's name it is what the shipped files say, to the byte."""
    import timm

    followed = RECIPES[recipe or SHIPPED[arch]]
    facts = {
        "arch": f"micro_{arch}", "script": SCRIPT, "renderer": glyphs.RENDERER, "seed": seed,
        "steps": steps * followed.longer, "batch": BATCH, "drop_path": followed.drop_path, "torch": torch.__version__,
        "timm": timm.__version__, "numpy": np.__version__,
    }  # fmt: skip
    if recipe is not None:
        facts |= {"recipe": recipe, **asdict(followed), "script_sha256": script_hash()}
    return facts


def script_hash() -> str:
    """Of the code of this script and of its recipes."""
    files = (Path(__file__), Path(micro_recipes.__file__))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@click.command()
@click.option("--arch", type=click.Choice(["vit", "mixer"]), default="vit", show_default=True)
@click.option("--recipe", type=click.Choice(list(RECIPES)), help="[that of the shipped weights]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True, help="Of a recipe not longer.")
@click.option("--date", default=lambda: datetime.date.today().isoformat(), help="Noted in the file [today].")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path),
    help="In place of --out: write FOLDER/RECIPE/micro_ARCH-seedN.safetensors, if it is not there.",
)  # fmt: skip
def main(arch: str, recipe: str | None, seed: int, steps: int, date: str, out: Path | None, into: Path | None) -> None:
    """Pre-train a micro backbone and write its weights.

    \b
    python tests/plugins/backbones/micro_pretrain.py --arch vit --seed 0 --out micro_vit.safetensors
    python tests/plugins/backbones/micro_pretrain.py --recipe layer_scale --into weights/skippable
    """
    if (out is None) == (into is None):
        raise click.UsageError("give --out FILE or --into FOLDER, one of the two")
    if out is None:
        if recipe is None:
            raise click.UsageError(f"--into FOLDER needs --recipe: one of {', '.join(RECIPES)}")
        out = into / recipe / f"micro_{arch}-seed{seed}.safetensors"
        if out.exists():
            click.echo(f"{out} is there already")
            return
        out.parent.mkdir(parents=True, exist_ok=True)
    followed = RECIPES[recipe or SHIPPED[arch]]
    model = pretrain(arch, seed, followed, steps * followed.longer, BATCH, say=lambda line: click.echo(line))
    for parameter in model.backbone.parameters():
        parameter.data = parameter.data.half().float()  # measured as it will be loaded
    found = accuracy(model, seed)
    save(model, out, {**facts_of(arch, seed, recipe, steps), "upstream_accuracy": found, "date": date})
    click.echo(f"upstream accuracy {found:.4f}  {time.process_time():.0f} CPU seconds  wrote {out}")


if __name__ == "__main__":
    main()
