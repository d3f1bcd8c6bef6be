"""Data set `fashion_mnist`: 70,000 grey photographs of clothes, 28 x 28 (Xiao, Rasul and Vollgraf, 2017).

As it is, one domain; or, with `styles`, its lines in the six styles of `strokes6` as domains: ours, and no standard
data set. Whatever the files come from, their bytes once unpacked are those of the release, or they are refused.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, NewArray, cached
from fedbench.data.decode import Interpolation, Root, check_options, resized
from fedbench.data.image_files import ImageStore, in_threads
from fedbench.disk import hash_of_bytes, hash_of_json, remembered
from fedbench.errors import DataMissing, UserError
from fedbench.options import Count, Natural, judged
from fedbench.seeding import numpy_generator
from fedbench.types import Dataset, Images, Splits

from . import glyphs

VERSION = 1  # raise it whenever the arrays made of the same files change; the brushes have glyphs.RENDERER
NAME = "fashion_mnist"
SIDE = 28
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
SMOOTH, STEEP = 1.25, 10.0  # chosen by eye: a blur in pixels of glyphs.FINE, and grey levels a pixel that make an edge


@dataclass(frozen=True)
class Half:
    """One split: how its files are called, how many images it has, and the sha256 of its two files, unpacked.

    The hashes were taken from Debian's package 0.0~git20200523.55506a9-1.
    """

    split: str
    prefix: str
    count: int
    images_sha256: str
    labels_sha256: str

    def files(self) -> list[tuple[str, tuple[int, ...], str]]:
        """(name, shape, sha256) of the images and of the labels."""
        images = (f"{self.prefix}-images-idx3-ubyte", (self.count, SIDE, SIDE), self.images_sha256)
        return [images, (f"{self.prefix}-labels-idx1-ubyte", (self.count,), self.labels_sha256)]


HALVES = (
    Half(
        "train",
        "train",
        60_000,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    Half(
        "test",
        "t10k",
        10_000,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)


def _part(name: str) -> DataPart:
    """A file as it is published, unpacked, or where torchvision keeps it."""
    folders = ("", "FashionMNIST/raw/", "raw/")
    return DataPart(tuple(f"{folder}{name}{end}" for folder in folders for end in (".gz", "")))


SOURCE = DataSource(
    page="https://github.com/zalandoresearch/fashion-mnist",
    parts=tuple(_part(name) for half in HALVES for name, _, _ in half.files()),
    licence="MIT",
    hub="zalando-datasets/fashion_mnist",
)


@judged(NAME)
def make(
    image_size: int,
    styles: bool = False,
    train_per_class: Count | None = None,
    test_per_class: Count | None = None,
    draw: Natural = 0,
    root: Root | None = None,
    interpolation: Interpolation = "bicubic",
) -> Dataset:
    """Fashion-MNIST: 10 classes of clothes, 28 x 28 and grey, one domain; or its lines in the six styles of strokes6.

    Args:
        styles: the edges of each garment, painted as `strokes6` paints strokes; each image in one domain.
        train_per_class, test_per_class: images of a class in each domain, all if not given.
        draw: another number deals the images again, to domains and to the parts of them that are used, in fresh
            colours.
        root: the folder of the four IDX files, packed or not, or torchvision's; if not given, `fashion_mnist` in the
            folder of data sets, or the Hugging Face Hub.
        interpolation: how to resize, without styles.
    """
    check_options(image_size, interpolation)
    if styles and interpolation != "bicubic":
        raise UserError(f"{NAME}: interpolation: {interpolation} goes with images that are resized, not with styles")
    domains, wanted = glyphs.STYLES if styles else ("all",), (train_per_class, test_per_class)
    amounts = [_amount(half, each, len(domains)) for half, each in zip(HALVES, wanted, strict=True)]
    read = _reader(root)
    hashes = [digest for half in HALVES for _, _, digest in half.files()]
    facts = [NAME, VERSION, image_size, styles, *wanted, draw, hashes, _maker(styles), interpolation]
    fingerprint = hash_of_json(facts)

    def build(new_array: NewArray) -> Splits:
        def images(half: Half, each: int | None) -> Images:
            x, y = read(half)
            domain = deal(y, len(domains), each, numpy_generator(draw, use=f"{NAME} deal {half.split}"))
            chosen = np.argsort(domain, kind="stable")[np.count_nonzero(domain < 0) :]
            out = new_array(f"{half.split}_x", (len(chosen), 3, image_size, image_size))
            if styles:
                paint(x[chosen], domain[chosen], out, f"{NAME} {half.split}", draw)
            else:
                _resize(x[chosen], out, interpolation)
            return Images(out, y[chosen], domain[chosen])

        train, test = (images(half, each) for half, each in zip(HALVES, wanted, strict=True))
        return Splits(train, test)

    size = sum(amounts) * 3 * image_size**2
    return Dataset(tuple(domains), CLASSES, fingerprint, lambda: cached(fingerprint, build), size)


def _maker(styles: bool) -> object:
    """The version of what makes the pixels."""
    import PIL

    return glyphs.RENDERER if styles else PIL.__version__


def _amount(half: Half, each: int | None, domains: int) -> int:
    """How many images of a split are used. Raises: UserError where it has not as many of a class for each domain."""
    most = half.count // len(CLASSES) // domains
    if each is not None and not 1 <= each <= most:
        where = " in each of six styles" if domains > 1 else ""
        raise UserError(f"{NAME}: {half.split}_per_class is {each:,}, and there are 1 to {most:,} of a class{where}")
    return half.count if each is None else each * len(CLASSES) * domains


def deal(y: np.ndarray, domains: int, each: int | None, generator: np.random.Generator) -> np.ndarray:
    """(n,) int64: the domain of every image, -1 for those not used; `each` of a class in a domain, all if None."""
    domain = np.full(len(y), -1, dtype=np.int64)
    for player, hand in glyphs.hands(y, domains, generator):
        domain[hand[:each]] = player
    return domain


# --- where the images come from -------------------------------------------------------------------------------------

Reader = Callable[[Half], tuple[np.ndarray, np.ndarray]]


def can_ask_hub() -> bool:
    """Whether the library `datasets` is there."""
    return importlib.util.find_spec("datasets") is not None


def _reader(root: str | None) -> Reader:
    """What gives images (n, 28, 28) uint8 and labels (n,) int64 of a half, of files that were looked at already.

    Raises: DataMissing where there are no files, and no library to ask the Hub with; UserError for other bytes.
    """
    folder = SOURCE.place(NAME, root)
    untouched = not any(part.find(folder) for part in SOURCE.parts)
    if not root and untouched and can_ask_hub():
        return _fetch
    SOURCE.require(NAME, folder)
    files = {part.paths[1]: part.at(folder) for part in SOURCE.parts}
    for half in HALVES:
        for name, shape, digest in half.files():
            stat = files[name].stat()
            facts = [str(files[name].resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, digest]
            remembered("hashes", facts, partial(_sound, files[name], shape, digest))
    return partial(_read, files)


def _sound(file: Path, shape: tuple[int, ...], digest: str) -> bool:
    _values(file, shape, digest)
    return True


def _read(files: dict[str, Path], half: Half) -> tuple[np.ndarray, np.ndarray]:
    x, y = (_values(files[name], shape, digest) for name, shape, digest in half.files())
    return x, y.astype("int64")


def _values(file: Path, shape: tuple[int, ...], digest: str) -> np.ndarray:
    """What a file holds. Raises: UserError where it is damaged, or sound but not the one that was published."""
    data = unpacked_idx(file, 4 + 4 * len(shape) + math.prod(shape))
    values = parse_idx(data, file)
    if values.shape != shape:
        raise UserError(f"{file} holds values of shape {values.shape}, Fashion-MNIST's are {shape}")
    _same(data, digest, str(file), "; MNIST and others have files of the same names and sizes")
    return values


def _same(data: bytes, digest: str, what: str, hint: str) -> None:
    found = hash_of_bytes(data)
    if found != digest:
        raise UserError(f"{what} is not Fashion-MNIST's: sha256 {found}, unpacked, and not {digest}{hint}")


def _fetch(half: Half) -> tuple[np.ndarray, np.ndarray]:
    """A half from the Hub, put together to the files that were published, and held to their hashes.

    Raises: DataMissing where it cannot be had, with what else there is; UserError where it holds other images, or the
    same in another order.
    """
    from . import hf

    try:
        table = hf.load(SOURCE.hub, None, half.split)
    except UserError as error:
        raise DataMissing(f"{SOURCE.lacks(NAME, SOURCE.place(NAME))}\n  and the Hub does not help: {error}") from error
    try:
        rows = hf.Rows({half.split: table}, [SOURCE.hub, None], "image")
        y = np.array(table["label"][:], dtype=np.uint8)
        x = _decoded(rows, half.split, len(y))
    except (KeyError, TypeError, ValueError, OSError, OverflowError, SyntaxError) as error:  # Pillow's, among others
        raise UserError(f"{SOURCE.hub} on the Hub is not what it was: {type(error).__name__}: {error}") from error
    for values, (name, _, digest) in zip((x, y), half.files(), strict=True):
        _same(assembled_idx(values), digest, f"{name} of {SOURCE.hub} on the Hub", "; fetch the files instead")
    return x, y.astype("int64")


def _decoded(rows: ImageStore, split: str, count: int) -> np.ndarray:
    """(count, 28, 28) uint8, row by row. Raises: what Pillow does, and ValueError where an image has another size."""
    from PIL import Image

    x = np.zeros((count, SIDE, SIDE), dtype=np.uint8)

    def work(i: int) -> None:
        with Image.open(io.BytesIO(rows.read(f"{split}/{i}"))) as image:
            x[i] = np.asarray(image.convert("L"))

    in_threads(work, count, f"decoding {split} images of the Hub")
    return x


# --- what is made of them -------------------------------------------------------------------------------------------


def _resize(x: np.ndarray, out: np.ndarray, interpolation: str) -> None:
    """Fill out (n, 3, H, H) with the images x (n, 28, 28), grey in all three channels."""
    from PIL import Image

    def work(i: int) -> None:
        out[i] = resized(Image.fromarray(x[i]).convert("RGB"), out.shape[-1], interpolation)

    in_threads(work, len(x), "resizing images")


def paint(x: np.ndarray, domain: np.ndarray, out: np.ndarray, use: str, draw: int) -> None:
    """Fill out (n, 3, H, H) with the lines of x (n, 28, 28), image i in the style domain[i]."""

    def fields(part: np.ndarray) -> np.ndarray:
        return glyphs.centre_distance(edges(x[part]), out.shape[-1])

    glyphs.paint_styles(out, domain, fields, lambda style: numpy_generator(draw, use=f"{use} {style}"))


def edges(x: np.ndarray) -> np.ndarray:
    """(n, glyphs.FINE, glyphs.FINE) bool, lines one pixel wide where the grey levels x (n, 28, 28) change steeply."""
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(glyphs.enlarge(x.astype(np.float64), order=1), SMOOTH, axes=(1, 2))
    steep = np.hypot(*np.gradient(smooth, axis=(1, 2))) > STEEP
    return glyphs.thin(steep)


# IDX, the format of MNIST and its kin: two zero bytes, a byte for the type of the values (8: unsigned bytes, the only
# one read here), one for the number of axes, each axis as four bytes, the most significant first, and then the values,
# the last axis fastest. Nothing is taken from a header before the bytes are there.
UNSIGNED = b"\0\0\x08"
MOST_AXES = 4


def unpacked_idx(file: Path, size: int) -> bytes:
    """The bytes of a file, plain or packed by gzip, of which there must be `size`; no more are ever unpacked.

    Raises: UserError where it cannot be read, is damaged or cut short, or has another size.
    """
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = (gzip.GzipFile(fileobj=raw) if packed else raw).read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file} is damaged or cut short ({error}); fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    if len(data) != size:
        found = f"more than {size:,}" if len(data) > size else f"{len(data):,}"
        raise UserError(f"{file} holds {found} bytes{' once unpacked' * packed}, and should hold {size:,}")
    return data


def parse_idx(data: bytes, what: object) -> np.ndarray:
    """The unsigned bytes of an IDX file, in its shape, as a view. what: to call it in a message.

    Raises: UserError for another type of values, and for axes that do not multiply to the number of values there are.
    """
    if data[:3] != UNSIGNED or len(data) < 4 or not 1 <= data[3] <= MOST_AXES:
        raise UserError(f"{what} begins with {data[:4].hex(' ') or 'nothing'}, which is no IDX file of unsigned bytes")
    head = 4 + 4 * data[3]
    if len(data) < head:
        raise UserError(f"{what} ends within its header")
    shape = struct.unpack(f">{data[3]}I", data[4:head])
    if not math.prod(shape) or math.prod(shape) != len(data) - head:
        shape_text = " x ".join(f"{side:,}" for side in shape)
        raise UserError(f"{what} says that it holds {shape_text} values, and holds {len(data) - head:,}")
    return np.frombuffer(data, dtype=np.uint8, offset=head).reshape(shape)


def assembled_idx(values: np.ndarray) -> bytes:
    """The IDX file of unsigned bytes of any shape of up to four axes."""
    return UNSIGNED + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    """Offer `fashion_mnist`."""
    register(NAME, make, source=SOURCE)
