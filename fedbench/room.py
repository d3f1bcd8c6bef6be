"""Whether there is room on disk for what a run writes."""

from __future__ import annotations

import sys
from pathlib import Path

from fedbench import machine
from fedbench.data import cache_dir
from fedbench.errors import UserError

NEEDED, SCARCE = 4 * 2**20, 100 * 2**20  # bytes below which a run is refused, and below which it is warned


def require_room(results: Path) -> None:
    """Look before anything is computed.

    Raises: UserError where the results folder's disk is as good as full. Where less than 100 MiB are free, there or
    in the cache folder, a warning goes to stderr.
    """
    free = machine.free_disk(results)
    if free < NEEDED:
        raise UserError(f"{results}: only {_size(free)} free. Make room, or choose another disk with --results DIR.")
    for folder, mend in ((results, "choose another disk with --results DIR"), (cache_dir(), "set FEDBENCH_CACHE")):
        if (free := machine.free_disk(folder)) < SCARCE:
            print(f"Warning: {folder}: only {_size(free)} free; make room, or {mend}.", file=sys.stderr)


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"
