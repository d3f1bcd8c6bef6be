"""Grouping: which results may be compared with each other, and what their leaderboards are called."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from fedbench.errors import UserError
from fedbench.results import Result
from fedbench.results.diff import flatten
from fedbench.results.identity import plugin_versions
from fedbench.types import SIZES, assignment
from fedbench.words import nearest, unlike

ROLES = ("method", "ceiling", "floor", "control", "constant")
# Most others differ from these for sure, and so they are in no test of the others; but where each client is tested on
# its own images, a constant answer is one that methods have to beat.
UNRANKED = ("ceiling", "constant")
# The parts of a configuration that must agree between the rows of a leaderboard; seed and method may differ.
SHARED = ("backbone", "adapter", "data", *SIZES, "devices", "fit", "participation", "train", "profile", "precision")

OPTIONS = ("method", "adapter", "train")  # those in which results of one name on one leaderboard may differ


def select(
    results: Sequence[Result],
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    variants: Sequence[str] = (),
) -> list[Result]:
    """The results whose scenario, method and variant match a glob and whose seed is listed; no filter, no limit.

    Raises: UserError for a filter that matches nothing.
    """
    chosen = list(results)
    filters = {"scenario": scenarios, "method": methods, "seed": seeds, "variant": variants}
    for what, wanted in filters.items():
        names = {getattr(r.entry, what): None for r in results}
        matches = {pattern: [n for n in names if fnmatchcase(str(n), str(pattern))] for pattern in wanted}
        for pattern, matched in matches.items():
            if not matched:
                raise UserError(unknown(what, str(pattern), map(str, names)))
        if wanted:
            kept = {name for matched in matches.values() for name in matched}
            chosen = [r for r in chosen if getattr(r.entry, what) in kept]
    return chosen


def unknown(what: str, name: str, have: Iterable[str]) -> str:
    known = list(dict.fromkeys(have))
    close = nearest(name, known)
    hint = f" Did you mean '{close[0]}'?{unlike(name, close[0])}" if close else ""
    return f"no {what} '{name}' in these results.{hint} There are: {', '.join(known)}."


def settings(results: Sequence[Result]) -> Iterable[tuple[str, list[Result]]]:
    """(variant, results) of each leaderboard; the variant also says what sets it apart from its namesakes."""
    named: dict[tuple, list[Result]] = {}
    for r in results:
        e = r.entry
        named.setdefault((r.suite, e.scenario, e.variant, e.backbone, e.dataset, e.profile), []).append(r)
    for (_, _, variant, *_), group in named.items():
        started = [plugin_versions(r.manifest) for r in group if r.manifest]
        common = set.intersection(*map(set, started)) if started else set()  # others are single methods'
        shared = partial(_shared, plugins=common, following=following_seed(group))
        for text, part in _apart(group, (*SHARED, "faults", "evaluation"), shared):
            yield "; ".join(filter(None, (variant, text))), part


DRAWN = {"data": "data", "backbone": "weights"}  # whose options may be the seed, and their fingerprints


def following_seed(results: Iterable[Result]) -> list[tuple[str, str]]:
    """The options of data and backbone that are the seed in every cell, as (`data`, `draw`); none of one seed alone,
    nor where two cells of a seed have different data or weights."""
    cells = [(r.entry.seed, r.manifest) for r in results if r.manifest]
    if len({seed for seed, _ in cells}) < 2:
        return []
    configs = [(seed, manifest["config"]) for seed, manifest in cells]
    found = [
        (part, key)
        for part in DRAWN
        for key, value in configs[0][1].get(part, {}).items()
        if type(value) is int and all(config.get(part, {}).get(key) == seed for seed, config in configs)
    ]
    kinds = {(seed, repr(manifest.get("fingerprints"))) for seed, manifest in cells} if found else set()
    return found if len(kinds) == len({seed for seed, _ in kinds}) else []


def _shared(result: Result, plugins: Collection[str], following: Collection[tuple[str, str]]) -> dict[str, Any]:
    """What must agree; in place of settings that a method brings itself, what its suite gives all others.

    Args:
        plugins: those that computed all cells.
        following: options that are the seed.
    """
    theirs = {key: value for key, value in (result.entry.shared or {}).items() if key in OPTIONS}
    config = {**result.manifest["config"], **theirs}
    shared = {key: config.get(key) for key in SHARED} | {"fingerprints": result.manifest.get("fingerprints")}
    for part, key in following:
        shared[part] = {**(shared[part] or {}), key: "seed"}
        shared["fingerprints"] = {**(shared["fingerprints"] or {}), DRAWN[part]: "seed"}
    shared["plugins"] = {name: code for name, code in plugin_versions(result.manifest).items() if name in plugins}
    shared["faults"] = config.get("faults") or {}
    evaluation = config.get("evaluation", {})
    less = {"validation": evaluation["validation"]} if "validation" in evaluation else {}  # to train on
    shared["tested"] = {"by": evaluation.get("by", "domain"), **less}
    for what in (*SIZES, "devices"):
        if isinstance(given := shared[what], dict):
            shared[what] = {k: sorted(v) if isinstance(v, list) else v for k, v in given.items()}
    return shared


def draws_of(cells: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[int, int]:
    """By seed, the draw that it is a part of, named by its first seed.

    Seeds under which the same clients have the same sizes and devices are one draw; where all seeds have the same,
    nothing is drawn by them, and each is a draw of its own.

    Args:
        cells: of one leaderboard, the seed and configuration of each. A method may not read sizes that it shares with
            others in the seed, so that the draws are those of all.
    """
    found: dict[int, set[str]] = {}
    for seed, config in cells:
        found.setdefault(seed, set()).add(repr(sorted(assignment(config).items())))
    kinds = {seed: tuple(sorted(texts)) for seed, texts in sorted(found.items())}
    if len({*kinds.values()}) == 1:
        return {seed: seed for seed in kinds}
    first: dict[tuple[str, ...], int] = {}
    return {seed: first.setdefault(kind, seed) for seed, kind in kinds.items()}


def registered(results: Sequence[Result]) -> str:
    """The method behind the name that a suite gives it; that name where no cell was started."""
    names = (r.manifest.get("config", {}).get("method", {}).get("name") for r in results)
    return next(filter(None, names), results[0].entry.method)


def roles_of(results: Sequence[Result], roles: Mapping[str, str]) -> dict[str, str]:
    """The role of methods, by name: as installed ones have it (`roles`), of others what their results say."""
    said = {registered([r]): role for r in results if (role := r.manifest.get("method", {}).get("role")) in ROLES}
    return {**roles, **{name: said[name] for name in sorted(said) if name not in roles}}


def in_pictures(results: Sequence[Result], roles: Mapping[str, str]) -> list[Result]:
    """Without constant answers, far from whose scores and costs all others would share a corner of a picture. They
    stay where each client is tested on its own images, and where there is nothing else. roles: of methods, by name."""

    def drawn(result: Result) -> bool:
        by_client = result.manifest.get("config", {}).get("evaluation", {}).get("by") == "client"
        return by_client or roles.get(registered([result])) != "constant"

    return list(filter(drawn, results)) or list(results)


def by_options(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """The results of one method's name, split where its options, own settings or plugins' code differ, with the text of
    what does."""

    def own(result: Result) -> dict[str, Any]:
        config = result.manifest["config"]
        return {key: config.get(key) for key in OPTIONS} | {"plugins": plugin_versions(result.manifest)}

    return _apart(results, OPTIONS, own)


def by_label(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The rows of a leaderboard: each method's results, its options in the label where they differ."""
    by_method: dict[str, list[Result]] = {}
    for r in results:
        by_method.setdefault(r.entry.method, []).append(r)
    return {
        f"{method} [{text}]" if text else method: part
        for method, named in by_method.items()
        for text, part in by_options(named)
    }


def _apart(
    results: Sequence[Result], keys: Sequence[str], part_of: Callable[[Result], dict[str, Any]]
) -> list[tuple[str, list[Result]]]:
    """Results split by a part of their configuration, with the text of what differs ("" where nothing does). keys: what
    of the configuration that part is made of, besides fingerprints, versions and the suite's own.

    A cell that was not started has no configuration yet; it stays with the first of its name.
    """
    started = [r for r in results if r.manifest]
    values = {id(r): _values(r, keys) for r in started}  # where cells were kept, those in common are the same objects
    if len(set(values.values())) < 2:
        return [("", list(results))]
    texts: dict[tuple[int | str, ...], str] = {}
    flattened: dict[str, str] = {}  # most cells have their part in common with others
    parts: dict[str, dict[str, str]] = {}
    groups: dict[str, list[Result]] = {}
    for r in results:
        one = r if r.manifest else started[0]
        if (own := values[id(one)]) not in texts:
            part = part_of(one)
            if (text := json.dumps(part, sort_keys=True)) not in flattened:
                flat = dict(flatten(part))
                flattened[text] = json.dumps(flat, sort_keys=True)
                parts[flattened[text]] = flat
            texts[own] = flattened[text]
        groups.setdefault(texts[own], []).append(r)
    names = dict.fromkeys(name for flat in parts.values() for name in flat)
    differing = [name for name in names if len({flat.get(name) for flat in parts.values()}) > 1]
    return [("; ".join(f"{n}={parts[k][n]}" for n in differing if n in parts[k]), group) for k, group in groups.items()]


def _values(result: Result, keys: Sequence[str]) -> tuple[int | str, ...]:
    """Equal only for results whose values of these keys are the same: of cells the same objects, as long as those live;
    of what an index says of a name, which has objects of its own for each, the same text."""
    manifest, config, ignored = result.manifest, result.manifest["config"], result.entry.ignored or {}
    of_cell = [repr(ignored[key]) if key in ignored else id(config.get(key)) for key in keys]
    return (*of_cell, *(id(manifest.get(key)) for key in ("fingerprints", "versions")), repr(result.entry.shared))


# Titles

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
    parts = dict(part.partition("=")[::2] for part in board.variant.split(APART) if part)
    backbone = _named(parts, "backbone", board.backbone)
    dataset = _named(parts, "data", board.dataset)
    others = {f"{key}=": f"{key}={value}" if value else key for key, value in parts.items()}
    found = {"suite": board.suite, "scenario": board.scenario if board.scenario != board.suite else "", **others}
    found |= {"backbone": backbone, "dataset": dataset, "profile": f"{board.profile} profile" if board.profile else ""}
    return {name: text for name, text in found.items() if text.strip()}


def _named(parts: dict[str, str], key: str, name: str) -> str:
    """The name of a backbone or a data set, with the options that a variant gives it, which then says it no more."""
    value = parts.get(key, "")
    if name and value.partition("(")[0] == name:
        return parts.pop(key)
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
