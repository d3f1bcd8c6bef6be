"""What two results folders were computed with, as far as it is not the same: versions, machines, configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedbench.report.absences import DASH
from fedbench.report.changes.names import Name
from fedbench.report.grouping import flatten
from fedbench.words import counted

PARTS = ("versions", "machine", "git", "fingerprints", "config")  # of a manifest, in the order in which they are told
WIDE = 30  # letters of a value in a table
MOST = 3  # pairs of values of one setting that are told one by one


@dataclass(frozen=True)
class Setting:
    """One value of a manifest that differs, as text, None where it is missing; names: in how many."""

    what: str
    before: str | None
    after: str | None
    names: int


def settings(names: Iterable[Name]) -> list[Setting]:
    """Everything that differs in names that both folders have, what differs in most of them first in its part."""
    pairs: Counter[tuple[str, str | None, str | None]] = Counter()
    for name in names:
        if name.before and name.after and name.before.manifest and name.after.manifest:
            old, new = (dict(_told(result.manifest)) for result in (name.before, name.after))
            keys = dict.fromkeys((*old, *new))
            pairs.update((key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key))
    by_setting: dict[str, list[Setting]] = {}
    for (what, old_value, new_value), n in pairs.most_common():
        by_setting.setdefault(what, []).append(Setting(what, old_value, new_value, n))
    ordered = sorted(by_setting, key=lambda what: PARTS.index(what.partition(".")[0]))
    return [setting for what in ordered for setting in _few(by_setting[what])]


def cut(value: str | None) -> str:
    """A value as a table has room for it."""
    text = value or DASH
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"


def _told(manifest: Any) -> Iterator[tuple[str, str]]:
    for part in PARTS:
        if manifest.get(part) is not None:
            yield from flatten(manifest[part], part)


def _few(found: list[Setting]) -> list[Setting]:
    """The values of one setting, or where they are many how many."""
    if len(found) <= MOST:
        return found
    old, new = ({getattr(one, side) for one in found} for side in ("before", "after"))
    return [
        Setting(found[0].what, counted(len(old), "value"), counted(len(new), "value"), sum(one.names for one in found))
    ]
