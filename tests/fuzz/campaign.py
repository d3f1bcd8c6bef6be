"""Many inputs of one kind, in a process of their own: `python -m fuzz.campaign KIND FIRST COUNT`, a JSON report on stdout.

With one number alone that input is run, and its traceback shown.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from fuzz.archives import Archives
from fuzz.checkpoints import Unfinished
from fuzz.folders import Folders
from fuzz.registry import Installed
from fuzz.states import States
from fuzz.suites import Suites
from fuzz.watch import PATIENCE, SECONDS, Arena, Target

KINDS: dict[str, type[Target]] = {
    "suites": Suites,
    "results": Folders,
    "archives": Archives,
    "states": States,
    "checkpoints": Unfinished,
    "plugins": Installed,
}
STUCK = 2 * PATIENCE * SECONDS  # code that no signal reaches is ended with its process


def campaign(kind: str, numbers: range, root: Path) -> dict[str, Any]:
    """How many inputs were answered and refused, the seconds, and every fault with the numbers that lead to it."""
    (root / "shared").mkdir()
    target, arena = KINDS[kind](root / "shared"), Arena(root / "arena")
    counts: Counter[str] = Counter()
    faults: dict[str, list[int]] = {}
    slowest, began = (0.0, -1), time.perf_counter()
    for number in numbers:
        faulthandler.dump_traceback_later(STUCK, exit=True)
        before = time.perf_counter()
        told = arena.run(target.attack, Random(f"{kind} {number}"))
        slowest = max(slowest, (time.perf_counter() - before, number))
        if told in ("answered", "refused"):
            counts[told] += 1
        else:
            faults.setdefault(told, []).append(number)
            print(kind, number, told, file=sys.stderr)
    faulthandler.cancel_dump_traceback_later()
    seconds = time.perf_counter() - began
    return {"kind": kind, "inputs": len(numbers), **counts, "seconds": seconds, "slowest": slowest, "faults": faults}


def main(kind: str, first: str, count: str = "") -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        if count:
            print(json.dumps(campaign(kind, range(int(first), int(first) + int(count)), root)))
            return
        (root / "shared").mkdir()
        target = KINDS[kind](root / "shared")
        inside = root / "inside"
        inside.mkdir()
        target.attack(inside, Random(f"{kind} {first}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
