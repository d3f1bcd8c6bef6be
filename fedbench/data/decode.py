"""From image files to a data set: decoding in threads, and what to do with unreadable images."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from fedbench.data.cache import NewArray, cached
from fedbench.data.image_files import Folder, ImageStore, UnreadableFile, in_threads
from fedbench.data.names import codes
from fedbench.disk import hash_of_bytes, hash_of_json
from fedbench.errors import UserError
from fedbench.machine import package_version
from fedbench.options import PathText
from fedbench.types import Dataset, Images, Splits, Texts
from fedbench.words import human_bytes, on_a_line, suggestion

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

Root = Annotated[str, PathText("a folder")]
Interpolation = Literal["bicubic", "bilinear", "lanczos", "nearest"]
OnUnreadable = Literal["fail", "skip"]
Resize = Literal["antialiased", "reference"]


DECODE_VERSION = 1
WIDE = {"I": "32-bit integers", "F": "32-bit floats"}  # by Pillow's mode
BITS_PER_SAMPLE, PHOTOMETRIC = 258, 262  # tags of TIFF
MOST_TOLD = 10  # images that cannot be read


class Sample(NamedTuple):
    """One image: its path in the store (below the root, with "/"), its class and its domain."""

    path: str
    label: int
    domain: int


def _further_facts(paths: Sequence[str], lost: Sequence[str], resize: str, groups: Sequence[str]) -> list[Any]:
    """What a fingerprint says of some data sets alone, so that those of all others stay as they were.

    Args:
        paths: of all images.
        lost: of those that cannot be opened.
        resize: how they are resized.
        groups: of the training images; empty where none belong together.
    """
    deep = any(path.lower().endswith((".tif", ".tiff")) for path in paths)  # once decoded otherwise
    facts: list[Any] = [resize, package_version("torch")] if resize == "reference" else []
    facts += [{"left out": list(lost)}] if lost else []
    facts += ["deep, positive"] if deep else []
    return [*facts, {"groups": list(groups)}] if groups else facts


def image_dataset(
    root: Path | ImageStore,
    domains: Sequence[str],
    classes: Sequence[str],
    train: Sequence[Sample],
    test: Sequence[Sample],
    image_size: int,
    interpolation: str = "bicubic",
    unreadable: str = "fail",
    resize: str = "antialiased",
    otherwise: str = "",
    notes: Sequence[str] = (),
    groups: Mapping[str, str] | None = None,
) -> Dataset:
    """The data set of the images in `train` and `test`, decoded to (3, H, H) on the first load: to uint8, see
    `pixels`, or with `resize: reference` to float32, see `unclamped`.

    The fingerprint covers the bytes of every image, paths, labels, domains, H = `image_size`, `interpolation`, the
    versions of what decodes, and which images cannot be opened. What cannot be read is left out of the cache;
    `unreadable` says whether that is an error.

    Args:
        root: the folder of the files, or another store of encoded images.
        otherwise: what helps a class without a readable image, other than a fix of one.
        notes: of the data set.
        groups: the group of each training image by its path, where some belong together.

    Raises: UserError for an unknown option value; from `load`, unless they are skipped, for all images that cannot be
    opened or decoded, in one message, or for the classes that lost all their images in a domain to `skip`.
    """
    import PIL

    check_options(image_size, interpolation, unreadable, resize)
    store = Folder(root) if isinstance(root, Path) else root
    paths = [sample.path for sample in (*train, *test)]
    hashes = store.hashes(paths)
    lost = [path for path in paths if path not in hashes]
    facts = [DECODE_VERSION, PIL.__version__, image_size, interpolation, domains, classes, train, test]
    facts.append(list(hashes.values()))
    kind = "float32" if resize == "reference" else "uint8"
    facts += _further_facts(paths, lost, resize, [groups[sample.path] for sample in train] if groups else ())
    fingerprint = hash_of_json(facts)
    build = functools.partial(_decoded, store, train, test, image_size, kind, interpolation, hashes)

    def load() -> Splits:
        splits = cached(fingerprint, build)
        if splits.skipped:
            halves = {"training": (train, splits.train), "test": (test, splits.test)}
            _judge_skipped(store, splits, halves, unreadable, domains, classes, otherwise)
        if groups is None:
            return splits
        own = codes(groups[path] for path in _read(train, splits))
        return replace(splits, train=replace(splits.train, group=own))

    def files() -> tuple[list[str], list[str]]:
        splits = load()
        of_train, of_test = ([store.place(path) for path in _read(half, splits)] for half in (train, test))
        return of_train, of_test

    size = (len(train) + len(test)) * 3 * image_size**2 * (4 if kind == "float32" else 1)
    why = functools.partial(_complaint, store)
    return Dataset(tuple(domains), tuple(classes), fingerprint, load, size, why, notes=tuple(notes), files=files)


def _read(samples: Sequence[Sample], splits: Splits) -> list[str]:
    """The paths of those that were not skipped."""
    skipped = set(splits.skipped)
    return [sample.path for sample in samples if sample.path not in skipped]


def _decoded(
    store: ImageStore,
    train: Sequence[Sample],
    test: Sequence[Sample],
    image_size: int,
    kind: str,
    interpolation: str,
    hashes: Mapping[str, str],
    new_array: NewArray,
) -> Splits:
    """Both halves, in arrays of that kind which the cache gives."""
    parts, skipped = [], []
    for name, samples in (("train", train), ("test", test)):
        x = new_array(f"{name}_x", (len(samples), 3, image_size, image_size), kind)
        images, bad = decode(store, samples, x, interpolation, hashes)
        parts.append(images)
        skipped += bad
    return Splits(parts[0], parts[1], tuple(skipped))


def check_options(
    image_size: int, interpolation: str = "bicubic", unreadable: str = "fail", resize: str = "antialiased"
) -> None:
    """Return where the options of decoding have values that exist. Raises: UserError where not."""
    _one_of("interpolation", interpolation, get_args(Interpolation))
    _one_of("unreadable", unreadable, get_args(OnUnreadable))
    _one_of("resize", resize, get_args(Resize))
    if resize == "reference" and interpolation != "bicubic":
        raise UserError(f"resize: reference is bicubic; it cannot go with interpolation: {interpolation}")
    if image_size < 1:
        raise UserError(f"image_size must be at least 1, not {image_size}")


def decode(
    store: ImageStore, samples: Sequence[Sample], x: np.ndarray, interpolation: str, hashes: Mapping[str, str]
) -> tuple[Images, list[str]]:
    """Fill x (n, 3, H, H), uint8 or float32: the images that can be read, and the paths of those that cannot."""
    import numpy as np

    side = x.shape[-1]

    def work(i: int) -> bool:
        if samples[i].path not in hashes:
            return False
        encoded = store.read(samples[i].path)
        if hash_of_bytes(encoded) != hashes[samples[i].path]:
            raise UserError(f"{store.place(samples[i].path)} changed while the data set was being prepared; run again")
        try:
            x[i] = pixels(encoded, side, interpolation) if x.dtype == np.uint8 else unclamped(encoded, side)
        except MemoryError:
            raise
        except Exception:  # Pillow raises nearly anything on a damaged file: SyntaxError, struct.error, ...
            return False
        return True

    with _strict_pillow():
        readable = np.array(in_threads(work, len(samples), f"decoding images to {human_bytes(x.nbytes)}"), dtype=bool)
    kept = np.flatnonzero(readable)
    if len(kept) < len(samples):
        for to, at in enumerate(kept):  # in place and upwards: `to` never passes `at`
            x[to] = x[at]
        x = x[: len(kept)]
    y, domain = (np.array([s[column] for s in samples], dtype=np.int64)[kept] for column in (1, 2))
    return Images(x, y, domain), [samples[i].path for i in np.flatnonzero(~readable).tolist()]


def pixels(encoded: bytes, image_size: int, interpolation: str) -> np.ndarray:
    """(3, H, H) uint8 of an encoded image: its first frame, upright by EXIF, RGB without alpha.

    It is squeezed to a square, whatever its shape, and antialiased, as Pillow does.
    """
    return resized(_rgb(encoded, upright=True), image_size, interpolation)


def unclamped(encoded: bytes, image_size: int) -> np.ndarray:
    """(3, H, H) float32 of an encoded image, as the released code of FedRA has it: its first frame, RGB without alpha.

    EXIF is not asked which side is up. Floats in [0, 1] are squeezed to a square, bicubically, without antialiasing
    and without clamping: at sharp edges they leave [0, 1]. It is torchvision's ToTensor and Resize(antialias=False).
    """
    import numpy as np
    import torch

    image = np.asarray(_rgb(encoded, upright=False)).transpose(2, 0, 1)
    x = torch.from_numpy(np.divide(image, np.float32(255), dtype=np.float32, order="C"))[None]
    square = (image_size, image_size)
    resized = torch.nn.functional.interpolate(x, size=square, mode="bicubic", align_corners=False, antialias=False)
    return resized[0].numpy()


def _rgb(encoded: bytes, upright: bool) -> Image.Image:
    """The first frame, RGB without alpha. upright: by EXIF."""
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(encoded)) as opened:
        opened.load()
        image: Image.Image = opened
        if upright:
            with suppress(Exception):  # the pixels are read: a damaged EXIF block costs the orientation, not the image
                image = ImageOps.exif_transpose(opened)
        if bits := _grey_bits(opened):  # Pillow would clip them at 255, which leaves a white square
            grey = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
            is_negative = getattr(opened, "tag_v2", {}).get(PHOTOMETRIC) == 0  # white is 0; Pillow heeds it at 8 bits
            image = Image.fromarray(255 - grey if is_negative else grey)
        elif image.mode in WIDE:
            raise ValueError(
                f"its pixels are {WIDE[image.mode]}, of which nothing says what is white: save it with 8 or 16 bits"
            )
        if image.mode in ("P", "PA"):  # a palette's own transparency is unfolded first, then dropped like any alpha
            image = image.convert("RGBA")
        return image.convert("RGB")


def _grey_bits(opened: Image.Image) -> int:
    """How many bits a grey value has that has more than 8, where the file's format says so; else 0."""
    if opened.format in ("PPM", "PNG") and opened.mode == "I":  # Pillow's own scale for more than 8 bits
        return 16
    if not opened.mode.startswith("I;16"):
        return 0
    return int(getattr(opened, "tag_v2", {}).get(BITS_PER_SAMPLE, (16,))[0])  # TIFF has greys of 12 bits, too


def resized(image: Image.Image, image_size: int, interpolation: str) -> np.ndarray:
    """(3, H, H) uint8 of an RGB image, squeezed to a square and antialiased."""
    import numpy as np
    from PIL import Image

    square = image.resize((image_size, image_size), Image.Resampling[interpolation.upper()])
    return np.asarray(square).transpose(2, 0, 1)


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        near = suggestion(value, known, "") if isinstance(value, str) else ""
        raise UserError(f"{option} must be one of {', '.join(known)}, not {value!r}{near}")


@contextmanager
def _strict_pillow() -> Iterator[None]:
    """More pixels than Pillow thinks safe are an error; its remarks on odd metadata are not wanted."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _judge_skipped(
    store: ImageStore,
    splits: Splits,
    halves: Mapping[str, tuple[Sequence[Sample], Images | Texts]],
    unreadable: str,
    domains: Sequence[str],
    classes: Sequence[str],
    otherwise: str,
) -> None:
    """Raise what unreadable images call for: under `skip` only where a class lost all its images. halves: what was to
    be read of each, and what was read."""
    why = functools.partial(_complaint, store)
    if unreadable == "fail":
        raise UserError(unreadable_message(store.place, splits.skipped, splits.listed, why), option="unreadable")
    bare = []
    for name, (samples, images) in halves.items():
        left = set(zip(images.domain.tolist(), images.y.tolist(), strict=True))
        for domain, label in sorted({(s.domain, s.label) for s in samples} - left):
            lost = [s.path for s in samples if (s.domain, s.label) == (domain, label)]
            bare.append(
                f"domain {domains[domain]!r} has no readable {name} image of class {classes[label]!r}: "
                + unreadable_message(store.place, lost, len(lost), why, "there")
            )
    if bare:
        more = [f"and {len(bare) - MOST_TOLD:,} more such classes"] if len(bare) > MOST_TOLD else []
        lines = [*bare[:MOST_TOLD], *more, f"  mend an image of each{otherwise and f', or {otherwise}'}"]
        raise UserError("\n".join(lines), option="unreadable")


def unreadable_message(
    place: Callable[[str], str],
    paths: Sequence[str],
    of: int,
    why: Callable[[str], str],
    what: str = "(`unreadable: skip` leaves them out)",
) -> str:
    """How many of the images cannot be read, and of the first few their places and reasons, a line each."""
    lines = [f"\n  {on_a_line(place(path))}: {why(path)}" for path in paths[:MOST_TOLD]]
    more = f"\n  and {len(paths) - MOST_TOLD:,} more" if len(paths) > MOST_TOLD else ""
    return f"{len(paths):,} of {of:,} images cannot be read {what}:{''.join(lines)}{more}"


def _complaint(store: ImageStore, path: str) -> str:
    try:
        encoded = store.read(path)
        if not encoded:
            return "an empty file"
        with _strict_pillow():
            pixels(encoded, 8, "nearest")
    except UnreadableFile as error:
        return error.why
    except Exception as error:
        unknown = type(error).__name__ == "UnidentifiedImageError"
        return "not an image" if unknown else str(error) or type(error).__name__
    return "could not be read when the data set was prepared"
