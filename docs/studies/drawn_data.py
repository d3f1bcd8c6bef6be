"""How much wider intervals of paired differences become where each seed draws its own data.

suite="suites/feature_skew.yaml --set backbone=micro_vit --set shuffle_capacities=true"
suite="$suite --method fedra --method inclusivefl --method head_only"
suite="$suite --seed 0 --seed 1 --seed 2 --seed 3 --seed 4 --seed 5"
fedbench run $suite --results fixed
fedbench run $suite --set data.draw=seed --results drawn
python docs/studies/drawn_data.py fixed drawn
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fedbench.report.leaderboards import leaderboards
from fedbench.results import load


def widths(folder: Path) -> dict[tuple[str, ...], float]:
    """By two methods, the width of the 95 % interval of their difference on the folder's one leaderboard."""
    (board,) = leaderboards(load([folder]))
    ends = {tuple(sorted((pair.method, pair.other))): (pair.ci_low, pair.ci_high) for pair in board.pairs}
    return {names: high - low for names, (low, high) in ends.items() if low <= high}


def ratios(fixed: Path, drawn: Path) -> Mapping[tuple[str, ...], float]:
    """By two methods, the width with drawn data over that with the same data for all seeds."""
    before, after = widths(fixed), widths(drawn)
    return {names: after[names] / before[names] for names in before.keys() & after.keys()}


if __name__ == "__main__":
    for names, ratio in sorted(ratios(*map(Path, sys.argv[1:3])).items()):
        print(f"{' and '.join(names)}: {ratio:.2f} times as wide")
