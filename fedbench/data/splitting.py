"""Which examples are for testing: a part of each class and domain, with copies and whole groups on one side."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import islice

import numpy as np

from fedbench.data.names import codes
from fedbench.data.texts import Example
from fedbench.errors import UserError
from fedbench.seeding import seed_of
from fedbench.words import shortened


def split_by_group(
    examples: Sequence[Example], groups: Sequence[str], fraction: float, seed: int, what: str
) -> list[bool]:
    """Which examples are for testing, so that none of a group is trained on where another is tested.

    Args:
        examples: Texts, or images by their paths. Copies of a text go the same way even if their groups differ.
        groups: The group of each.
        fraction: The part of each class in each domain that is wanted. Whole groups only come near it.
        seed: Of the draw.
        what: The data set's name, which is part of the draw.
    """
    unit = _joined(groups, [one.text for one in examples])
    names = dict(zip(reversed(unit), reversed(groups), strict=True))
    order = sorted(names, key=lambda number: seed_of(seed, use=f"{what} group {names[number]!r}"))
    strata = codes((one.label, one.domain) for one in examples)
    wanted = np.maximum(np.rint(fraction * np.bincount(strata)), 1)
    return [bool(flag) for flag in whole_groups(np.array(unit), order, strata, wanted, [strata], fill=True)]


def tests_by_group(
    what: str, samples: Sequence[tuple[str, int, int]], groups: Mapping[str, str], fraction: float, seed: int
) -> set[str]:
    """The paths of images that are for testing, whole groups of them.

    Args:
        what: The data set's name.
        samples: Path, label and domain of each image.
        groups: The group of each path.
        fraction: As of `split_by_group`.
        seed: Of the draw.

    Raises:
        UserError: Where there are none.
    """
    own = [groups[sample[0]] for sample in samples]
    test = split_by_group([Example(*sample) for sample in samples], own, fraction, seed, what)
    if not any(test):
        raise UserError(f"{what}: no class has images of two groups, and so none can be tested", option="group")
    return {sample[0] for sample, flag in zip(samples, test, strict=True) if flag}


def whole_groups(
    group: np.ndarray,
    order: Sequence[int],
    part: np.ndarray,
    wanted: np.ndarray,
    kept: Sequence[np.ndarray],
    fill: bool = False,
) -> np.ndarray:
    """(n,) bool: which examples are held out, all of a group or none of it.

    Groups are looked at in order. One is held out if that brings the numbers of examples closer to what is wanted, and
    leaves something everywhere.

    Args:
        group: (n,) The group of each example.
        order: All groups, in the order of the draw.
        part: (n,) The part, from 0, that each example counts for.
        wanted: (k,) How many examples of each part are wanted.
        kept: Arrays (n,) of numbers from 0. Of each number that an array has, one example at least is not held out.
        fill: Whether parts that would have none get a group that is larger than what is wanted.
    """
    at = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[at], np.arange(group.max(initial=-1) + 2))
    left = [np.bincount(keys) for keys in kept]
    taken = np.zeros(len(wanted))
    out = np.zeros(len(group), dtype=bool)

    def hold_out(number: int, judge: bool) -> None:
        own = at[ends[number] : ends[number + 1]]
        parts, counts = np.unique(part[own], return_counts=True)
        before, after = (np.abs(wanted[parts] - taken[parts] - more).sum() for more in (0, counts))
        if judge and after >= before or not judge and taken[parts].all():
            return
        losses = [np.unique(keys[own], return_counts=True) for keys in kept]
        if out[own].any() or any((left[i][which] <= lost).any() for i, (which, lost) in enumerate(losses)):
            return
        for i, (which, lost) in enumerate(losses):
            left[i][which] -= lost
        taken[parts] += counts
        out[own] = True

    for number in order:
        hold_out(number, judge=True)
    for number in order if fill else ():
        hold_out(number, judge=False)
    return out


def groups_by_name(pattern: str, paths: Sequence[str]) -> dict[str, str]:
    """The group of each image: what a regular expression finds in its file's name, or its first parenthesis there.

    An image whose name does not match belongs to no other. Raises: UserError for what is no regular expression, or
    matches nothing.
    """
    try:
        find = re.compile(pattern).search
    except re.error as error:
        raise UserError(f"group: {pattern!r} is no regular expression: {error}", option="group") from error
    found = {path: find(path.rpartition("/")[2]) for path in paths}
    groups = {path: (match[1] if match.re.groups else match[0]) or path for path, match in found.items() if match}
    if not groups:
        raise UserError(f"group: {pattern!r} is found in no file's name, such as {paths[0]}", option="group")
    return {path: groups.get(path, path) for path in paths}


def notes_on_groups(groups: Mapping[str, str], tests: Collection[str]) -> list[str]:
    """How many groups images or rows make, and which are on both sides, a sentence each.

    Args:
        groups: The group of each image or row, by its path or place.
        tests: Those that are for testing.
    """
    sides: Mapping[str, set[bool]] = defaultdict(set)
    for one, group in groups.items():
        sides[group].add(one in tests)
    apart = sorted(group for group, of in sides.items() if len(of) == 2)
    return [
        f"groups that stay together: {len(sides) - len(apart):,}",
        *([f"groups that are in both training and test data: {shortened(apart)}"] if apart else []),
    ]


def _joined(groups: Sequence[str], texts: Sequence[Hashable]) -> list[int]:
    """A number for each example, the same for those of one group or of one text, and so on."""
    parent: dict[Hashable, Hashable] = {}

    def root(node: Hashable) -> Hashable:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = parent[above]
            node = above
        return node

    for group, text in zip(groups, texts, strict=True):
        parent[root(("text", text))] = root(("group", group))
    return [int(number) for number in codes(root(("group", group)) for group in groups)]


def chosen_for_test(examples: Sequence[Example], fraction: float, seed: int, what: str) -> list[bool]:
    """Which examples are for testing: that part of each class in each domain, two different texts or more given.

    Copies of a text go the same way, whatever their classes and domains. Where there are none in several of these, the
    pick within one class and domain depends on nothing outside it.
    """
    groups: dict[tuple[int, int], dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
    homes: dict[Hashable, set[tuple[int, int]]] = defaultdict(set)
    for i, one in enumerate(examples):
        groups[one.label, one.domain][one.text].append(i)
        homes[one.text].add((one.label, one.domain))
    ranked = {
        group: sorted(copies, key=lambda text: seed_of(seed, use=f"{what} {text!r}"))
        for group, copies in groups.items()
    }
    counts = {group: min(max(round(fraction * len(all_)), 1), len(all_) - 1) for group, all_ in ranked.items()}
    first = {group: set(texts[: counts[group]]) for group, texts in ranked.items()}
    test = [False] * len(examples)
    for group, texts in ranked.items():
        # one that is in several groups is tested where all of them picked it; others of its own take its place
        chosen = [text for text in texts[: counts[group]] if all(text in first[home] for home in homes[text])]
        spare = (text for text in texts[counts[group] :] if len(homes[text]) == 1)
        for text in (*chosen, *islice(spare, counts[group] - len(chosen))):
            for i in groups[group][text]:
                test[i] = True
    return test
