"""Damaged inputs of one kind, each a function of its number: answered or refused, in time, and nothing else touched.

`python -m hostile.campaign KIND NUMBER` in `tests/` runs one and shows its traceback.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hostile.archives import Archives
from hostile.folders import Folders
from hostile.states import States
from hostile.suites import Suites
from hostile.watch import Arena

# Each is made once, with a folder for what all its inputs share. Its `attack(inside, chance)` puts one input into the
# empty folder `inside`, which is the current one, and has it read.
KINDS: dict[str, type] = {"suites": Suites, "results": Folders, "archives": Archives, "states": States}


def campaign(kind: str, numbers: range, root: Path) -> tuple[Counter[str], dict[str, list[int]]]:
    """How many inputs were answered and refused, and every fault with the numbers that lead to it."""
    target, arena = _made(kind, root), Arena(root / "arena")
    counts: Counter[str] = Counter()
    faults: dict[str, list[int]] = {}
    for number in numbers:
        ended = arena.run(target.attack, Random(f"{kind} {number}"))
        if ended in ("answered", "refused"):
            counts[ended] += 1
        else:
            faults.setdefault(ended, []).append(number)
    return counts, faults


def _made(kind: str, root: Path) -> Any:
    (root / "shared").mkdir()
    return KINDS[kind](root / "shared")


def main(kind: str, number: str) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "inside").mkdir()
        _made(kind, root).attack(root / "inside", Random(f"{kind} {number}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
