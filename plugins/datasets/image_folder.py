"""Data set `image_folder`: any tree root/<domain>/<class>/*.jpg of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fedbench import hookimpl
from fedbench.data import root_of
from fedbench.data.decode import Interpolation, OnUnreadable, Resize, Root, Sample, check_options, image_dataset
from fedbench.data.splitting import groups_by_name, notes_on_groups, tests_by_group
from fedbench.errors import UserError
from fedbench.options import Length, Natural, Range, Text, judged
from fedbench.seeding import seed_of
from fedbench.types import Dataset

from .image_tree import Tree

OTHERWISE = (
    "give another `split_seed` or `test_fraction`, or leave the class or the domain out by `classes` or `domains`"
)
GroupPattern = Annotated[str, Text("a regular expression on names of images")]
Folders = Annotated[list[Annotated[str, Text("a folder's name")]], Length(1, distinct=True)]


@judged("image_folder")
def make(
    image_size: int,
    root: Root,
    test_fraction: Annotated[float, Range(above=0, below=1)] = 0.2,
    unreadable: OnUnreadable = "fail",
    split_seed: Natural = 0,
    domains: Folders | None = None,
    interpolation: Interpolation = "bicubic",
    resize: Resize = "antialiased",
    classes: Folders | None = None,
    group: GroupPattern | None = None,
) -> Dataset:
    """Your own images in root/domain/class, split into training and test within each domain and class.

    Folders called train and test (or val, validation) are splits, whether they stand above those of domains or
    classes, or in every domain; then nothing is drawn. A domain may lack classes, and trains on a lone image of one.

    Args:
        test_fraction, split_seed: the share of test images, and the seed that picks them. The pick within one domain
            and class depends on nothing outside it.
        unreadable: `fail` or `skip`, what is called like an image and cannot be read.
        domains, classes: the folders to take, in this order; all of them, sorted, if not given.
        interpolation: how to resize.
        resize: `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
            antialiasing and clamping, EXIF ignored, four times the cache.
        group: a regular expression. Images in whose names it finds the same, such as `^patient[0-9]+`, or the same in
            its first parenthesis, are in the same split, also where validation images are drawn.

    Raises: UserError with all that is wrong with the tree: where it has another layout, or nothing to test with.
    """
    folder = root_of("image_folder", root)
    check_options(image_size, interpolation, unreadable, resize)
    tree = Tree(folder, domains, classes)
    if tree.faults:
        raise UserError(tree.message(unreadable))
    samples: list[Sample] = []
    tests: set[str] = tree.tests or set()
    for d, found in enumerate(tree.images.values()):
        for label, name in enumerate(tree.classes):
            paths = found.get(name, [])
            samples += [Sample(path, label, d) for path in paths]
            tests |= set() if group or tree.tests is not None else _drawn(paths, test_fraction, split_seed)
    notes, groups = tree.notes, None
    if group is not None:
        groups = groups_by_name(group, [sample.path for sample in samples])
        if tree.tests is None:
            tests = tests_by_group("image_folder", samples, groups, test_fraction, split_seed)
        notes = [*notes, *notes_on_groups(groups, tests)]
    train, test = ([sample for sample in samples if (sample.path in tests) is wanted] for wanted in (False, True))
    options = image_size, interpolation, unreadable, resize
    domains = list(tree.images)
    return image_dataset(folder, domains, tree.classes, train, test, *options, OTHERWISE, notes, groups)


def _drawn(paths: Sequence[str], fraction: float, seed: int) -> set[str]:
    """Those for testing, of one class and domain; a lone image is trained on."""
    ranked = sorted(paths, key=lambda path: seed_of(seed, -1, -1, _text(path)))
    return set(ranked[: max(min(max(round(fraction * len(paths)), 1), len(paths) - 1), 0)])


def _text(path: str) -> str:
    """The path with bytes that are not UTF-8 spelled out."""
    return path.encode(errors="backslashreplace").decode()


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register(
        "image_folder", make, profiles={"reference": {"resize": "reference"}}, later=("resize", "classes", "group")
    )
