"""Names in data: which files and folders are passed over, which names are one, and which folders are splits."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from fedbench.words import composed, shortened

if TYPE_CHECKING:
    import numpy as np

LEFT_BEHIND = {"__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
TRAIN, TEST = "train", "test"
SPLITS = {"train": TRAIN, "training": TRAIN, "test": TEST, "testing": TEST}
SPLITS |= dict.fromkeys(("val", "valid", "validation", "dev"), "validation")
SPELLINGS = 4  # of a name, in a note


def is_passed_over(name: str) -> bool:
    """Whether a file or folder is none of the data: hidden, as `._train.csv` of macOS is, or left behind by a system or
    a program."""
    return name.startswith((".", "~$")) or name in LEFT_BEHIND


def splits_among(names: Iterable[str]) -> dict[str, str]:
    """{train, test: name} where all names are those of splits, whatever their case: `val` is the test split where no
    other is. Empty where they are anything else."""
    named: dict[str, str] = {}
    for name in names:
        if (split := SPLITS.get(name.casefold())) is None or split in named:
            return {}
        named[split] = name
    test = named.get(TEST, named.get("validation"))
    return {TRAIN: named[TRAIN], TEST: test} if TRAIN in named and test else {}


def codes(values: Iterable[Hashable]) -> np.ndarray:
    """(n,) int64: numbers from 0 for values, in the order in which they are first met."""
    import numpy as np

    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int64)


class Names:
    """The names of classes or of domains, as data spell them.

    Those that differ in Unicode form alone, in spaces at an end, or in whether a number is in quotes, are one, which is
    called as it was spelt first.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._names = {composed(name): name for name in known}
        self._spelt: dict[str, dict[str, None]] = {}

    def __call__(self, name: str, written: Any = None) -> str:
        """What a name is called. written: what stands in the data, where that is not the name itself."""
        called = self._names.setdefault(composed(name), name)
        self._spelt.setdefault(called, {})[json.dumps(name if written is None else written, default=str)] = None
        return called

    def joined(self, noun: str) -> list[str]:
        """Which names were spelt in several ways, in a sentence, or none."""
        found = [
            f"{name} ({shortened([_shown(one) for one in ways], SPELLINGS)})"
            for name, ways in self._spelt.items()
            if len(ways) > 1
        ]
        return [f"{noun} that are written in several ways and taken for one: {shortened(found, SPELLINGS)}"] * bool(
            found
        )


def _shown(written: str) -> str:
    """A spelling as JSON has it, with its letters where they are in the usual Unicode form."""
    value = json.loads(written)
    usual = not isinstance(value, str) or composed(value) == value
    return json.dumps(value, ensure_ascii=not usual)
