"""Which candidate of a tuning wins: a function of the validation scores of its cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results.columns import GIVEN_UP, HALVED
from fedbench.results.files import checked_table, has_table
from fedbench.results.manifest import read_manifest
from fedbench.results.metric_direction import VALIDATION, higher_is_better, without_noise
from fedbench.results.scores import average, by_round, evaluated_rounds

Key = tuple[str, str, str]  # scenario, variant, method


@dataclass(frozen=True)
class Contest:
    """The candidates of one method in one scenario at one place of the sweep.

    cells: the folders of each candidate's cells, one for each seed · rungs: the rounds after which the better half goes
    on, and the last round; none where no cell has begun, so that nothing on disk says them. What it says is a function
    of what is on disk when it is first asked.
    """

    key: Key
    metric: str
    rungs: tuple[int, ...]
    cells: Mapping[int, Sequence[Path]]

    @cached_property
    def scores(self) -> dict[int, dict[int, float]]:
        """By candidate, by round: the mean over seeds of the validation score, as far as all seeds have come; nothing
        for one of which a cell has failed."""
        return {k: _of_all(folders, self.metric) for k, folders in self.cells.items()}

    def entrants(self, rung: int) -> list[int]:
        """The candidates that train up to that rung, in their order: all of them, then the better half of those before,
        rounded up, by their scores at the rung below. One without a score goes no further."""
        alive = list(self.cells)
        for t in self.rungs[:rung]:
            alive = sorted(self.ranked(alive, t)[: math.ceil(len(alive) / 2)])
        return alive

    @property
    def winner(self) -> int | None:
        """The best after the last round; of equal ones the first. The first of all where the method is not applicable,
        which no choice of the winner changes; None where none has come so far."""
        if not self.rungs:
            return None
        ranked = self.ranked(self.entrants(len(self.rungs) - 1), self.rungs[-1])
        if ranked:
            return ranked[0]
        return next(iter(self.cells)) if self.not_applicable else None

    def ranked(self, candidates: Sequence[int], t: int) -> list[int]:
        """Those that have a score after round t, the best first; of equal ones the first."""
        sign = 1 if higher_is_better(self.metric) else -1
        known = {k: sign * without_noise(self.scores[k][t]) for k in candidates if t in self.scores[k]}
        return sorted(known, key=lambda k: (-known[k], k))

    @property
    def not_applicable(self) -> bool:
        """Whether no candidate can be tried, because the scenario is none for the method."""
        manifests = [read_manifest(folder) for folders in self.cells.values() for folder in folders]
        return all(manifest is not None and manifest["status"] == "not_applicable" for manifest in manifests)


def rungs_of(config: Mapping[str, Any], halving: Sequence[float]) -> tuple[int, ...]:
    """The rounds after which candidates of this configuration are halved, and its last round. For each share of the
    rounds it is the first tested round that is not before it."""
    T, evaluation = config["train"]["rounds"], config["evaluation"]
    tested = sorted(evaluated_rounds(T, evaluation["every"], evaluation.get("at")))
    after = {next(t for t in tested if t >= share * T - 1e-9) for share in halving}
    return (*sorted(after - {T}), T)


def _of_all(folders: Sequence[Path], metric: str) -> dict[int, float]:
    seeds = [validated(folder, metric) for folder in folders]
    common = set.intersection(*map(set, seeds)) if seeds else set()
    return {t: sum(one[t] for one in seeds) / len(seeds) for t in sorted(common)}


def validated(folder: Path, metric: str) -> dict[int, float]:
    """The validation score of one cell by round; without those that are no number. Nothing where it has failed, or
    not come to a test. Raises: UserError where its table is not as it was written."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["status"] in GIVEN_UP or not has_table("eval", folder, manifest):
        return {}
    found = {t: average(v) for t, v in by_round(checked_table("eval", folder, manifest), metric, VALIDATION).items()}
    if not found and manifest["status"] in ("finished", HALVED):
        raise UserError(f"{folder}: its candidate was scored on no validation images of {metric!r}.")
    return {t: value for t, value in found.items() if math.isfinite(value)}
