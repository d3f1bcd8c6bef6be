"""The candidates of a suite's `tune`, drawn from its space."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbench.registry.catalogue import OWN_SETTINGS
from fedbench.suite.keys import CANDIDATES_SEED
from fedbench.suite.points import Group
from fedbench.suite.yaml import Node, Problems
from fedbench.types.tuning import Tuning
from fedbench.words import shown, suggestion

if TYPE_CHECKING:
    import numpy as np

FACTORS = (2, 4)  # at which candidates beyond an edge lie
HIGHEST, LOWEST = "highest", "lowest"
DIGITS = 4  # of a number that is drawn: enough, and short in a table


def check(tune: Node, problems: Problems, known: Collection[str]) -> None:
    """Report keys of the space that no method can have of its own. known: the settings; other keys are reported
    where they are chosen."""
    for key, node in tune.at("space").value.items():
        first, _, rest = key.partition(".")
        own = first in OWN_SETTINGS and rest and key not in ("train.rounds", "adapter.name")
        if own or first == "methods" or first not in known:
            continue
        problems.add(
            node.named,
            f"tune.space: {shown(key)} is not a method's own to choose; expected a key of train (but rounds) or of "
            "adapter (but name), or methods.NAME.option",
        )


def ends(given: Node) -> list[Node]:
    """The values between which those of a range lie, or all of a choice."""
    ((way, values),) = given.value.items()
    if way in ("integer", "choice"):
        return list(values.value)
    return [replace(value, value=float(value.value)) for value in values.value]


def candidates(ranges: Mapping[str, Node], tune: Node) -> list[dict[str, Any]]:
    """`trials` different points of the space, as values by dotted key, or all there are: the first ones of a scrambled
    Sobol sequence (Owen 1998, as scipy has it), so that more trials begin with the same ones."""
    trials, draw = tune.at("trials").value, tune.get("draw")
    found: dict[str, dict[str, Any]] = {}
    for u in _sobol(len(ranges), trials, draw.value if draw else 0):
        point = {key: _value(node.plain(), float(share)) for (key, node), share in zip(ranges.items(), u, strict=True)}
        if len(found) < trials:
            found.setdefault(json.dumps(point), point)
    return list(found.values())


def beyond_edges(
    ranges: Mapping[str, Node], drawn: Sequence[Mapping[str, Any]], takes: Callable[[str, Any], bool]
) -> list[tuple[int, dict[str, Any]]]:
    """What is tried where a winner lies at the edge of what was drawn: of each such candidate its number, and its
    values at twice and four times the highest one, or at a half and a quarter of the lowest one.

    Keys that are not at an edge, that are a choice or no numbers above zero, or that do not take such a value stay as
    they are.
    takes(key, value): whether a key does.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    for k, values in enumerate(drawn):
        numeric = {key: value for key, value in values.items() if "choice" not in ranges[key].value}
        ways = {key: way for key, value in numeric.items() if (way := _way(value, [each[key] for each in drawn]))}
        for factor in FACTORS:
            point = {**values}
            for key, up in ways.items():
                value = values[key] * factor if up == HIGHEST else values[key] / factor
                value = round(value) if "integer" in ranges[key].value else float(f"{value:.{DIGITS}g}")
                point |= {key: value} if takes(key, value) else {}
            if point not in [*drawn, *(other for _, other in found)]:
                found.append((k, point))
    return found


def _way(value: Any, values: Sequence[Any]) -> str:
    """Whether a value is the highest or the lowest one; "" for others, and for what has no edge."""
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and each > 0 for each in values):
        return ""
    if min(values) == max(values):
        return ""
    return HIGHEST if value == max(values) else LOWEST if value == min(values) else ""


def _sobol(dimensions: int, trials: int, seed: int) -> Iterator[np.ndarray]:
    """Points of the unit cube, many more than there are to be trials, since some may come to the same."""
    import numpy as np  # these take a second, and most suites are not tuned
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=True, seed=np.random.default_rng(seed))
    yield from sequence.random_base2(math.ceil(math.log2(trials)) + 6)


def _value(given: Mapping[str, Any], u: float) -> Any:
    """The value at a share u of a range, 0 <= u < 1."""
    ((way, values),) = given.items()
    if way == "choice":
        return values[int(u * len(values))]
    low, high = values
    if way == "integer":
        return low + int(u * (high - low + 1))
    value = low * (high / low) ** u if way == "log" else low + u * (high - low)
    return float(min(max(float(f"{value:.{DIGITS}g}"), low), high))


def tuning(
    tune: Node,
    groups: Sequence[Group],
    drawn: Sequence[tuple[Mapping[str, Any], int | None]],
    seeds: Sequence[int],
    problems: Problems,
) -> Tuning:
    """The tuning of a suite.

    Args:
        groups: those that it is for.
        drawn: the values of each candidate, and the one beyond whose edge it lies; None for those that were drawn.
        seeds: those that the suite reports.

    Reports what these groups cannot be tuned by.
    """
    given = {key: node.plain() for key, node in tune.value.items()}
    own, confirm = given.get("seeds", [CANDIDATES_SEED]), given.get("confirm") or []
    if both := sorted({*own, *confirm} & {*seeds}):
        problems.add(tune.named, f"tune: seed {both[0]} is the suite's own; candidates are tried on other seeds")
    if both := sorted({*own} & {*confirm}):
        problems.add(
            tune.at("confirm").mark,
            f"tune.confirm: seed {both[0]} is one that all candidates are tried on; name further seeds",
        )
    measured = [[ref["name"] for ref in group.settings["evaluation"]["metrics"]] for group in groups]
    metric = given.get("metric", measured[0][0])
    for group, metrics in zip(groups, measured, strict=True):
        if metric not in metrics:
            known = suggestion(metric, metrics, "there are")
            said = (tune.get("metric") or tune).mark
            problems.add(said, f"tune.metric: {shown(metric)} is not measured in {shown(group.scenario)}{known}")
            break
    without = [group.scenario for group in groups if not group.settings["evaluation"].get("validation")]
    if without:
        problems.add(
            tune.named,
            "tune: candidates are compared on validation examples, and scenario "
            f"{shown(without[0])} holds none out; say evaluation: {{validation: 0.1}} in defaults",
        )
    space = {key: value for key, value in given["space"].items() if key in drawn[0][0]}
    found = Tuning(space, [values for values, _ in drawn], own, metric, given.get("halving") or [])
    if not confirm:
        return found
    return replace(found, confirm=confirm, beyond=[beyond for _, beyond in drawn if beyond is not None])
