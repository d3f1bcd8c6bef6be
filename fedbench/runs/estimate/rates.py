"""What the parts of a cell take, and which cells take the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbench.disk import hash_of_json
from fedbench.runs.plan import Cell
from fedbench.types import SIZES

# Cells that differ in no more than this are of one kind: a FLOP of training and a test image take as long in each.
SAME_SPEED = ("seed", *SIZES, "devices", "fit", "participation", "faults", "evaluation")
SAME_SPEED_IN = {"train": ("rounds", "local_epochs", "max_steps"), "data": ("partition", "proxy")}


@dataclass(frozen=True)
class Rates:
    """Seconds of a cell's parts on one machine.

    start: from the start of its process to the first round, and to make features that are kept · per_round: of a round,
    beside its training steps · per_flop: of training · per_evaluation: of an evaluation, beside its images · per_image:
    of a test · train_share, test_share: what the process with most to do has of either, where several compute a cell
    together.
    """

    start: float
    per_round: float
    per_flop: float
    per_evaluation: float
    per_image: float
    train_share: float = 1.0
    test_share: float = 1.0

    def seconds(self, rounds: int, totals: Mapping[str, Any]) -> float:
        """Of a cell with these totals, see `Ledger.totals`."""
        training = self.train_share * totals["flops"] * self.per_flop
        testing = self.test_share * totals["tested"] * self.per_image
        return self.start + rounds * self.per_round + training + totals["evaluations"] * self.per_evaluation + testing


def kind(config: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Equal for cells of one kind; versions: those of the packages that compute them."""
    differing = {key: value for key, value in config.items() if key not in SAME_SPEED}
    for section, same in SAME_SPEED_IN.items():
        differing[section] = {key: value for key, value in config[section].items() if key not in same}
    differing["train"]["optimizer"] = config["train"]["optimizer"]["name"]
    return hash_of_json([differing, versions])[:24]


def kind_of(cell: Cell) -> str:
    return kind(cell.config, cell.versions)
