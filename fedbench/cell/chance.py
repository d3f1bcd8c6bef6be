"""The generators that a whole process shares, which nothing that can be repeated may draw from."""

from __future__ import annotations

import ctypes
import functools
import random

import numpy as np
import torch

WORDS = 625  # of 32 bits, in which the Mersenne twister keeps its state: 624, and how many of them were given out
PYTHON = random._inst  # what `random.random` and its like draw from


def drawn() -> dict[str, object]:
    """Where the global generators of torch, NumPy and Python stand, by name; equal as long as nobody draws.

    It takes some 10 us, since it stands around every call of a plugin's objective, which a step has one of for each
    client. The second of the two normal numbers that NumPy's old `randn` draws at once is not looked for.
    """
    found: dict[str, object] = {
        "torch": torch.default_generator.get_state().numpy().tobytes(),
        "NumPy": _of_numpy(),
        "Python": _of_python(),
    }
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        found["torch on the GPU"] = torch.cuda.get_rng_state().numpy().tobytes()
    return found


def moved(before: dict[str, object]) -> list[str]:
    """The names of those that somebody has drawn from since they stood there."""
    return [whose for whose, state in drawn().items() if state != before.get(whose, state)]


def _of_numpy() -> object:
    """`np.random.get_state` writes 624 numbers one by one, which takes 0.1 ms; the generator says where they lie."""
    bits = np.random.get_bit_generator()  # type: ignore[attr-defined]  # which its stubs lack
    if isinstance(bits, np.random.MT19937):
        return ctypes.string_at(bits.ctypes.state_address, 4 * WORDS)
    return repr(bits.state)


def _of_python() -> object:
    """`random.getstate` makes 625 Python numbers; they are read from where CPython has them instead."""
    return _words() if _lie_open() else PYTHON.getstate(), getattr(PYTHON, "gauss_next", None)


def _words() -> bytes:
    """The index and the 624 words of Python's generator, which CPython keeps behind the head of the object."""
    return ctypes.string_at(id(PYTHON) + object.__basicsize__, 4 * WORDS)


@functools.cache
def _lie_open() -> bool:
    """Whether they are there, in this Python."""
    if type(PYTHON).__basicsize__ < object.__basicsize__ + 4 * WORDS:
        return False
    *state, index = PYTHON.getstate()[1]
    return _words() == np.array([index, *state], np.uint32).tobytes()
