"""What is drawn, in pictures and on the page: the finished results of one setting, by method."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.errors import UserError
from fedbench.report.grouping import by_label, registered, settings
from fedbench.report.headings import Place, apart, headings
from fedbench.results import Result


@dataclass(frozen=True)
class Board:
    """A leaderboard's results: every method's finished seeds, by the method's label.

    title: what sets it apart from the boards beside it, whose `shared` is what they have in common; or its scenario
    where there is nothing of that.
    """

    place: Place
    title: str
    methods: Mapping[str, Sequence[Result]]
    shared: str = ""

    @property
    def suite(self) -> str:
        return self.place.suite

    @property
    def registered(self) -> dict[str, str]:
        """By label, the name its method is registered under."""
        return {label: registered(part) for label, part in self.methods.items()}

    def one_seed(self) -> dict[str, Result]:
        """Each method's result of the first seed that all have, because capacities may rotate with the seed; where
        they share none, of its own first."""
        shared = set.intersection(*({r.entry.seed for r in part} for part in self.methods.values()))
        return {
            label: min((r for r in part if not shared or r.entry.seed in shared), key=lambda r: r.entry.seed)
            for label, part in self.methods.items()
        }


def slug(text: str) -> str:
    """A name as a part of a file's name."""
    return re.sub(r"[^\w.=]+", "-", text).strip("-")


def boards(results: Sequence[Result]) -> list[Board]:
    """The settings that `compare` would show as leaderboards, as far as cells have finished.

    Raises: UserError where none has.
    """
    found = []
    for variant, group in settings(results):
        methods = {label: [r for r in part if r.status == "finished"] for label, part in by_label(group).items()}
        if methods := {label: part for label, part in methods.items() if part}:
            e = group[0].entry
            place = Place(group[0].suite, e.scenario, variant, e.backbone, e.dataset, e.profile)
            found.append((place, methods))
    if not found:
        raise UserError("no cell of these results has finished yet: there is nothing to draw")
    places = [place for place, _ in found]
    shared = headings(places).shared
    return [Board(place, title, methods, shared) for (place, methods), title in zip(found, apart(places), strict=True)]
