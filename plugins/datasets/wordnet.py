"""The data set `wordnet`: words and their definitions by lexicographer file (Miller, 1995), for next tokens.

`fedbench data prepare` takes it out of Debian's package; nothing of it is part of fedbench.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from fedbench import hookimpl
from fedbench.data import DataPart, DataSource, Package, root_of
from fedbench.disk import hash_of_json
from fedbench.errors import UserError
from fedbench.options import Count, Length, Natural, PathText, Text, judged
from fedbench.seeding import numpy_generator
from fedbench.types import NEXT_TOKEN, Dataset, Splits, Texts
from fedbench.words import suggestion

NAME, DEB = "wordnet", "wordnet-base_1%3a3.0-37_all.deb"
PARTS = ("noun", "verb", "adj", "adv")
SOURCE = DataSource(
    page="https://wordnet.princeton.edu/download",
    parts=(*(DataPart((f"data.{part}",)) for part in PARTS), DataPart(("provenance.json",))),
    licence="WordNet 3.0 licence, Princeton University",
    packages=(
        Package(
            "wordnet-base=1:3.0-37",
            DEB,
            "61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752",
            "WordNet 3.0 licence, Princeton University",
            "apt-get download",
        ),
    ),
)
CHOICES = 3  # other definitions that a word has
NOUNS = (
    *("Tops", "act", "animal", "artifact", "attribute", "body", "cognition", "communication", "event", "feeling"),
    *("food", "group", "location", "motive", "object", "person", "phenomenon", "plant", "possession", "process"),
    *("quantity", "relation", "shape", "state", "substance", "time"),
)
VERBS = (
    *("body", "change", "cognition", "communication", "competition", "consumption", "contact", "creation"),
    *("emotion", "motion", "perception", "possession", "social", "stative", "weather"),
)
# By number, as `lexnames(5WN)` has them.
FILES = (
    *("adj.all", "adj.pert", "adv.all"),
    *(f"noun.{one}" for one in NOUNS),
    *(f"verb.{one}" for one in VERBS),
    "adj.ppl",
)
SIX = ("noun.animal", "noun.artifact", "noun.person", "noun.plant", "noun.act", "noun.communication")
FileName = Annotated[str, Text("a lexicographer file, such as noun.animal")]


class Entry(NamedTuple):
    """A synset: its first word, and its definition without examples."""

    word: str
    definition: str


@judged(NAME)
def make(
    root: Annotated[str, PathText("a folder with WordNet's data.noun and so on")] | None = None,
    files: Annotated[list[FileName], Length(1, distinct=True)] | None = None,
    train_per_file: Count = 1000,
    test_per_file: Count = 100,
    draw: Natural = 0,
) -> Dataset:
    """Words and their definitions: the prompt is `word:`, and a completion is what WordNet says that the word means.

    A domain is a lexicographer file; choices are three other definitions of the same file.

    Args:
        root: the folder of any WordNet 3.x, in the place of the prepared one.
        files: which of the 45 files, six of nouns if not given.
        train_per_file, test_per_file: how many definitions of each, different ones, fewer where it has not so many.
        draw: another number deals others.
    """
    wanted = list(files or SIX)
    for one in wanted:
        if one not in FILES:
            raise UserError(f"wordnet: no lexicographer file {one!r}{suggestion(one, FILES, 'files')}")
    folder = root_of(NAME, root) if root else SOURCE.place(NAME)
    if root is None:
        SOURCE.require(NAME, folder)
    entries = read(folder, wanted)
    halves: tuple[list[list[Entry]], list[list[Entry]]] = ([], [])
    for one in wanted:
        own = entries[one]
        order = numpy_generator(draw, use=f"wordnet {one}").permutation(len(own))
        tested = min(test_per_file, len(own) // 2)
        if not tested:
            raise UserError(f"wordnet: {one} has {len(own)} definitions, which are too few to train and test on")
        halves[1].append([own[i] for i in order[:tested]])
        halves[0].append([own[i] for i in order[tested : tested + train_per_file]])
    fingerprint = hash_of_json([NAME, wanted, halves, draw])
    splits = Splits(texts_of(halves[0], draw, "train"), texts_of(halves[1], draw, "test"))
    return Dataset(tuple(wanted), ("definition",), fingerprint, lambda: splits, texts=True, task=NEXT_TOKEN)


def texts_of(half: Sequence[Sequence[Entry]], draw: int, split: str) -> Texts:
    """Prompts and completions of the entries of every file, with other definitions of the same file."""
    text, completion, choices = list[str](), list[str](), list[list[str]]()
    for d, own in enumerate(half):
        generator = numpy_generator(draw, use=f"wordnet choices {split} {d}")
        away = generator.integers(1, max(2, len(own)), (len(own), CHOICES))
        text += [f"{one.word}:" for one in own]
        completion += [f" {one.definition}" for one in own]
        choices += [[f" {own[(i + k) % len(own)].definition}" for k in away[i].tolist()] for i in range(len(own))]
    domain = np.repeat(np.arange(len(half)), [len(own) for own in half]).astype(np.int64)
    return Texts(text, np.zeros_like(domain), domain, completion=completion, choices=choices)


def read(folder: Path, wanted: Sequence[str]) -> dict[str, list[Entry]]:
    """The synsets of each file, of equal definitions in it the first. Raises UserError."""
    found: dict[str, dict[str, Entry]] = defaultdict(dict)
    for part in sorted({one.partition(".")[0] for one in wanted}):
        file = folder / f"data.{part}"
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"wordnet: cannot read {file}: {error}; wanted is the folder of a WordNet 3.x") from error
        for number, line in enumerate(lines, 1):
            if not line or line.startswith("  "):  # the licence stands first
                continue
            try:
                of_file, entry = parsed(line)
            except (ValueError, IndexError) as error:
                raise UserError(f"{file}:{number}: no line of WordNet's data files: {error}") from error
            if entry.definition:
                found[of_file].setdefault(entry.definition, entry)
    return {one: list(found[one].values()) for one in wanted}


def parsed(line: str) -> tuple[str, Entry]:
    """The lexicographer file of a synset, its first word and its definition. Raises ValueError, IndexError."""
    facts, bar, gloss = line.partition(" | ")
    if not bar:
        raise ValueError("it has no gloss")
    fields = facts.split(" ")
    word = re.sub(r"\((a|p|ip)\)$", "", fields[4]).replace("_", " ")  # where an adjective stands is said behind it
    definition = re.split(r';\s*"', gloss, maxsplit=1)[0].strip().strip(";").strip()
    return FILES[int(fields[1])], Entry(word, "" if definition.startswith('"') else definition)


def prepare(files: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Take WordNet's data files out of Debian's package."""
    for name, content in members(files[DEB].read_bytes()):
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for part in PARTS:
                    member = archive.extractfile(f"./usr/share/wordnet/data.{part}")
                    assert member is not None  # the package has the hash of one that has it
                    (folder / f"data.{part}").write_bytes(member.read())
    return {"note": "WordNet 3.0"}


make.prepare = prepare  # type: ignore[attr-defined]  # what `fedbench data prepare` calls


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files in an `ar` archive, as a package of Debian is one: headers of 60 bytes, contents of even length."""
    at = len(b"!<arch>\n")
    while at + 60 <= len(archive):
        header, at = archive[at : at + 60], at + 60
        size = int(header[48:58])
        yield header[:16].decode().strip(" /"), archive[at : at + size]
        at += size + size % 2


@hookimpl
def fedbench_register_datasets(register: Callable) -> None:
    """Offer `wordnet`."""
    register(NAME, make, source=SOURCE)
