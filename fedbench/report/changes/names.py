"""Two results folders, name by name: which cells say the same, and which do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.errors import UserError
from fedbench.results import Result
from fedbench.results.differences import differing
from fedbench.results.result import first_line

# What became of a name: its result is the same or another one, there was one before or is one now, there is none in
# either, one of them cannot be believed, or only one of the folders has the name.
EQUAL, DIFFERENT, LOST, GAINED, NEITHER = "equal", "different", "lost", "gained", "no result"
DAMAGED, ONLY_BEFORE, ONLY_AFTER = "damaged", "only before", "only after"


@dataclass(frozen=True)
class Name:
    """A name that cells have, and the results behind it; None in a folder without it.

    parts: of DIFFERENT, the tables that say something else · fault: of DAMAGED, what is wrong.
    """

    suite: str
    scenario: str
    variant: str
    method: str
    seed: int
    change: str
    before: Result | None = None
    after: Result | None = None
    parts: tuple[str, ...] = ()
    fault: str = ""

    @property
    def group(self) -> tuple[str, str, str, str]:
        """The name without its seed."""
        return self.suite, self.scenario, self.variant, self.method

    @property
    def both(self) -> bool:
        """Whether there is a result in either folder."""
        return self.change in (EQUAL, DIFFERENT)

    @property
    def same_id(self) -> bool:
        """Whether it is one cell: the same configuration, versions and data."""
        return None not in (self.before, self.after) and _id(self.before) == _id(self.after)


def _id(result: Result | None) -> str:
    return result.manifest.get("id", result.entry.cell.rpartition("-")[2]) if result else ""


def _key(result: Result) -> tuple[str, str, str, str, int]:
    e = result.entry
    return result.suite, e.scenario, e.variant, e.method, e.seed


def shared(before: Iterable[Result], after: Iterable[Result]) -> bool:
    """Whether two folders have a name in common behind which lie two cells, and not one that both lead to."""
    places = {_key(result): result.folder.resolve() for result in before}
    return any(places.get(_key(r), r.folder.resolve()) != r.folder.resolve() for r in after)


def compared(before: Sequence[Result], after: Sequence[Result]) -> list[Name]:
    """Every name of either folder once, in the order of the first. Two cells are read once, however many names they
    have."""
    now = {_key(result): result for result in after}
    was = {_key(result): result for result in before}
    known: dict[tuple[Path, Path], tuple[str, tuple[str, ...], str]] = {}
    found = []
    for key in dict.fromkeys((*was, *now)):
        old, new = was.get(key), now.get(key)
        if old is None or new is None:
            found.append(Name(*key, ONLY_AFTER if old is None else ONLY_BEFORE, old, new))
            continue
        pair = (old.folder, new.folder)
        if pair not in known:
            known[pair] = _change(old, new)
        change, parts, fault = known[pair]
        found.append(Name(*key, change, old, new, parts, fault))
    return found


def _change(old: Result, new: Result) -> tuple[str, tuple[str, ...], str]:
    """(what became of it, in what it differs, what is wrong with it)."""
    if fault := old.fault or new.fault:
        return DAMAGED, (), fault
    done = [result.status == "finished" for result in (old, new)]
    if not all(done):
        return (LOST if done[0] else GAINED if done[1] else NEITHER), (), ""
    try:
        parts = differing(old, new)
    except UserError as error:
        return DAMAGED, (), first_line(error)
    return (DIFFERENT if parts else EQUAL), parts, ""
