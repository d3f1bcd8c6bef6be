"""Why a cell failed: numbers that are none any more, and what an exception says beside its own words."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

import torch


class Diverged(Exception):
    """A training loss, an update or an answer that is no number any more, by no fault of the scenario."""


def place(error: BaseException, files: Iterable[Path]) -> str:
    """The last line of a user's own file that an exception came through, as ` (mine.py:12)`; the folder is left out, so
    that a cell says the same wherever it is computed."""
    own = {str(file) for file in files}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused; on a CPU torch says so by a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
