"""A client on its own machine: its examples, the model in shape alone, and the sequential engine."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from safetensors.torch import save as file_of
from torch import Tensor

from fedbench.deployment import wire
from fedbench.disk import write_atomically
from fedbench.engine import sequential
from fedbench.errors import UserError, summary_of, text_of
from fedbench.method import Setup
from fedbench.models.backbone import in_layers
from fedbench.models.param_paths import matches
from fedbench.models.tokens import over_tokens
from fedbench.registry.registry import Registry, dataset_of
from fedbench.seeding import generator
from fedbench.simulation.provenance import other_versions
from fedbench.simulation.simulation import Simulation, source_of
from fedbench.types import CLASSIFICATION, Clients, Dataset, Images, Objective, Splits, Texts


class Node:
    """What answers the server's messages; of equal ones in the same way, since Flower may deliver one twice.

    Attributes:
        folder: where frozen weights are kept that are sent once.
        examples: its own.
        plugins: files of third-party components that cells may name.
    """

    def __init__(self, folder: Path, examples: Examples, plugins: Sequence[str] = ()) -> None:
        self.folder, self.examples, self.plugins = folder, examples, list(plugins)
        self.cells: dict[str, _Cell] = {}

    def answer(self, content: bytes) -> bytes:
        """What a message is answered with; a failure is told the server in words."""
        began = time.perf_counter()
        try:
            facts, tensors = wire.unpacked(content)
            if facts["kind"] == "echo":
                return content
            if facts["kind"] == "describe":
                return wire.packed(self.examples.described(facts["data"], self._registry()), {})
            found, sent = self._train(facts, tensors)
            return wire.packed({**found, "node_seconds": time.perf_counter() - began}, sent)
        except UserError as error:
            return wire.packed({"refused": text_of(error)}, {})
        except Exception as error:  # the server takes it for a lost upload
            return wire.packed({"error": summary_of(error)}, {})

    def _registry(self) -> Registry:
        return Registry(self.plugins, in_place=True)

    def _train(self, facts: wire.Facts, tensors: dict[str, Tensor]) -> tuple[wire.Facts, dict[str, Tensor]]:
        id = facts["cell"]
        if id not in self.cells:
            if "about" not in facts:
                return {"lacks": True}, {}
            self.cells = {id: _Cell(id, facts["about"], self.examples, self._registry())}  # the last one alone
            for other in (self.folder / "frozen").glob("*"):
                if other.name != id:
                    shutil.rmtree(other, ignore_errors=True)
        cell, kept = self.cells[id], self.folder / "frozen" / id
        weights = {name.removeprefix(wire.FROZEN): w for name, w in tensors.items() if name.startswith(wire.FROZEN)}
        if (hashes := facts.get("hashes")) is not None:
            for name, value in weights.items():
                kept.mkdir(parents=True, exist_ok=True)
                write_atomically(kept / f"{hashes[name]}.safetensors", file_of({"weight": value}))
            there = {name: kept / f"{hash}.safetensors" for name, hash in hashes.items() if name not in weights}
            if not all(file.is_file() for file in there.values()):
                return {"lacks": True}, {}
            weights |= {name: load_file(file)["weight"] for name, file in there.items()}
        return cell.train(facts, tensors, weights)


class _Cell:
    """A cell as far as a client has it: the configuration, everyone's sizes and domains, and its own examples."""

    def __init__(self, id: str, about: Mapping[str, Any], examples: Examples, registry: Registry) -> None:
        config = about["config"]
        if differ := other_versions(about, registry):
            raise UserError(f"this node has other versions than the server: {differ}")
        metric = "accuracy" if about["task"] == CLASSIFICATION else "nll"  # it tests nothing
        evaluation = {**config["evaluation"], "by": "domain", "sizes": False, "metrics": [{"name": metric}]}
        evaluation.pop("validation", None)  # what is held out is not among the examples any more
        config = {**config, "evaluation": evaluation}
        source = source_of(config, registry, load=False)
        sizes, domains = (np.array(about[key], dtype=np.int64) for key in ("sizes", "domains"))
        clients = Clients(domains, sizes, np.concatenate([np.arange(size) for size in sizes]))  # others' are never read
        made: list[Setup] = []

        def setup(**given: Any) -> Setup:
            made.append(Setup(**given))
            return made[-1]

        self.simulation = Simulation(
            config,
            registry,
            source=source,
            dataset=examples.dataset(id, config, about, registry, source.image_size),
            clients=clients,
            setup=setup,
            fitting=bool(config.get("devices")),
        )
        self.model, self.setup = in_layers(self.simulation.model), made[0]
        self.objective = functools.cache(self._objective)

    def _objective(self, ref: str) -> Objective:
        """The component that a reference, as JSON, names; over tokens where those are predicted."""
        made: Objective = self.setup.component("objective", json.loads(ref))
        return over_tokens(made) if self.model.predicts_tokens else made

    def train(
        self, facts: wire.Facts, tensors: wire.Tensors, weights: wire.Tensors
    ) -> tuple[wire.Facts, dict[str, Tensor]]:
        """The client's part of a round. weights: the frozen ones that it holds."""
        here, model = self.simulation.federation, self.model
        with torch.no_grad():
            for name, parameter in wire.frozen_weights(model, facts["layers"]).items():
                parameter.copy_(weights[name])
        t, client = facts["t"], facts["client"]
        batches = here.batches(t, client, here.in_order(t, client))
        objective = self.objective(json.dumps(facts["objective"]))
        start, plan, cohort, job = wire.round_of(model, facts, tensors, self._drawn(facts), objective, batches)
        began, cpu = time.perf_counter(), time.process_time()
        with self.simulation.precision():
            uploads = sequential.train(model, start, plan, cohort, job)
        if privacy := self.simulation.privacy:
            uploads = privacy.of_clients(uploads, start, plan, cohort, t)
        took = {"train_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        return took, wire.answer_of(uploads, start, plan, cohort, job)

    def _drawn(self, facts: wire.Facts) -> dict[str, Tensor]:
        """The tensors that a client draws itself: before the first round, and in this one."""
        found: dict[str, Tensor] = {}
        seed = facts["seed"]
        draws = {"fixed": (seed, -1, -1, "init"), "fresh": (seed, facts["t"], facts["client"], "adapters")}
        for key, draw in draws.items():
            if facts[key]:
                self.model.draw(generator(*draw))
                own = self.model.trained().items()
                found |= {place: value.detach().clone() for place, value in own if matches(place, facts[key])}
        return found


OF_TEXTS = ("text", "completion", "choices")  # what of texts is strings


class Examples:
    """What is in a node's folder: a file for each cell that was dealt to it, or any data set that takes a `root`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deal(self, cell: str, own: Images | Texts) -> None:
        """Put the examples there that the node has in a cell."""
        texts = {name: getattr(own, name) for name in OF_TEXTS} if isinstance(own, Texts) else None
        tensors = {"y": torch.from_numpy(own.y), "domain": torch.from_numpy(own.domain)}
        if isinstance(own, Images):
            tensors["x"] = torch.from_numpy(np.ascontiguousarray(own.x))
        write_atomically(self._file(cell), wire.packed({"texts": texts}, tensors))

    def _file(self, cell: str) -> Path:
        return self.folder / f"{cell}.examples"

    def dataset(
        self, cell: str, config: Mapping[str, Any], about: Mapping[str, Any], registry: Registry, image_size: int
    ) -> Dataset:
        """The node's examples as the training split of a data set.

        Raises UserError where they are not of the classes that the server has.
        """
        file = self._file(cell)
        own = _dealt(file) if file.is_file() else self._own(config["data"], about["classes"], registry, image_size)
        if len(own) != about["sizes"][about["client"]]:
            raise UserError(f"{self.folder}: {len(own)} examples, not {about['sizes'][about['client']]} as it was said")
        names = tuple(about["domain_names"]), tuple(about["classes"])
        splits = Splits(own, part_of(own, np.arange(1)))  # nodes test nothing, and one example stands for those tested
        return Dataset(*names, "", lambda: splits, texts=isinstance(own, Texts), task=about["task"])

    def described(self, data: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
        """What the server is told of a data set of the node's own: how many examples it has for training, of which
        domain, their fingerprint, and the names of its classes. data: the `data` section of a configuration."""
        dataset = self._dataset(data, registry, 224)
        train = (dataset.outline or dataset.load)().train
        domains = np.unique(train.domain)
        return {
            "examples": len(train),
            "domain": dataset.domains[int(domains[0])] if len(domains) == 1 else "",
            "fingerprint": dataset.fingerprint,
            "classes": list(dataset.classes),
        }

    def _dataset(self, data: Mapping[str, Any], registry: Registry, image_size: int) -> Dataset:
        if "root" not in data:
            raise UserError(f"the data set {data['name']!r} has no `root`, so that no node can have one of its own")
        return dataset_of({**data, "root": str(self.folder)}, registry, image_size)

    def _own(self, data: Mapping[str, Any], classes: list[str], registry: Registry, image_size: int) -> Images | Texts:
        dataset = self._dataset(data, registry, image_size)
        if unknown := [name for name in dataset.classes if name not in classes]:
            raise UserError(f"{self.folder}: the server knows no class {unknown[0]!r}; it has {', '.join(classes)}")
        train = dataset.load().train
        as_server = np.array([classes.index(name) for name in dataset.classes], dtype=np.int64)
        return replace(train, y=as_server[train.y], domain=np.full(len(train), 0, dtype=np.int64))


def _dealt(file: Path) -> Images | Texts:
    facts, tensors = wire.unpacked(file.read_bytes())
    y, domain = tensors["y"].numpy(), tensors["domain"].numpy()
    if facts["texts"] is None:
        return Images(tensors["x"].numpy(), y, domain)
    texts: dict[str, Any] = {name: _strings(values) for name, values in facts["texts"].items()}
    return Texts(y=y, domain=domain, **texts)


def _strings(values: list[Any] | None) -> list[Any] | None:
    """Strings, or pairs or lists of them, as they were before they were JSON."""
    return values and [value if isinstance(value, str) else tuple(value) for value in values]


def part_of(train: Images | Texts, indices: np.ndarray) -> Images | Texts:
    """The examples at these positions."""
    if isinstance(train, Texts):
        return train.at(indices)
    return Images(train.x[indices], train.y[indices], train.domain[indices])
