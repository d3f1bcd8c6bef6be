"""A cell at work: a method in a scenario with one seed, from its resolved configuration to its rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.backbone import Blocks, Source
from fedbench.data import dataset_of
from fedbench.engine.cohort import train as train_together
from fedbench.engine.kernels import Fast
from fedbench.engine.sequential import train as train_one_by_one
from fedbench.federation import NORMALIZE, Federation, Pixels
from fedbench.method import Method, Predict
from fedbench.plugins import Plugins
from fedbench.seeding import generator, numpy_generator, seed_of
from fedbench.types import Dataset, Report, Setup

# An engine, and the kernels that everything in a cell runs on with it.
ENGINES = {"sequential": (train_one_by_one, nullcontext), "cohort": (train_together, Fast)}
EVALUATIONS = 5  # about how often over a run, where the suite does not say

Config = Mapping[str, Any]
Rows = list[dict[str, Any]]


class Diverged(Exception):
    """A training loss that is no number any more."""


class Trial:
    """One cell, built and ready to run: its method, its federation and its test images.

    `run` is the life of a cell; `round_rows` and `evaluate` say what is recorded.
    """

    def __init__(
        self,
        config: Config,
        plugins: Plugins,
        device: str = "cpu",
        source: Source | None = None,
        dataset: Dataset | None = None,
    ) -> None:
        """device `meta` builds shapes alone, for `totals` · source, dataset: where they are made already, the
        source for this trial alone. Raises UserError, NotApplicable."""
        self.config, self.seed, self.rounds = config, config["seed"], config["train"]["rounds"]
        self.device = device
        self.engine, self.kernels = ENGINES[config["engine"]]
        source = source or self._source(plugins)
        self.dataset = dataset or dataset_of(config["data"], plugins, source.image_size)
        splits = self.dataset.load()
        mean, std = NORMALIZE.get(config["data"]["normalize"], (source.mean, source.std))
        self.test = Pixels(splits.test, mean, std, device)
        partition = plugins.make("partition", config["data"]["partition"])
        draw = numpy_generator(self.seed, use="partition")
        clients = partition(splits.train.y, splits.train.domain, len(self.dataset.domains), draw)
        blocks = Blocks(source.model, origin=json.dumps([config["backbone"], config["adapter"]], sort_keys=True))
        self.federation = Federation(config, clients, blocks.num_layers, Pixels(splits.train, mean, std, device))
        self.method = self._method(blocks, plugins, image_size=splits.test.x.shape[-1])
        self.metrics = {ref["name"]: plugins.make("metric", ref) for ref in config["evaluation"]["metrics"]}

    def _source(self, plugins: Plugins) -> Source:
        with torch.random.fork_rng(devices=[]):  # `pretrained: false` draws its weights here
            torch.manual_seed(seed_of(self.seed, use="backbone"))
            return plugins.make("backbone", self.config["backbone"], load=self.device != "meta")

    def _method(self, blocks: Blocks, plugins: Plugins, image_size: int) -> Method:
        def component(kind: str, ref: Any) -> Any:
            if callable(ref):
                return ref
            return plugins.make(kind, {"name": ref} if isinstance(ref, str) else ref, setup=setup)

        setup = Setup(
            backbone=blocks,
            adapter=plugins.make("adapter", self.config["adapter"]),
            engine=self.engine,
            scenario=self.federation.scenario,
            train=self.config["train"],
            num_classes=len(self.dataset.classes),
            image_size=image_size,
            seed=self.seed,
            component=component,
            device=self.device,
            profile=self.config["profile"],
        )
        return plugins.make("method", self.config["method"], setup=setup)

    def run(self, on_round: Callable[[int, Rows], None] = lambda t, rows: None) -> tuple[Rows, Rows]:
        """All rounds; returns the rows of eval.parquet and of rounds.parquet. Raises Diverged."""
        evaluation: Rows = []
        rounds: Rows = []
        due = evaluated_rounds(self.rounds, self.config["evaluation"]["every"])
        with self.kernels(), torch.autocast(self.device, torch.bfloat16, enabled=self.config["precision"] == "bf16"):
            state = self.method.init(generator(self.seed, use="init"))
            for t in range(self.rounds):
                cohort = self.federation.cohort(t)
                state, report = self.method.round(state, t, cohort, generator(self.seed, t, use="round"))
                rows = self.round_rows(t, report)
                rounds += rows
                if t + 1 in due:
                    evaluation += self.evaluate(t + 1, self.method.predictor(state))
                on_round(t + 1, rows)
        return evaluation, rounds

    def totals(self) -> dict[str, int]:
        """What all rounds together will cost, known beforehand because every draw is seeded."""
        totals = dict.fromkeys(("client_rounds", "images", "flops", "bytes_down", "bytes_up"), 0)
        for t in range(self.rounds):
            cohort = self.federation.cohort(t)
            for n, client in enumerate(cohort.ids):
                cost = self.method.cost(int(cohort.capacities[n]))
                if cost is None:
                    continue
                images = self.federation.images(client, int(cohort.steps[n]))
                totals["client_rounds"] += 1
                totals["images"] += images
                totals["flops"] += images * cost.flops_per_image
                totals["bytes_down"] += cost.bytes_down
                totals["bytes_up"] += cost.bytes_up
        return totals

    def round_rows(self, t: int, report: Report) -> Rows:
        """One row for each client of a round; rounds are counted from 1, and `layers` are those whose adapters
        it trains."""
        rows = []
        up, cohort = report.uploads, report.cohort
        for n, client in enumerate(cohort.ids):
            cost, loss = report.cost[n], float(up.loss[n])
            if up.arrived[n] and not math.isfinite(loss):
                raise Diverged(f"the training loss of client {client} in round {t + 1} is {loss}")
            images = self.federation.images(client, int(up.steps[n]))
            rows.append(
                {
                    "round": t + 1,
                    "client": client,
                    "domain": self.dataset.domains[self.federation.clients[client].domain],
                    "capacity": int(cohort.capacities[n]),
                    "layers": [j for j in report.plan.M[n].nonzero().flatten().tolist() if up.r[j]],
                    "examples": int(cohort.num_examples[n]),
                    "steps": int(up.steps[n]),
                    "arrived": bool(up.arrived[n]),
                    "loss": loss,
                    "bytes_down": cost.bytes_down,
                    "bytes_up": cost.bytes_up,
                    "flops": cost.flops_per_image * images,
                    "memory_bytes": cost.memory_bytes,
                    "seconds": float(up.seconds[n]),
                }
            )
        return rows

    @torch.no_grad()
    def evaluate(self, t: int, predict: Predict) -> Rows:
        """Every metric on every domain's test images, for the global model (client -1)."""
        rows = []
        for d, domain in enumerate(self.dataset.domains):
            indices = np.flatnonzero(self.test.images.domain == d)
            outputs, y = self._logits(predict, indices)
            for i, (output, logits) in enumerate(outputs.items()):
                for metric, score in self.metrics.items():
                    rows.append(
                        {
                            "round": t,
                            "split": "test",
                            "domain": domain,
                            "client": -1,
                            "metric": metric if i == 0 else f"{metric}/{output}",
                            "value": float(score(logits, y)),
                            "examples": len(indices),
                        }
                    )
        return rows

    def _logits(self, predict: Predict, indices: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        """The outputs (n, C) by name, the method's own answer first, and the labels (n,), on the CPU."""
        size = self.config["evaluation"]["batch_size"]
        parts: dict[str, list[Tensor]] = {}
        labels = []
        for first in range(0, len(indices), size):
            x, y = self.test(indices[first : first + size])
            logits = predict(x)
            for name, value in (logits if isinstance(logits, Mapping) else {"": logits}).items():
                parts.setdefault(name, []).append(value.float().cpu())
            labels.append(y.cpu())
        return {name: torch.cat(values) for name, values in parts.items()}, torch.cat(labels)


def evaluated_rounds(rounds: int, every: int | None) -> set[int]:
    """The rounds (from 1) after which the model is tested: the last, and each `every`-th before it (default: a
    fifth of the run)."""
    step = every or max(1, rounds // EVALUATIONS)
    return set(range(rounds, 0, -step))
