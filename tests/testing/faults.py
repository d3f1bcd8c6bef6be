"""Faulty plugins as small sources, and how the kit is asked about them: many in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verdicts import verdicts

from fedbench.testing.component_check import Verdict

HEAD = """\
import numpy as np
import torch
from torch import nn
import fedbench
from fedbench import UserError, hookimpl
"""


def plugin(kind: str, body: str, facts: str = "") -> str:
    """The source of a plugin that registers `it`, which the body defines, as a component of that kind."""
    comma = f", {facts}" if facts else ""
    return f"{HEAD}\n{body}\n\n@hookimpl\ndef fedbench_register_{kind}s(register):\n    register('it', it{comma})\n"


def judged(folder: Path, source: str, **options: Any) -> list[Verdict]:
    """The verdicts on a file of that source."""
    file = folder / "faulty.py"
    file.write_text(source)
    return verdicts(file, **options)


def why(folder: Path, source: str, **options: Any) -> str:
    """What is said against the one thing that a file of that source has."""
    (one,) = judged(folder, source, **options)
    return f"{one.verdict}: {one.why}"
