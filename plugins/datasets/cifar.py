"""Data sets `cifar10` and `cifar100`: 32 x 32 photographs, from the official binary version (Krizhevsky, 2009).

A record is one byte of label (two for CIFAR-100, coarse and fine) and 3,072 of pixels, red, green, blue, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, NewArray, cached, root_of
from fedbench.data.decode import Interpolation, Root, check_options, resized
from fedbench.data.image_files import content, content_hashes, in_threads
from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.options import judged
from fedbench.types import Dataset, Images, Splits
from fedbench.words import counted

if TYPE_CHECKING:
    import numpy as np

VERSION = 1  # raise it whenever the arrays made of the same files change
PIXELS = 3 * 32 * 32
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class Version:
    """One of the two: its files, how many bytes of label a record has (the last one counts), and where it is from."""

    name: str
    train: Sequence[str]
    test: str
    names: str
    label_bytes: int
    num_classes: int
    source: DataSource

    def dataset(self, image_size: int, root: str | None, interpolation: str) -> Dataset:
        import PIL

        check_options(image_size, interpolation)
        folder = root_of(self.name, root)
        self.source.require(self.name, folder)
        base = self.source.parts[0].at(folder).parent
        classes = [line for line in content(base, self.names).decode("utf-8", "replace").split() if line]
        if len(set(classes)) != self.num_classes or len(classes) != self.num_classes:
            raise UserError(f"{base / self.names} must name {counted(self.num_classes, 'class')}, not {len(classes)}")
        hashes = content_hashes(base, [*self.train, self.test, self.names])
        facts = [VERSION, PIL.__version__, self.name, image_size, interpolation, list(hashes.values())]
        fingerprint = hash_of_json(facts)

        def build(new_array: NewArray) -> Splits:
            def half(split: str, files: Sequence[str]) -> Images:
                x, y = self._records(base, files)
                out = new_array(f"{split}_x", (len(y), 3, image_size, image_size))
                _resize(x, out, interpolation)
                return Images(out, y, y * 0)

            return Splits(half("train", self.train), half("test", [self.test]))

        return Dataset(("all",), tuple(classes), fingerprint, lambda: cached(fingerprint, build))

    def _records(self, base: Path, files: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (n, 3, 32, 32) uint8 and labels (n,) int64 of the files. Raises: UserError where they are damaged."""
        import numpy as np

        length, found = self.label_bytes + PIXELS, []
        for file in files:
            raw = np.frombuffer(content(base, file), dtype=np.uint8)
            if not len(raw) or len(raw) % length:
                raise UserError(f"{base / file} has {len(raw):,} bytes, which are no whole records of {length:,} bytes")
            records = raw.reshape(-1, length)
            if (top := records[:, self.label_bytes - 1].max()) >= self.num_classes:
                raise UserError(f"{base / file} has the label {top}; the {self.num_classes} classes count from 0")
            found.append(records)
        records = np.concatenate(found)
        y = records[:, self.label_bytes - 1].astype(np.int64)
        return records[:, self.label_bytes :].reshape(-1, 3, 32, 32), y


def _resize(x: np.ndarray, out: np.ndarray, interpolation: str) -> None:
    from PIL import Image

    def work(i: int) -> None:
        out[i] = resized(Image.fromarray(x[i].transpose(1, 2, 0)), out.shape[-1], interpolation)

    in_threads(work, len(x), "resizing images")


def _source(first: str, archive: str, md5: str, size: str, pickled: str) -> DataSource:
    part = DataPart((first, first.rpartition("/")[2]), archive, md5, size)
    refused = dict.fromkeys(pickled.split(), f"it holds Python pickles, which fedbench does not open; take {archive}")
    licence = "none stated; the page asks to cite the report of 2009"
    return DataSource(PAGE, (part,), licence, {"all": (50_000, 10_000)}, refused)


CIFAR10 = Version(
    "cifar10",
    train=[f"data_batch_{number}.bin" for number in range(1, 6)],
    test="test_batch.bin",
    names="batches.meta.txt",
    label_bytes=1,
    num_classes=10,
    source=_source(
        "cifar-10-batches-bin/data_batch_1.bin",
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        "162 MB",
        pickled="cifar-10-python.tar.gz cifar-10-batches-py",
    ),
)
CIFAR100 = Version(
    "cifar100",
    train=["train.bin"],
    test="test.bin",
    names="fine_label_names.txt",
    label_bytes=2,
    num_classes=100,
    source=_source(
        "cifar-100-binary/train.bin",
        "cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
        "161 MB",
        pickled="cifar-100-python.tar.gz cifar-100-python",
    ),
)


@judged("cifar10")
def cifar10(image_size: int, root: Root | None = None, interpolation: Interpolation = "bicubic") -> Dataset:
    """CIFAR-10: 10 classes of 32 x 32 photographs, one domain.

    Args:
        root: the folder with cifar-10-batches-bin/ of the binary version, or that folder itself; `cifar10` in the
            folder of data sets if not given.
        interpolation: how to resize.
    """
    return CIFAR10.dataset(image_size, root, interpolation)


@judged("cifar100")
def cifar100(image_size: int, root: Root | None = None, interpolation: Interpolation = "bicubic") -> Dataset:
    """CIFAR-100: 100 fine classes of 32 x 32 photographs, one domain.

    Args:
        root: the folder with cifar-100-binary/, or that folder itself; `cifar100` in the folder of data sets if not
            given.
        interpolation: how to resize.
    """
    return CIFAR100.dataset(image_size, root, interpolation)


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("cifar10", cifar10, source=CIFAR10.source)
    register("cifar100", cifar100, source=CIFAR100.source)
