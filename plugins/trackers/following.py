"""What trackers share: the numbers of a round, the parameters of a cell, and one report of a tracker's fault."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.results.packed_tables import suite_folder_of

Rows = Sequence[Mapping[str, Any]]
REPORT = "report.html"
COUNTED = ("bytes_down", "bytes_up", "flops", "steps", "examples")
WELL = ("finished", "not_applicable", "halved")  # how a cell ends that is no failure
PARAMETERS = ("config", "versions", "fingerprints", "machine")


class ReportedOnce:
    """Decorator of a tracker's hooks: the first exception is reported, and no hook is called in this process after it.

    A cell, and a run, go on as if there were no tracker.
    """

    def __init__(self, tracker: str) -> None:
        self.tracker, self.off = tracker, False

    def __call__(self, hook: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(hook)
        def called(*given: Any) -> None:
            if self.off:
                return
            try:
                hook(*given)
            except Exception as error:
                self.off = True
                reason = (str(error).splitlines() or [""])[0]
                print(
                    f"tracker {self.tracker}: it follows this run no more ({type(error).__name__}: {reason:.300}); "
                    "results are not affected",
                    file=sys.stderr,
                )

        return called


def of_round(rows: Rows, evaluation: Rows) -> dict[str, float]:
    """The numbers of a round by name: sums over clients, mean training `loss`, `clients` and how many `arrived`.

    After a test also the average of each metric over domains or clients (`accuracy`; of a loss `test_loss`), that of
    each domain (`accuracy/solid`), and the same on validation images (`validation/accuracy`). What is no number is left
    out.
    """
    found: dict[str, float] = {name: float(sum(row[name] for row in rows)) for name in COUNTED if rows}
    losses = [row["loss"] for row in rows if math.isfinite(row["loss"])]
    if losses:
        found["loss"] = sum(losses) / len(losses)
    found["clients"], found["arrived"] = float(len(rows)), float(sum(row["arrived"] for row in rows))
    values: dict[str, dict[str, list[float]]] = {}
    for row in evaluation:
        name = row["metric"] if row["split"] == "test" else f"{row['split']}/{row['metric']}"
        values.setdefault("test_loss" if name == "loss" else name, {}).setdefault(row["domain"], []).append(
            row["value"]
        )
    for name, domains in values.items():
        every = [value for of_domain in domains.values() for value in of_domain]
        found[name] = sum(every) / len(every)
        if len(domains) > 1:
            found |= {f"{name}/{domain}": sum(some) / len(some) for domain, some in domains.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def parameters(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The manifest as flat texts: `config.train.rounds`, `versions.torch`, `id`."""
    found = {"id": str(manifest["id"])}
    for part in PARAMETERS:
        if manifest.get(part):
            found |= dict(_flat(manifest[part], part))
    return found


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}")
    else:
        yield name, value if isinstance(value, str) else repr(value)


def named(folder: str) -> tuple[Path, str]:
    """The folder of the suite that a cell's folder is of, and what the cell is called."""
    return suite_folder_of(Path(folder)), Path(folder).name


def report(folder: str) -> str:
    """The page of `fedbench report` on a suite's folder."""
    from fedbench.report.html.page_file import whole_page  # workers have no need of it

    return whole_page([folder])[0]
