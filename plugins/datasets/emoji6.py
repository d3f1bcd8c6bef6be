"""The data set `emoji6`: 722 emoji in the styles of six sets, in the classes of Unicode, tested on unseen emoji.

`fedbench data prepare` draws them once, with resvg, from packages of npm; nothing of them is part of fedbench.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, Package
from fedbench.data.decode import Sample, image_dataset
from fedbench.data.image_files import in_threads
from fedbench.disk import hash_of_json
from fedbench.errors import DataMissing
from fedbench.machine import package_version
from fedbench.options import Length, Natural, judged
from fedbench.seeding import numpy_generator
from fedbench.types import Dataset, Images, Splits

NAME, LIST, UNICODE = "emoji6", "emoji.json", "emojibase-data-17.0.0.tgz"
FEWEST = 12  # emoji of a subgroup that is a class
TESTED = 0.2  # of the emoji of each class
SIDE = 224  # pixels that they are drawn at, to be resized

Style = Literal["noto", "twemoji", "openmoji", "emojione", "fluent", "contrast"]


def _icons(name: str, version: str, sha256: str, licence: str) -> Package:
    return Package(f"@iconify-json/{name}@{version}", f"iconify-json-{name}-{version}.tgz", sha256, licence)


SETS: dict[Style, Package] = {
    "noto": _icons(
        "noto", "1.2.9", "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad", "Apache 2.0, Google"
    ),
    "twemoji": _icons(
        "twemoji", "1.2.5", "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7", "CC BY 4.0, Twitter"
    ),
    "openmoji": _icons(
        "openmoji",
        "1.2.29",
        "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5",
        "CC BY-SA 4.0, OpenMoji",
    ),
    "emojione": _icons(
        "emojione", "1.2.3", "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e", "CC BY 4.0, Emoji One"
    ),
    "fluent": _icons(
        "fluent-emoji-flat",
        "1.2.6",
        "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        "MIT, Microsoft",
    ),
    "contrast": _icons(
        "fluent-emoji-high-contrast",
        "1.2.6",
        "0b92d48c90d2200bd499e3cdd09a127ca6a8c8ddefd34c35eb5a1e4994012ae0",
        "MIT, Microsoft",
    ),
}
SOURCE = DataSource(
    page="https://icon-sets.iconify.design/?category=Emoji",
    parts=(DataPart((LIST,)), DataPart(("images",)), DataPart(("provenance.json",))),
    licence="; ".join(f"{style}: {package.licence}" for style, package in SETS.items()),
    packages=(
        *SETS.values(),
        Package(
            "emojibase-data@17.0.0",
            UNICODE,
            "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a",
            "MIT, Miles Johnson; the names: Unicode",
        ),
    ),
    extra="emoji",
    image_size=56,
)


@judged(NAME)
def make(
    image_size: int,
    draw: Natural = 0,
    unseen: Annotated[list[Style], Length(0, 5, distinct=True)] | None = None,
) -> Dataset:
    """722 emoji, each drawn in the styles of six sets, in 37 classes: the Unicode subgroups of at least 12 emoji.

    Tested on a fifth of the emoji of each class, in all styles; no client trains on these in any style.

    Args:
        draw: another number tests on other emoji.
        unseen: styles without training images, so that their owners are clients that nobody trained with: noto,
            twemoji, openmoji, emojione, fluent (its flat ones), contrast (fluent's high contrast).
    """
    folder = SOURCE.place(NAME)
    SOURCE.require(NAME, folder)
    drawn = json.loads((folder / LIST).read_text(encoding="utf-8"))  # {class: [emoji]}
    classes = tuple(drawn)
    samples = [
        Sample(f"images/{style}/{name}/{emoji}.png", label, domain)
        for domain, style in enumerate(SETS)
        for label, name in enumerate(classes)
        for emoji in drawn[name]
    ]
    # All are decoded once, whichever are tested: what stands in the cache as its test half are the last style's.
    ends = len(samples) * (len(SETS) - 1) // len(SETS)
    pool = image_dataset(folder, tuple(SETS), classes, samples[:ends], samples[ends:], image_size)
    untrained = [list(SETS).index(style) for style in unseen or ()]

    tested = np.tile(tested_of([len(drawn[name]) for name in classes], draw), len(SETS))
    trained = ~tested & ~np.isin([sample.domain for sample in samples], untrained)

    def load() -> Splits:
        return dealt(pool.load(), trained, tested)

    def outline() -> Splits:
        y, domain = np.array([(one.label, one.domain) for one in samples], dtype=np.int64).T
        train, test = (Images.blank(y[own], domain[own], image_size) for own in (trained, tested))
        return Splits(train, test)

    fingerprint = hash_of_json([NAME, pool.fingerprint, draw, sorted(untrained)])
    return replace(pool, fingerprint=fingerprint, load=load, outline=outline)


def tested_of(sizes: Sequence[int], draw: int) -> np.ndarray:
    """(n,) bool: which emoji are tested, of classes of these sizes, one class after the other."""
    generator = numpy_generator(draw, use=f"{NAME} test")
    tested = [generator.permutation(size) < round(TESTED * size) for size in sizes]
    return np.concatenate(tested)


def dealt(pool: Splits, trained: np.ndarray, tested: np.ndarray) -> Splits:
    """The pool's images, both halves one after the other, as those that are trained on and those that are tested."""

    def chosen(which: np.ndarray) -> Images:
        halves = [(pool.train, which[: len(pool.train)]), (pool.test, which[len(pool.train) :])]
        parts = [np.concatenate([getattr(half, part)[own] for half, own in halves]) for part in ("x", "y", "domain")]
        return Images(*parts)

    return Splits(chosen(trained), chosen(tested))


# --- made from the packages -----------------------------------------------------------------------------------------


def prepare(files: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Draw the emoji that all six sets have, as `images/<style>/<class>/<emoji>.png`; white behind them."""
    if find_spec("resvg_py") is None:
        raise DataMissing(f"{NAME}: drawing needs resvg: pip install 'fedbench-heft[emoji]'")
    sets = {style: _member(files[package.file], "package/icons.json") for style, package in SETS.items()}
    chosen = shared(subgroups(files[UNICODE]), [set(icons["icons"]) for icons in sets.values()])
    wanted = [
        (icons, emoji, folder / "images" / style / name / f"{emoji}.png")
        for style, icons in sets.items()
        for name, emojis in chosen.items()
        for emoji in emojis
    ]
    for place in {file.parent for _, _, file in wanted}:
        place.mkdir(parents=True)

    def work(i: int) -> None:
        icons, emoji, file = wanted[i]
        file.write_bytes(drawing(svg(icons, emoji)))

    in_threads(work, len(wanted), "drawing emoji")
    (folder / LIST).write_text(json.dumps(chosen, indent=1), encoding="utf-8")
    emoji = sum(map(len, chosen.values()))
    return {
        "drawn": f"{emoji} emoji of {len(chosen)} classes in {len(SETS)} styles, {SIDE} pixels a side",
        "renderer": f"resvg-py {package_version('resvg-py')}",
    }


make.prepare = prepare  # type: ignore[attr-defined]  # what `fedbench data prepare` calls


def _member(archive: Path, name: str) -> Any:
    """The JSON of a file in a package of npm."""
    with tarfile.open(archive) as opened:
        member = opened.extractfile(name)
        assert member is not None  # the package has the hash of one that has it
        return json.load(member)


def subgroups(archive: Path) -> dict[str, str]:
    """The subgroup of each emoji of Unicode, by the name that Iconify gives it."""
    names = _member(archive, "package/meta/groups.json")["subgroups"]
    described = _member(archive, "package/en/data.json")
    return {slug(one["label"]): names[str(one["subgroup"])] for one in described if "subgroup" in one}


def slug(label: str) -> str:
    """`man's shoe` -> `mans-shoe`"""
    return re.sub(r"[^a-z0-9]+", "-", re.sub("['\u2019]", "", label.lower())).strip("-")


def shared(subgroup: Mapping[str, str], sets: Sequence[set[str]]) -> dict[str, list[str]]:
    """The emoji that all sets have, by subgroup, of those with FEWEST of them; all in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for emoji in sorted(set.intersection(set(subgroup), *sets)):
        found[subgroup[emoji]].append(emoji)
    return {name: found[name] for name in sorted(found) if len(found[name]) >= FEWEST}


def svg(icons: Mapping[str, Any], emoji: str) -> str:
    """An icon of Iconify's JSON as an SVG image."""
    icon = icons["icons"][emoji]
    left, top, width, height = (
        icon.get(key, icons.get(key, default))
        for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    )
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {spaces} viewBox="{left} {top} {width} {height}">{icon["body"]}</svg>'


def drawing(image: str) -> bytes:
    """A PNG of SIDE x SIDE pixels. The fonts of a machine are not looked for, so that all draw the same."""
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(svg_string=image, background="white", width=SIDE, height=SIDE, skip_system_fonts=True)
    )


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    """Offer `emoji6`."""
    register(NAME, make, source=SOURCE)
