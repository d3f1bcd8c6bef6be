"""Two results folders that a test says, and what `fedbench compare` says of them."""

from __future__ import annotations

import shutil

from command import fedbench
from factories import eval_rows, round_row, write_cell

NOISE = (0.0, 0.004, -0.004, 0.002)


def write(folder, method, value, seed=0, **options):
    """A cell with that value in both of two domains."""
    evaluation = eval_rows({12: {"a": value, "b": value}})
    return write_cell(folder / "s", method, seed, evaluation=evaluation, **{"rounds": rounds()} | options)


def level(folder, method, mean, seeds=4, spread=1.0, **options):
    """Cells of a method in `folder`, whose average is that mean and a noise of its own for each seed."""
    for seed, e in enumerate(NOISE[:seeds]):
        write(folder, method, mean + spread * e, seed, **options)


def rounds(**changes):
    return [round_row(t, n, [0, 1], **changes) for t in (1, 12) for n in range(2)]


def twice(folder):
    """What lies under before lies under after too."""
    shutil.copytree(folder / "before", folder / "after")


def change(folder, *words, columns=100):
    return fedbench("compare", "changes", "before", "after", *words, cwd=folder, columns=columns)


def flat(text):
    return " ".join(text.split())
