"""Options that are typed as `--name=value`, completed as those whose value is a word of its own.

bash hands over `--name`, `=` and `value` as three words; zsh and fish hand over one word, and put one in its place.
"""

from __future__ import annotations

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)


def without_signs(words: list[str], incomplete: str) -> tuple[list[str], str]:
    """What bash hands over, as if a blank stood where an option has its `=`."""
    before = ["", *words]
    words = [word for last, word in zip(before, words, strict=False) if word != "=" or not last.startswith("--")]
    return words, "" if incomplete == "=" and words and words[-1].startswith("--") else incomplete


class Bash(BashComplete):
    """bash, with options that have an `=`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        return without_signs(*super().get_completion_args())


class OneWord(ShellComplete):
    """A shell in which what is offered stands for the whole word."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        option, sign, _ = incomplete.partition("=")
        if sign and option.startswith("--"):
            for item in found:
                item.value = f"{option}={item.value}" if item.type == "plain" else item.value
        return found


class Zsh(OneWord, ZshComplete):
    """zsh, with options that have an `=`."""


class Fish(OneWord, FishComplete):
    """fish, with options that have an `=`."""


def teach() -> None:
    """Have click complete so."""
    for shell in (Bash, Zsh, Fish):
        add_completion_class(shell)
