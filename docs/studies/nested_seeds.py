"""Whether paired differences hang on the seed modulo six, as they do where capacities are rotated: a permutation test.

    python docs/studies/nested_seeds.py results/reference
    python docs/studies/nested_seeds.py --simulate 1000

A group is a leaderboard with more than six seeds. Its statistic is the F of all paired differences together: squares
between the residues over squares within them, summed over pairs of methods (Anderson, A New Method for Non-Parametric
Multivariate Analysis of Variance, 2001). p is the share of permutations of the seeds with an F as large. Holm's
correction is over the groups of one kind: those in which clients have unequal sizes, and the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas

from fedbench.registry.registry import Registry
from fedbench.report.grouping import roles_of
from fedbench.report.leaderboards import Leaderboard, leaderboards
from fedbench.results import load
from fedbench.types import assignment

MODULO, PERMUTATIONS, LEVEL = 6, 10_000, 0.05


def differences(scores: Mapping[str, Mapping[int, float]]) -> tuple[np.ndarray, list[int]]:
    """(pairs, seeds) of every two methods, and the seeds that all have. scores: by method and seed."""
    seeds = sorted(set.intersection(*({*by_seed} for by_seed in scores.values())))
    values = np.array([[by_seed[seed] for seed in seeds] for by_seed in scores.values()])
    return np.array([one - other for one, other in combinations(values, 2)]), seeds


def statistics(d: np.ndarray, residues: np.ndarray) -> np.ndarray:
    """F (permutations,) of the differences d (pairs, seeds) grouped by residues (permutations, seeds)."""
    belongs = (residues[:, :, None] == np.unique(residues)).astype(float)  # (permutations, seeds, groups)
    sizes = belongs[0].sum(0)
    centred = d - d.mean(1, keepdims=True)
    sums = np.einsum("ps,nsg->npg", centred, belongs)
    between = (sums**2 / sizes).sum((1, 2))
    within = (centred**2).sum() - between
    return between / (len(sizes) - 1) / np.maximum(within / (d.shape[1] - len(sizes)), 1e-300)


def permuted_p(d: np.ndarray, seeds: Sequence[int], permutations: int = PERMUTATIONS) -> tuple[float, float]:
    """(F, p) of the grouping of seeds by their residue; the observed order is one of the permutations."""
    own, chance = np.array(seeds) % MODULO, np.random.default_rng(0)
    residues = np.stack([own, *(chance.permutation(own) for _ in range(permutations - 1))])
    found = statistics(d, residues)
    return float(found[0]), float(np.mean(found >= found[0] * (1 - 1e-9)))


def holm(p: Sequence[float]) -> list[float]:
    """p corrected for all of them (Holm 1979)."""
    found, most = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        most = max(most, min(1.0, (len(p) - rank) * p[i]))
        found[i] = most
    return found


def groups_in(folders: Sequence[Path]) -> pandas.DataFrame:
    """A row for each group of the results in these folders."""
    rows = []
    for folder in folders:
        results = load([folder])
        for board in leaderboards(results, roles=roles_of(results, Registry().catalogue.roles)):
            d, seeds = differences(board.by_seed) if len(board.contenders) > 1 else (np.empty(0), [])
            if len(seeds) > MODULO:
                rows.append(
                    (folder.name, board.place.scenario, board.place.backbone, _sizes(board), *permuted_p(d, seeds))
                )
    found = pandas.DataFrame(rows, columns=["folder", "scenario", "backbone", "sizes", "F", "p"])
    found["holm"] = found.groupby("sizes")["p"].transform(lambda p: holm(p.tolist()))
    return found.assign(found=found["holm"] <= LEVEL)


def _sizes(board: Leaderboard) -> str:
    """`unequal` where clients are given different sizes, in an order that hangs on the seed."""
    configs = [r.manifest["config"] for part in board.cells.values() for r in part if r.manifest]
    return "unequal" if any(len(set(values)) > 1 for one in configs for values in assignment(one).values()) else "equal"


def false_alarms(families: int, groups: int = 6, methods: int = 6, seeds: int = 10, permutations: int = 500) -> float:
    """The share of simulated families in which a grouping is found that is not there.

    Scores are a level of the seed that methods share, plus normal noise.
    """
    chance, alarms = np.random.default_rng(1), 0
    for _ in range(families):
        p = []
        for _ in range(groups):
            scores = chance.normal(size=seeds) + chance.normal(size=(methods, seeds))
            d, order = differences({str(i): dict(enumerate(row)) for i, row in enumerate(scores)})
            p.append(permuted_p(d, order, permutations)[1])
        alarms += min(holm(p)) <= LEVEL
    return alarms / families


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="a folder of suites' folders")
    parser.add_argument("--simulate", type=int, default=0, help="so many families of six groups without a grouping")
    asked = parser.parse_args()
    if asked.simulate:
        print(f"{100 * false_alarms(asked.simulate):.1f} % of {asked.simulate:,} families have a false alarm")
    if asked.results:
        print(groups_in(sorted({index.parent for index in asked.results.glob("*/index.json")})).to_string(index=False))
