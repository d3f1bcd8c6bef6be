"""Exceptions that are shown as a message without a traceback."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """Input that cannot work: what, where, and what would be right. The command line exits with 2.

    option: which option of the component that raises it is to blame, as in `targets`, where that is known.
    """

    def __init__(self, *message: object, option: str = "") -> None:
        super().__init__(*message)
        self.option = option


class UnknownName(UserError):
    """Nothing answers to a name. near: what may have been meant, the nearest first."""

    def __init__(self, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message + (f"; did you mean {', '.join(near)}?" if near else ""))
        self.message, self.near = message, near


class CannotWrite(UserError):
    """A file or a folder cannot be written, on a full disk for example."""


class DataMissing(UserError):
    """A data set, weights or an optional package are not on this machine, and fedbench does not download them."""


class Broke(UserError):
    """A plugin raised an unexpected exception while a cell was prepared. As a rule the cell then fails, too."""


class NotApplicable(Exception):
    """A method has no meaning in a scenario (`exclusive` where nobody holds the full model): a dash, not a failure."""


class Interrupted(KeyboardInterrupt):
    """A run was asked to end, by Ctrl-C or a signal; its exit code is that of a program that the signal ended."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


MOST_SAID = 4_000  # characters of an exception's text that are kept
MOST_TRACED = 20_000  # of a traceback


def text_of(error: BaseException) -> str:
    """What an exception says, without its middle where that is long; a third-party one may be unable to."""
    try:
        return cut(str(error), MOST_SAID)
    except BaseException as other:  # whatever its __str__ raises
        return f"(it has no text: its __str__ raised {type(other).__name__})"


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception, without its middle where that is long."""
    import traceback

    return cut("".join(traceback.format_exception(error)), MOST_TRACED)


def cut(text: str, most: int) -> str:
    """The two ends of a text that is longer than that, with the number of characters between them."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... {len(text) - most:,} characters ...\n{text[-(most // 2) :]}"


def summary_of(error: BaseException) -> str:
    """An exception in one line, with the place that raised it; of Python that cannot be read, the place in that."""
    import traceback  # which takes a while, and most runs go well

    if isinstance(error, SyntaxError) and error.lineno and not (error.filename or "<").startswith("<"):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno}:{error.offset or 1})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen importlib")]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text_of(error)}{place}"
