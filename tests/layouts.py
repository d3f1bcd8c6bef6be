"""Data sets in their official layouts, tiny: real JPEG files, lists and records, and archives of them."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

STYLES = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
CONTEXTS = ("autumn", "dim", "grass", "outdoor", "rock", "water")


def jpeg(shade: int, size: tuple[int, int] = (12, 9)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (shade % 256, 100, 200)).save(buffer, "jpeg", quality=95)
    return buffer.getvalue()


def write(file: Path, content: bytes | str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def domainnet(root: Path, per_class: int = 3) -> Path:
    """Two classes below 100 and one above in each style; the last image of each class is for testing."""
    for d, style in enumerate(STYLES):
        lines: dict[str, list[str]] = {"train": [], "test": []}
        for label, name in ((0, "aircraft_carrier"), (1, "airplane"), (344, "zigzag")):
            for i in range(per_class):
                path = f"{style}/{name}/{style}_{label + 1:03}_{i:06}.jpg"
                write(root / path, jpeg(40 * d + 10 * label + i))
                lines["test" if i == per_class - 1 else "train"].append(f"{path} {label}\n")
        for split, text in lines.items():
            write(root / "splits" / f"{style}_{split}.txt", "".join(text))
    return root


def nicopp(root: Path) -> Path:
    """Two classes in each context, one with a space in its name."""
    for context in CONTEXTS:
        for split, numbers in (("train", (1, 2)), ("test", (3,))):
            lines = []
            for label, name in ((0, "airplane"), (7, "hot air balloon")):
                for i in numbers:
                    path = f"NICO_DG/{context}/{name}/{context} {i:04}.jpg"
                    write(root / path, jpeg(10 * label + 20 * i))  # which JPEG tells apart
                    lines.append(f"{path} {label}\n")
            write(root / "NICO_DG_official" / f"{context}_{split}.txt", "".join(lines))
    return root


def records(labels: list[list[int]]) -> bytes:
    """CIFAR records of these label bytes, the pixels random but the same each time."""
    draw = np.random.default_rng(len(labels))
    return b"".join(bytes(label) + draw.integers(0, 256, 3072, dtype=np.uint8).tobytes() for label in labels)


def cifar10(root: Path) -> Path:
    base = root / "cifar-10-batches-bin"
    for number in range(1, 6):
        write(base / f"data_batch_{number}.bin", records([[number], [number + 3]]))
    write(base / "test_batch.bin", records([[label] for label in range(10)]))
    write(base / "batches.meta.txt", "".join(f"name{label}\n" for label in range(10)) + "\n")
    return root


def cifar100(root: Path) -> Path:
    base = root / "cifar-100-binary"
    write(base / "train.bin", records([[label // 5, label] for label in range(100)]))
    write(base / "test.bin", records([[0, 99], [19, 0]]))
    write(base / "fine_label_names.txt", "".join(f"fine{label}\n" for label in range(100)))
    return root


def tiny_imagenet(root: Path) -> Path:
    base, annotations = root / "tiny-imagenet-200", ""
    for label, wnid in enumerate(("n02124075", "n01443537")):
        for i in range(3):
            write(base / f"train/{wnid}/images/{wnid}_{i}.JPEG", jpeg(100 * label + i))
        write(base / f"train/{wnid}/{wnid}_boxes.txt", f"{wnid}_0.JPEG\t0\t0\t9\t9\n")
        write(base / f"val/images/val_{label}.JPEG", jpeg(100 * label + 50))
        annotations += f"val_{label}.JPEG\t{wnid}\t0\t32\t44\t62\n"
    write(base / "wnids.txt", "n02124075\nn01443537\n")
    write(base / "val/val_annotations.txt", annotations)
    write(base / "test/images/test_0.JPEG", b"is not read")
    return root


def vader_domains(root: Path) -> Path:
    """Three sentences, one of each class, of each of ten tweets, reviews and articles."""
    for kind in ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets"):
        rated = [(i, k, rating) for i in range(10) for k, rating in enumerate((-0.6, 0.5, 0.51))]
        lines = [f"{i}_{k}\t{rating}\t{kind} {i} {k}\r\n" for i, k, rating in rated]
        write(root / "hutto_ICWSM_2014" / f"{kind}_GroundTruth.txt", "".join(lines))
    return root


def text_table(root: Path) -> Path:
    write(root / "table.csv", "text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(20)))
    return root / "table.csv"


LAYOUTS = {
    "domainnet": domainnet,
    "nicopp": nicopp,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "tiny_imagenet": tiny_imagenet,
}


def tar_gz(archive: Path, folder: Path) -> Path:
    """The folder, packed under its own name, and gone."""
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder, folder.name)
    _remove(folder)
    return archive


def zipped(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(folder.rglob("*")):
            opened.write(file, file.relative_to(folder.parent))
    _remove(folder)
    return archive


def _remove(folder: Path) -> None:
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


def garments(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Grey images (count, 28, 28), each a bright block of its own place and size, and labels 0, 1, ..., 9, 0, ..."""
    x = np.zeros((count, 28, 28), dtype=np.uint8)
    for i in range(count):
        x[i, 2 + i % 5 : 14 + i % 11, 4 + i % 3 : 16 + i % 9] = 255 - i
    return x, np.arange(count, dtype=np.uint8) % 10


def idx(values: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes, written out from the format."""
    axes = b"".join(side.to_bytes(4, "big") for side in values.shape)
    return bytes([0, 0, 8, values.ndim]) + axes + values.tobytes()


def fashion_mnist(root: Path, train: int = 120, test: int = 60) -> Path:
    """The four files, packed as they are published."""
    for prefix, count in (("train", train), ("t10k", test)):
        x, y = garments(count)
        write(root / f"{prefix}-images-idx3-ubyte.gz", gzip.compress(idx(x), mtime=0))
        write(root / f"{prefix}-labels-idx1-ubyte.gz", gzip.compress(idx(y), mtime=0))
    return root
