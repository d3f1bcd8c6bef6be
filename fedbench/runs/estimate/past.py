"""Rates from what has run here before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

from fedbench.errors import UserError
from fedbench.results import read_manifest, read_rows
from fedbench.runs.estimate.rates import Rates, kind

MACHINE = ("device", "cpu", "gpu")  # two machines with these in common are taken to be equally fast


def past_rates(results: Path, kinds: Collection[str], machine: Mapping[str, Any]) -> dict[str, Rates]:
    """The rates of those kinds of which a cell has finished on such a machine, in any suite under `results`.

    machine: see `fedbench.machine.describe`. Of several cells the fastest counts, which others disturbed least. What
    cannot be read is passed over, and what was not computed but taken from another cell.
    """
    found: dict[str, Rates] = {}
    for file in sorted(results.glob("*/*/manifest.json")) if kinds else []:
        try:
            manifest = read_manifest(file.parent) or {}
            if (
                manifest.get("status") != "finished"
                or "computed_as" in manifest
                or not _alike(manifest["machine"], machine)
            ):
                continue
            which = kind(manifest["config"], manifest["versions"])
            rates = _rates(file.parent, manifest) if which in kinds else None
        except (UserError, KeyError, TypeError, AttributeError):
            continue
        if rates and (which not in found or astuple(rates) < astuple(found[which])):
            found[which] = rates
    return found


def _alike(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    return all(there.get(key) == here.get(key) for key in MACHINE)


def _rates(folder: Path, manifest: Mapping[str, Any]) -> Rates | None:
    """Training as its rounds were timed, all else counted as testing; None where several processes shared the cell,
    whose times overlap."""
    rounds, tested = read_rows(folder, "rounds"), read_rows(folder, "eval")
    training, flops = (sum(row[key] for row in rounds) for key in ("seconds", "flops"))
    images = sum(row["examples"] for row in tested if row["metric"] == tested[0]["metric"])
    rest = manifest["seconds"] - training
    if min(training, flops, images, rest) <= 0:
        return None
    return Rates(start=0.0, per_round=0.0, per_flop=training / flops, per_evaluation=0.0, per_image=rest / images)
