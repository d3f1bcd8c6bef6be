"""Data set `hf`: images or texts of the Hugging Face Hub, or local ones that the library `datasets` reads.

No code of a data set is ever run: where `datasets` still knows loading scripts, they are refused.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fedbench import hookimpl
from fedbench.data.decode import Interpolation, OnUnreadable, Sample, image_dataset
from fedbench.data.image_files import UnreadableFile, content, in_threads, scanned
from fedbench.data.names import Names
from fedbench.data.tables import cell, rows_of
from fedbench.data.texts import Example, text_dataset
from fedbench.disk import hash_of_bytes, remembered
from fedbench.errors import UserError
from fedbench.options import Length, PathText, Text, judged
from fedbench.types import Dataset

if TYPE_CHECKING:
    import datasets


Split = Annotated[str, Text("a split, such as train[:90%]")]
Column = Annotated[str, Text("a column's name")]


@judged("hf")
def make(
    image_size: int,
    path: Annotated[str, PathText("a data set's name on the Hub, or a folder")],
    config: Annotated[str, Text("a configuration's name")] | None = None,
    train: Split = "train",
    test: Split = "test",
    image: Column | None = None,
    label: Column | None = None,
    domain: Column | None = None,
    unreadable: OnUnreadable = "fail",
    interpolation: Interpolation = "bicubic",
    text: Column | Annotated[list[Column], Length(2, 2, distinct=True)] | None = None,
) -> Dataset:
    """A Hugging Face data set, by its name on the Hub or a local folder; needs the extra `datasets`.

    Args:
        path, config: as `datasets.load_dataset` takes them.
        train, test: the splits, such as `train[:90%]`.
        image, label: columns, which can be left out where just one holds images, and one class labels.
        domain: a column that tells domains apart.
        unreadable: `fail` or `skip`.
        interpolation: how to resize.
        text: the column of texts, or two, such as `[premise, hypothesis]`, in place of images.

    Raises: UserError where the library is missing, the data cannot be had, the splits share rows, or columns do not
    fit.
    """
    if train == test:
        raise UserError(f"hf: train and test are both {train!r}; a model is not tested on its training images")
    if path == "pandas":
        raise UserError("hf: 'pandas' would make the library open Python pickles of the current folder")
    halves = {split: load(path, config, split) for split in (train, test)}
    _keep_apart(halves)
    texts = [_column(halves, "text", one) for one in ([text] if isinstance(text, str) else text or [])]
    image = None if texts else _column(halves, "image", image, "Image")
    label = _column(halves, "label", label, "ClassLabel")
    y, classes, notes = _codes(halves, label, "labels", path, config)
    where, domains = {split: [0] * len(y[split]) for split in y}, ["all"]
    if domain:
        where, domains, more = _codes(halves, _column(halves, "domain", domain), "domains", path, config)
        notes = [*notes, *more]
    if image is None:
        train_texts, test_texts = (
            _examples(split, half, texts, y[split], where[split]) for split, half in halves.items()
        )
        return text_dataset(domains, classes, train_texts, test_texts, notes)
    of_train, of_test = (
        [Sample(f"{split}/{row}", *codes) for row, codes in enumerate(zip(y[split], where[split], strict=True))]
        for split in halves
    )
    rows = Rows(halves, [path, config], image)
    how = image_size, interpolation, unreadable
    return image_dataset(rows, domains, classes, of_train, of_test, *how, notes=notes)


def load(path: str, config: str | None, split: str) -> datasets.Dataset:
    """One split, its images still encoded. Raises: UserError where the library is missing or the data cannot be had."""
    try:
        import datasets
    except ImportError:
        raise UserError("the data set hf needs the library `datasets`: pip install 'fedbench-heft[datasets]'") from None
    wanted = f"split {split!r} of {path!r}" + (f", config {config!r}" if config else "")
    takes_it = "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters
    try:
        with _quiet(datasets):
            return datasets.load_dataset(
                path, config, split=split, **({"trust_remote_code": False} if takes_it else {})
            )
    except Exception as error:  # of the library, the network or the files: of many kinds, and never a fault of ours
        first = str(error).strip().partition("\n")[0]
        raise UserError(
            f"hf: cannot load {wanted}: {type(error).__name__}: {first}\n  A name is looked up on the Hub, which needs "
            "the network the first time; a local data set is named by its folder."
        ) from error


def _keep_apart(halves: dict[str, datasets.Dataset]) -> None:
    """Raises: UserError where a row is in both splits. Equal images in different rows are the data set's own matter."""
    from datasets import ReadInstruction

    slices = []
    for split, half in halves.items():
        lengths = {name: info.num_examples for name, info in half.info.splits.items()}
        spec = "+".join(lengths) if split == "all" else split
        slices.append(ReadInstruction.from_spec(spec).to_absolute(lengths))
    for one, other in itertools.product(*slices):
        first, end = max(one.from_, other.from_), min(one.to, other.to)
        if one.splitname == other.splitname and first < end:
            train, test = halves
            raise UserError(
                f"hf: train {train!r} and test {test!r} share the rows {one.splitname}[{first}:{end}]; a model is not "
                "tested on its training images"
            )


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """No bars of the library where nobody watches."""
    silence = not sys.stderr.isatty() and datasets.are_progress_bars_disabled() is False
    if silence:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if silence:
            datasets.enable_progress_bars()


def _column(halves: dict[str, datasets.Dataset], option: str, given: str | None, feature: str = "") -> str:
    """The column of that name in every split, or the only one of that kind of feature."""
    for split, half in halves.items():
        kinds = {name: type(kind).__name__ for name, kind in half.features.items()}
        found = [given] if given else [name for name, kind in kinds.items() if kind == feature]
        columns = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        if len(found) != 1:
            many = f"{len(found)} columns are" if found else "no column is"
            raise UserError(f"hf: {many} of type {feature} in split {split!r}; set `{option}` to one of {columns}")
        if found[0] not in kinds:
            raise UserError(f"hf: split {split!r} has no column {found[0]!r} for `{option}`; it has {columns}")
        if feature == "Image" and kinds[found[0]] != feature:
            raise UserError(f"hf: column {found[0]!r} holds no images; split {split!r} has {columns}")
        given = found[0]
    assert given is not None  # there are two splits
    return given


def _codes(
    halves: dict[str, datasets.Dataset], column: str, noun: str, path: str, config: str | None
) -> tuple[dict[str, list[int]], list[str], list[str]]:
    """A column's values as whole numbers from 0, split by split, the names they stand for, of both splits, and notes
    on names that were joined. noun: of what they are."""
    values = {split: half[column][:] for split, half in halves.items()}
    named: list[Any] = [getattr(half.features[column], "names", None) for half in halves.values()]
    for split, found in values.items():  # -1 stands for an unknown class
        if bad := sum(not isinstance(value, int | str) or any(named) and value == -1 for value in found):
            raise UserError(
                f"hf: {bad:,} of {len(found):,} rows of split {split!r} have no whole number or text in {column!r}"
            )
    if any(named):
        if named[0] != named[1]:
            raise UserError(f"hf: the splits give other names to the values of {column!r}")
        return values, list(named[0]), []
    names = Names()
    called = {value: names(str(value)) for found in values.values() for value in dict.fromkeys(found)}
    known = {called[value]: None for value in sorted(called, key=lambda value: (str(type(value)), value))}
    code = {name: number for number, name in enumerate(known)}
    if not any(isinstance(value, str) for value in called):
        names = Names()
        for written, value in _as_written(path, config, column):
            names(str(value), written)
    return {split: [code[called[v]] for v in found] for split, found in values.items()}, list(known), names.joined(noun)


def _as_written(path: str, config: str | None, column: str) -> list[tuple[str, int | bool]]:
    """The values of a column of numbers or truth values as local CSV files have them, such as 007 and 7, and as the
    library has read them; none of other files."""
    import datasets

    read = {"true": True, "false": False}
    found: dict[str, int | bool] = {}
    try:
        builder = datasets.load_dataset_builder(path, config)
        files = [file for of_split in builder.config.data_files.values() for file in of_split]
        for file in files if builder.name == "csv" else []:
            for row in rows_of(Path(file), [column]) if Path(file).suffix in (".csv", ".tsv") else ():
                written = cell(row, column)
                value = read.get(written.strip().lower())
                found[written] = int(written) if value is None else value
    except Exception:  # of the library, or of a table that it reads otherwise: then nothing is known
        return []
    return list(found.items())


def _examples(split: str, half: datasets.Dataset, columns: list[str], y: list[int], domain: list[int]) -> list[Example]:
    """The rows of a split of texts. Raises: UserError where a row has none."""
    cells = list(zip(*(half[column][:] for column in columns), strict=True))
    for row, found in enumerate(cells):
        for column, value in zip(columns, found, strict=True):
            if not isinstance(value, str) or "\0" in value:
                what = "a NUL byte" if isinstance(value, str) else "no text"
                raise UserError(f"hf: row {row} of split {split!r} has {what} in column {column!r}")
    texts = [found if len(found) == 2 else found[0] for found in cells]
    return list(map(Example, texts, y, domain))


class Rows:
    """A store of encoded images: those in the image column, or the files it names; `train/12` is row 12 of `train`."""

    def __init__(self, halves: dict[str, datasets.Dataset], source: list[str | None], image: str) -> None:
        import datasets

        self.source, self.image = source, image
        self.halves = {
            split: half.select_columns([image]).cast_column(image, datasets.Image(decode=False))
            for split, half in halves.items()
        }

    def read(self, path: str) -> bytes:
        cell = self._row(path)
        if cell is None or cell["bytes"] is None and cell["path"] is None:
            raise UnreadableFile(self.place(path), f"no image in column {self.image!r}")
        return cell["bytes"] if cell["bytes"] is not None else content(Path("/"), cell["path"])

    def hashes(self, paths: Sequence[str]) -> dict[str, str]:
        """sha256 of every image that there is. Those of a table that did not change since the last scan are not
        computed again."""
        inside: dict[str, str | None] = {}
        for split, half in self.halves.items():
            mine = [path for path in paths if path.rpartition("/")[0] == split]
            tables = [_facts(file["filename"]) for file in half.cache_files]
            if tables:
                facts = [*self.source, split, self.image, tables]
                hashes = remembered("hashes", facts, functools.partial(self._inside, mine))
            else:
                hashes = self._inside(mine)
            inside |= dict(zip(mine, hashes, strict=True))
        outside = {path: self._file(path) for path, digest in inside.items() if digest is None}
        files, _ = scanned(Path("/"), sorted({file for file in outside.values() if file}))
        found = {path: digest or files.get(outside[path]) for path, digest in inside.items()}
        return {path: digest for path, digest in found.items() if digest}

    def place(self, path: str) -> str:
        split, _, row = path.rpartition("/")
        return self._file(path) or f"row {row} of split {split!r}"

    def _inside(self, paths: Sequence[str]) -> list[str | None]:
        """The hashes of images that the table itself holds; None for those that lie in files, or are not there."""

        def work(i: int) -> str | None:
            cell = self._row(paths[i])
            return hash_of_bytes(cell["bytes"]) if cell and cell["bytes"] is not None else None

        return in_threads(work, len(paths), "hashing images")

    def _file(self, path: str) -> str:
        """The file of an image that lies in one."""
        cell = self._row(path)
        return cell["path"] or "" if cell and cell["bytes"] is None else ""

    def _row(self, path: str) -> dict[str, Any] | None:
        split, _, row = path.rpartition("/")
        found: dict[str, Any] | None = self.halves[split][int(row)][self.image]
        return found


def _facts(file: str) -> list[Any]:
    stat = os.stat(file)
    return [file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("hf", make, later=("text",))
