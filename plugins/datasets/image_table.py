"""The data set `image_table`: images of one's own, which a table names with their classes, domains and groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fedbench.data import root_of
from fedbench.data.decode import Interpolation, OnUnreadable, Resize, Sample, check_options, image_dataset
from fedbench.data.image_files import as_on_disk
from fedbench.data.labelled import ClassNames, Column, Labelled, OwnColumn, Part, read_table
from fedbench.errors import UserError
from fedbench.options import Natural, PathText, judged
from fedbench.types import Dataset

OTHERWISE = "give another `split_seed` or `test_fraction`, or take its rows out of the table"


@judged("image_table")
def make(
    image_size: int,
    root: Annotated[str, PathText("a table, or a folder of tables")],
    path: Column = "path",
    label: Column = "label",
    domain: OwnColumn = None,
    split: OwnColumn = None,
    group: OwnColumn = None,
    images: Annotated[str, PathText("a folder")] | None = None,
    classes: ClassNames | None = None,
    test_fraction: Part = 0.2,
    unreadable: OnUnreadable = "fail",
    split_seed: Natural = 0,
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
) -> Dataset:
    """Your own images as a table names them: a CSV, TSV, JSONL or Parquet file, or a folder of them.

    Args:
        root: the file or folder.
        path: the column of the images' files.
        label: the column of classes.
        domain: that of domains, by default the one called `domain`. Without one, or with false, all are one domain.
        split: likewise, of `train` and `test`. Without one, files called train.* and test.* are the splits, or else
            test_fraction of each class and domain is drawn by split_seed.
        group: likewise, of what belongs together, as images of one patient do, and is drawn to the same side.
        images: the folder that paths begin at, itself relative to the table's; the table's own if not given.
        classes: the labels in order; sorted, all that there are, if not given.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
        resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
            antialiasing and clamping, EXIF ignored, four times the cache.

    Raises: UserError with file and row for what cannot be read, a missing column, an image that is not there or stands
        there twice, and a label or split that is none.
    """
    check_options(image_size, interpolation, unreadable, resize)
    place = root_of("image_table", root)
    columns = {"domain": domain, "split": split, "group": group}
    table = read_table("image_table", place, [path], label, columns, classes)
    folder = (place if place.is_dir() else place.parent) / (images or "")
    paths = _paths(folder, table.rows, path)
    examples = table.examples(paths)
    test = table.tested(examples, test_fraction, split_seed, "image")
    samples = [Sample(name, example.label, example.domain) for name, example in zip(paths, examples, strict=True)]
    of_train, of_test = (
        [one for one, flag in zip(samples, test, strict=True) if flag is wanted] for wanted in (False, True)
    )
    groups = dict(zip(paths, table.groups, strict=True)) if table.groups else None
    notes = [*table.notes, *table.notes_on(test, "image")]
    how = image_size, interpolation, unreadable, resize
    return image_dataset(folder, table.domains, table.classes, of_train, of_test, *how, OTHERWISE, notes, groups)


def _paths(folder: Path, rows: Sequence[Labelled], column: str) -> list[str]:
    """The path of each row's image as the file system spells it. Raises: UserError with file and row."""
    paths: dict[str, str] = {}  # and where it stands
    for row in rows:
        if not row.cells[0].strip():
            raise UserError(f"{row.place}: column {column!r} is empty")
        path = os.path.normpath(row.cells[0].strip())
        if path in paths:
            raise UserError(f"{row.place}: {path} is listed already, at {paths[path]}; an image is in one split, once")
        paths[path] = row.place
    return as_on_disk(folder, list(paths), lambda i: rows[i].place, "table")
