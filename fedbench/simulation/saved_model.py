"""The model of a finished cell: saved in the cell's folder, and loaded from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench.errors import NotApplicable, UserError, summary_of
from fedbench.method import Predict
from fedbench.registry.catalogue import references
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest
from fedbench.results.files import TENSORS, fault
from fedbench.simulation.cell_job import config_of
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import STRUCTURE, load, save
from fedbench.types import CLASSIFICATION, Clients, Dataset, Images, Splits, Texts
from fedbench.words import shortened

OF_IMAGES = ("dataset", "partition")  # kinds of components that are not read where images are not
AGAIN = "Run the suite again with --force: the cell is computed again."


def keep(folder: Path, simulation: Simulation) -> None:
    """Write what a simulation that has run leaves into its cell's folder: see `fedbench.simulation.state.save`.

    `method` is its last state, `world` what the method was built from in addition to the configuration: enough to build
    it where the images are not.
    """
    clients = simulation.federation.clients
    world: dict[str, Any] = {
        "classes": list(simulation.dataset.classes),
        "domains": list(simulation.dataset.domains),
        "image_size": simulation.federated.train.size,
        "clients": {"domain": torch.tensor(clients.domains), "examples": torch.tensor(clients.sizes)},
    }
    if simulation.dataset.task != CLASSIFICATION:
        world["task"] = simulation.dataset.task
    save(folder, {"method": simulation.state, "world": world})


def reopen(folder: str | Path, registry: Registry, *, images: bool = True) -> tuple[Simulation, Predict]:
    """The simulation of a finished cell with its last `state`, and its global model: predict(x (B, 3, H, W)) as
    `Method.predictor` gives it.

    images: False builds the same model where the data set is not; all images of such a simulation are blank. The
    model answers in float32 outside of the simulation's engine: its logits are those of the run up to rounding.
    Raises UserError where the cell is not finished or has no state, and where its plugins, weights or images
    are not there or not the same.
    """
    folder = Path(folder)
    manifest = _finished(folder)
    try:
        simulation = _rebuilt(folder, manifest, registry, images)
        return simulation, simulation.method.predictor(simulation.state)
    except UserError:
        raise
    except NotApplicable as reason:  # of a method that is not itself without its images
        raise UserError(f"{folder}: {reason}") from reason
    except Exception as error:  # of a plugin whose code has changed since, or where somebody has edited a file
        method = manifest["config"].get("method", {}).get("name")
        raise UserError(
            f"{folder}: its state does not fit the method {method!r}: {summary_of(error)}.\n{AGAIN}"
        ) from error


def _rebuilt(folder: Path, manifest: Mapping[str, Any], registry: Registry, images: bool) -> Simulation:
    """The simulation of a finished cell with its last state."""
    kept = load(folder)
    config = config_of(manifest)
    _same_files(folder, manifest, registry, images)
    facts = CachedFacts(registry, in_place=True)
    source = facts.backbone(config["backbone"])
    dataset = facts.dataset(config["data"], source["image_size"]) if images else _blank(kept["world"], source["texts"])
    now = {"weights": source["fingerprint"], "data": dataset.fingerprint}
    _same_prints(folder, manifest["fingerprints"], now if images else {"weights": now["weights"]})
    if not images:  # nor are there any to be dealt to clients
        config = {**config, "evaluation": {**config["evaluation"], "by": "domain"}}
    clients = None if images else _clients(kept["world"])
    simulation = Simulation(config, registry, dataset=dataset, clients=clients)
    simulation.state = kept["method"]
    return simulation


def _finished(folder: Path) -> dict[str, Any]:
    """The manifest of a finished cell that has a state. Raises UserError."""
    manifest = read_manifest(folder)
    if manifest is None:
        near = folder if folder.is_dir() else folder.parent
        cells = sorted(file.parent.name for file in near.glob(f"*/{TENSORS}"))
        there = f"In {near} there are {shortened(cells, 8)}." if cells else ""
        raise UserError(
            f"{folder}: not the folder of a cell (it has no manifest.json). "
            + (there or "Wanted is a folder in that of a suite, such as results/quickstart/cells/4534df823ed3.")
        )
    if manifest["status"] != "finished":
        raise UserError(
            f"{folder}: this cell is {manifest['status']}; only a finished one has a model. `fedbench run` of its "
            "suite runs it (with --retry-failed where it failed)."
        )
    if not (folder / STRUCTURE).is_file():
        raise UserError(
            f"{folder}: no {STRUCTURE}: the fedbench that computed this cell kept no model, or it was deleted.\n{AGAIN}"
        )
    for name, facts in manifest.get("files", {}).items():
        if name in (STRUCTURE, TENSORS) and (wrong := fault(folder / name, facts, None)):
            raise UserError(f"{folder / name}: {wrong}.\n{AGAIN}")
    return manifest


def _same_files(folder: Path, manifest: Mapping[str, Any], registry: Registry, images: bool) -> None:
    """Plugins given by --plugin must be given again, and be the same files; without images those of the data set and
    the partition need not."""
    known = registry.catalogue.components
    read = [(kind, ref["name"]) for kind, ref in references(manifest["config"]) if images or kind not in OF_IMAGES]
    lacking = any(name not in known[kind] for kind, name in read)
    files = {registry.label(known[kind][name].plugin) for kind, name in read if name in known[kind]}
    for name, version in manifest["versions"].items():
        if not version.startswith("sha256:"):
            continue
        if name not in registry.files and lacking:
            raise UserError(f"{folder}: this cell was computed with the plugin {name}; name that file with --plugin.")
        if name in registry.files and name in files and registry.version(name) != version:
            raise UserError(f"{folder}: {registry.files[name]} has changed since this cell was computed.\n{AGAIN}")


def _same_prints(folder: Path, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    if changed := [what for what in now if then[what] != now[what]]:
        changes = "; ".join(f"{what}: then {then[what]}, now {now[what]}" for what in changed)
        raise UserError(f"{folder}: what this cell was computed from has changed. {changes}.\n{AGAIN}")


def _blank(world: Mapping[str, Any], texts: bool) -> Dataset:
    """The data set's facts, and one black image or empty text for each split."""
    one = (Texts if texts else Images).blank(np.zeros(1, np.int64), np.zeros(1, np.int64), world["image_size"])
    names, task = (tuple(world["domains"]), tuple(world["classes"])), world.get("task", CLASSIFICATION)
    return Dataset(*names, "blank", lambda: Splits(one, one), texts=texts, task=task)


def _clients(world: Mapping[str, Any]) -> Clients:
    """The clients with as many examples as they had, which ones is not known."""
    domains, sizes = (world["clients"][fact].numpy() for fact in ("domain", "examples"))
    return Clients(domains, sizes, np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes))
