"""What leaderboards are called side by side: what all share is said once, and each by what sets it apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

APART = "; "  # between the parts of a variant


class Place(NamedTuple):
    """Where a leaderboard stands; what tells it from all others of the same results."""

    suite: str
    scenario: str
    variant: str
    backbone: str
    dataset: str
    profile: str


class Headings(NamedTuple):
    """shared: what stands above all, "" for a single one, whose title says everything; titles: one each, in order."""

    shared: str
    titles: Sequence[str]


def headings(boards: Sequence[Place]) -> Headings:
    """Nothing is said twice: not a scenario that is called as its suite, nor a backbone or data set that a variant
    names again."""
    parts = [_parts(board) for board in boards]
    if len(parts) == 1:
        return Headings("", [_said(parts[0])])
    names = dict.fromkeys(name for part in parts for name in part)
    common = {name for name in names if len({part.get(name) for part in parts}) == 1}
    shared = {name: parts[0][name] for name in names if name in common}
    titles = [_said({name: text for name, text in part.items() if name not in common}) for part in parts]
    titles = [title or board.scenario for title, board in zip(titles, boards, strict=True)]
    if len(set(titles)) < len(titles):  # variants that say the same in another order
        differ = [name for name in Place._fields if len({getattr(board, name) for board in boards}) > 1]
        titles = [" · ".join(filter(None, (getattr(board, name) for name in differ))) for board in boards]
    return Headings(_said(shared), titles)


def distinct(boards: Sequence[Place]) -> Sequence[str]:
    """The titles of several; of a single one its scenario."""
    return headings(boards).titles if len(boards) > 1 else [board.scenario for board in boards]


def _parts(board: Place) -> dict[str, str]:
    """By what it says, in the order of a heading."""
    told = dict(part.partition("=")[::2] for part in board.variant.split(APART) if part)
    backbone = _named(told, "backbone", board.backbone)
    dataset = _named(told, "data", board.dataset)
    others = {f"{key}=": f"{key}={value}" if value else key for key, value in told.items()}
    found = {"suite": board.suite, "scenario": board.scenario if board.scenario != board.suite else "", **others}
    found |= {"backbone": backbone, "dataset": dataset, "profile": f"{board.profile} profile" if board.profile else ""}
    return {name: text for name, text in found.items() if text.strip()}


def _named(told: dict[str, str], key: str, name: str) -> str:
    """The name of a backbone or a data set, with the options that a variant gives it, which then says it no more."""
    value = told.get(key, "")
    if name and value.partition("(")[0] == name:
        return told.pop(key)
    return name


def _said(parts: Mapping[str, str]) -> str:
    """`suite · scenario · micro_vit on strokes6 · paper profile`."""
    both = {"backbone", "dataset"} <= parts.keys()
    texts = []
    for name, text in parts.items():
        if both and name == "backbone":
            texts.append(f"{text} on {parts['dataset']}")
        elif not (both and name == "dataset"):
            texts.append(text)
    return " · ".join(texts)
