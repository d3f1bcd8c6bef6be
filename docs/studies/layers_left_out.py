"""Scores frozen micro backbones with layers left out; the command line stands at the end.

A linear probe is fitted on the features that the whole frozen backbone gives of `strokes6`'s training images, all six
domains together, and tested on the test images with k of the L layers left out: any k of them, drawn anew, or the last
k. Downstream classes, for two reasons: the federated methods are scored on them, under the styles that the backbone
has never seen; and a classifier of the upstream classes is not saved with the weights. With --refit the probe is
fitted anew on the features without the same layers, on every fourth training image: what is then lost is in the
features and not in the probe.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from math import comb
from pathlib import Path

import click
import numpy as np
import torch
from safetensors import safe_open

from fedbench.disk import hash_of_file
from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.types import Dataset, Images
from fedbench_plugins.backbones.micro import IMAGE_SIZE, micro_mixer, micro_vit
from fedbench_plugins.datasets import strokes6

MOST, DRAWS = 8, 10
BUILD = {"micro_vit": micro_vit, "micro_mixer": micro_mixer}
BATCH = 500
THINNED = 4  # of so many training images, one is taken with --refit


@dataclass(frozen=True)
class Score:
    """One test. weights: the fingerprint that cells on these weights have too · left_out: `random`, `last`, or `none`
    of the layers · probe: `full`, or `refit` without the same layers · layers: those left out, counted from 0."""

    weights: str
    backbone: str
    recipe: str
    weights_seed: int
    k: int
    left_out: str
    probe: str
    draw: int
    layers: str
    accuracy: float


def draws(L: int, most: int, count: int, seed: int) -> Iterator[tuple[int, str, int, tuple[int, ...]]]:
    """(k, `none`, `random` or `last`, number of the draw, the layers left out): the same for every backbone of L
    layers. Of one k no set is drawn twice while there are others."""
    yield 0, "none", 0, ()
    for k in range(1, min(most, L - 1) + 1):
        generator, seen = np.random.default_rng((seed, k)), set()
        while len(seen) < min(count, comb(L, k)):
            out = tuple(sorted(int(j) for j in generator.choice(L, k, replace=False)))
            if out not in seen:
                seen.add(out)
                yield k, "random", len(seen) - 1, out
        yield k, "last", 0, tuple(range(L - k, L))


@torch.no_grad()
def features(body: Blocks, images: Images, left_out: Sequence[int]) -> np.ndarray:
    """(n, D): the frozen features of images in [0, 255] without these layers."""
    kept, found = [block for j, block in enumerate(body.blocks) if j not in left_out], []
    for start in range(0, len(images.x), BATCH):
        pixels = np.array(images.x[start : start + BATCH])
        tokens = body.embed(torch.from_numpy(pixels).float() / 127.5 - 1)
        for block in kept:
            tokens = block(tokens)
        found.append(body.features(tokens).numpy())
    return np.concatenate(found)


def probe_of(z: np.ndarray, y: np.ndarray):
    """A multinomial logistic regression (C = 1) of standardised features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(z, y)


def thinned(images: Images) -> Images:
    return Images(*(part[::THINNED] for part in (images.x, images.y, images.domain)))


def scores(
    file: Path, dataset: Dataset, most: int = MOST, count: int = DRAWS, seed: int = 0, refit: bool = False
) -> Iterator[Score]:
    """Every test of one file of weights. Raises: UserError where it does not say what it is."""
    facts = provenance(file)
    body = Blocks(BUILD[facts["arch"]](pretrained=str(file))).eval()
    splits = dataset.load()
    train = thinned(splits.train) if refit else splits.train
    full = None if refit else probe_of(features(body, train, ()), train.y)
    known = (f"{facts['arch']}-{hash_of_file(file)[:16]}", facts["arch"], facts.get("recipe", "shipped"), facts["seed"])
    for k, way, draw, out in draws(body.num_layers, most, count, seed):
        probe = probe_of(features(body, train, out), train.y) if full is None else full
        found = probe.score(features(body, splits.test, out), splits.test.y)
        yield Score(*known, k, way, "refit" if refit else "full", draw, " ".join(map(str, out)), float(found))


def provenance(file: Path) -> dict:
    """What `micro_pretrain.py` noted in the file. Raises: UserError where it did not."""
    try:
        with safe_open(file, "pt") as opened:
            facts = json.loads(opened.metadata()["provenance"])
        if facts["arch"] in BUILD and isinstance(facts["seed"], int):
            return facts
    except Exception as error:
        raise UserError(f"{file}: no weights with the provenance that micro_pretrain.py notes: {error!r}") from error
    raise UserError(f"{file}: weights of {facts['arch']}; expected one of {', '.join(BUILD)}")


def read(table: Path) -> list[Score]:
    """The scores of a file that was written here."""
    with open(table, newline="") as opened:
        rows = list(csv.DictReader(opened))
    if rows and set(rows[0]) != {field.name for field in fields(Score)}:
        raise UserError(f"{table}: its columns are not those that layers_left_out.py writes")
    number = {"weights_seed": int, "k": int, "draw": int, "accuracy": float}
    return [Score(**{key: number.get(key, str)(value) for key, value in row.items()}) for row in rows]


def add(table: Path, found: Sequence[Score]) -> None:
    """Append scores, under a line of names where the file is new."""
    new = not table.exists()
    with open(table, "a", newline="") as opened:
        writer = csv.DictWriter(opened, [field.name for field in fields(Score)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(score) for score in found)


def summary(found: Sequence[Score]) -> list[str]:
    """A line for each k: mean, standard deviation, lowest and highest over draws, and without the last k."""
    lines = [" k   mean     sd    min    max   last"]
    for k in sorted({score.k for score in found}):
        of = {way: [s.accuracy for s in found if (s.k, s.left_out) == (k, way)] for way in ("none", "random", "last")}
        values = of["none"] or of["random"]
        spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
        last = f"{of['last'][0]:7.1%}" if of["last"] else ""
        lines.append(f"{k:2d} {np.mean(values):6.1%} {spread:6.1%} {min(values):6.1%} {max(values):6.1%}{last}")
    return lines


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    "out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV that lines go to.",
)
@click.option("--draws", "count", type=click.IntRange(min=2), default=DRAWS, show_default=True, help="For each k.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws.")
@click.option("--refit", is_flag=True, help="Fit the probe anew without the same layers.")
def main(files: tuple[Path, ...], out: Path, count: int, seed: int, refit: bool) -> None:
    """Score frozen micro backbones with 0 to 8 layers left out. Files of weights that the CSV knows are passed over.

    \b
    python docs/studies/layers_left_out.py weights/skippable/*/*.safetensors --output skippable.csv
    """
    torch.set_num_threads(1)
    done = {(score.weights, score.probe) for score in read(out)} if out.exists() else set()
    dataset = strokes6.make(IMAGE_SIZE)
    for file in files:
        began = time.process_time()
        key = (f"{provenance(file)['arch']}-{hash_of_file(file)[:16]}", "refit" if refit else "full")
        if key not in done:
            found = list(scores(file, dataset, count=count, seed=seed, refit=refit))
            add(out, found)
            click.echo("\n".join([f"{file}  {time.process_time() - began:.0f} CPU seconds", *summary(found)]))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"Error: {error}") from error
