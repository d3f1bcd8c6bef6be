"""What processes that compute cells find in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Libraries read these when they are loaded.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# `python -c` and `python -m` import from the current folder before all else, so that a `random.py` beside somebody's
# suite would run in place of Python's own; the command `fedbench` does not.
NOT_FROM_HERE = {"PYTHONSAFEPATH": "1"}


def unless_set(values: Mapping[str, str]) -> dict[str, str]:
    """These values, or what this process has under their names."""
    return {name: os.environ.get(name) or value for name, value in values.items()}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Inside, this process and those that it starts have these values."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
