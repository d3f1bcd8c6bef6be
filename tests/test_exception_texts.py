"""fedbench/errors.py: what third-party exceptions say is kept in short, whatever they do when they are asked."""

from __future__ import annotations

import pytest

from fedbench.errors import MOST_SAID, MOST_TRACED, UserError, summary_of, text_of, traceback_of
from fedbench.processes import supervisor


class Mute(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class Numeric(Exception):
    def __str__(self):
        return 7


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(("error", "name"), [(Mute("x"), "KeyboardInterrupt"), (Numeric(), "TypeError")])
def test_an_exception_that_cannot_say_anything_is_told_by_its_type(error, name):
    assert text_of(error) == f"(it has no text: its __str__ raised {name})"
    assert summary_of(raised(error)).startswith(f"{type(error).__name__}: (it has no text")
    assert type(error).__name__ in traceback_of(raised(error))


def test_a_long_text_keeps_its_ends():
    error = raised(ValueError("begins " + "x" * 30_000_000 + " ends"))
    for text, most in ((text_of(error), MOST_SAID), (traceback_of(error), MOST_TRACED), (summary_of(error), MOST_SAID)):
        assert len(text) < most + 300 and "characters ..." in text and "ends" in text
    assert text_of(error).startswith("begins ") and text_of(UserError("short")) == "short"


def long_reason(argument, tell):
    raise UserError("x" * 10**6)


def test_a_process_passes_on_no_more_than_that():
    with pytest.raises(UserError) as caught:
        supervisor.call("test_exception_texts:long_reason", "", timeout=60)
    assert len(str(caught.value)) < MOST_SAID + 100
