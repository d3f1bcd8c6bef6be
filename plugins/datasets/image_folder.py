"""Data set `image_folder`: any tree root/<domain>/<class>/*.jpg of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedbench import hookimpl
from fedbench.data.decode import Sample, image_dataset
from fedbench.errors import UserError
from fedbench.seeding import seed_of
from fedbench.types import Dataset
from fedbench.words import meant

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"}
LAYOUT = "expected images in <root>/<domain>/<class>/, such as <root>/sketch/dog/1.jpg"
Tree = dict[str, dict[str, list[str]]]  # domain -> class -> paths below the root


def make(
    image_size: int,
    root: str,
    test_fraction: float = 0.2,
    unreadable: str = "fail",
    split_seed: int = 0,
    domains: Sequence[str] | None = None,
    interpolation: str = "bicubic",
    resize: str = "antialiased",
) -> Dataset:
    """Your own images in root/domain/class, split into training and test within each domain and class.

    test_fraction, split_seed: the share of test images, and the seed that picks them. The pick within one
    domain and class depends on nothing outside it · unreadable: `fail` or `skip` · domains: the domain
    folders to take, in this order; all of them, sorted, if not given · interpolation: how to resize · resize:
    `antialiased`, to uint8, upright by EXIF; or `reference`, as FedRA's released code does: floats without
    antialiasing and clamping, EXIF ignored, four times the cache.

    Raises: UserError where the tree has another layout, a domain lacks a class, or a domain has fewer than
    two images of one.
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"image_folder: test_fraction must be between 0 and 1, not {test_fraction}")
    folder = Path(root).expanduser()
    tree = scan(folder, domains)
    classes = sorted({name for found in tree.values() for name in found})
    train: list[Sample] = []
    test: list[Sample] = []
    for d, (domain, found) in enumerate(tree.items()):
        for label, name in enumerate(classes):
            paths = found.get(name, [])
            if not paths:
                other = next(repr(domain) for domain, found in tree.items() if name in found)
                raise UserError(f"{folder}: domain {domain!r} lacks class {name!r}, which domain {other} has")
            if len(paths) < 2:
                raise UserError(f"{folder}: {domain}/{name} has 1 image; training and test need one each")
            ranked = sorted(paths, key=lambda path: seed_of(split_seed, -1, -1, _text(path)))
            tests = set(ranked[: min(max(round(test_fraction * len(paths)), 1), len(paths) - 1)])
            for path in paths:
                (test if path in tests else train).append(Sample(path, label, d))
    options = image_size, interpolation, unreadable, resize
    return image_dataset(folder, list(tree), classes, train, test, *options)


def scan(root: Path, domains: Sequence[str] | None) -> Tree:
    """The tree's image paths, sorted; hidden files and files of other kinds are passed over.

    Raises: UserError where images lie at another level than the third, or there are none.
    """
    if not root.is_dir():
        raise UserError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}; {LAYOUT}")
    loose = [entry for entry in _visible(root) if _is_image(entry)]
    if loose:
        raise UserError(f"{root} itself holds {len(loose)} images, such as {loose[0].name}; {LAYOUT}")
    tree = {domain.name: _classes(root, domain) for domain in _chosen(root, domains)}
    if not tree:
        raise UserError(f"{root} holds no folders; {LAYOUT}")
    return tree


def _chosen(root: Path, domains: Sequence[str] | None) -> list[Path]:
    found = {entry.name: entry for entry in _visible(root) if entry.is_dir()}
    if domains is None:
        return list(found.values())
    if isinstance(domains, str) or not domains or len(set(domains)) < len(domains):
        raise UserError(f"image_folder: domains must be a list of different folder names, not {domains!r}")
    for name in domains:
        if name not in found:
            hint = meant(name, found, f"there are: {', '.join(found) or 'none'}")
            raise UserError(f"{root} has no domain folder {name!r}; {hint}")
    return [found[name] for name in domains]


def _classes(root: Path, domain: Path) -> dict[str, list[str]]:
    """The class folders of one domain that hold images."""
    entries = _visible(domain)
    loose = [entry for entry in entries if _is_image(entry)]
    if loose:
        first = loose[0].name
        raise UserError(f"{domain} holds {len(loose)} images outside class folders, such as {first}; {LAYOUT}")
    classes: dict[str, list[str]] = {}
    for folder in entries:
        if not folder.is_dir():
            continue
        inside = _visible(folder)
        images = [entry.relative_to(root).as_posix() for entry in inside if _is_image(entry)]
        for deep in (image for entry in inside if entry.is_dir() for image in _visible(entry) if _is_image(image)):
            raise UserError(f"{deep} lies one folder too deep; {LAYOUT}")
        if images:
            classes[folder.name] = images
    if not classes:
        raise UserError(f"{domain} holds no images; {LAYOUT} (the option `domains` lists the folders to take)")
    return classes


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"cannot list {folder}: {error.strerror}") from error


def _is_image(entry: Path) -> bool:
    return entry.suffix.lower() in SUFFIXES and entry.is_file()


def _text(path: str) -> str:
    """The path with bytes that are not UTF-8 spelled out."""
    return path.encode(errors="backslashreplace").decode()


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    register("image_folder", make, profiles={"reference": {"resize": "reference"}}, later=("resize",))
