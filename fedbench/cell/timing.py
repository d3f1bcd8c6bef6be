"""A cell tried for a moment: how long its parts take on this machine, by its own engine, on random weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from fedbench.cell.clientstore import ClientStore
from fedbench.cell.evaluation import answered
from fedbench.cell.pixels import MADE_TOGETHER
from fedbench.cell.trial import Trial
from fedbench.cell.turns import source_of
from fedbench.engine.groups import ROWS, grouped
from fedbench.engine.shortcuts import fast
from fedbench.engine.team import dealt
from fedbench.models.backbone import in_layers
from fedbench.registry.registry import Registry
from fedbench.seeding import generator
from fedbench.types import Cohort

STEP_FLOPS = {"cpu": 1e11, "cuda": 2e13}  # about the most that a step of a probe may cost
FEW_STEPS = {"cpu": 1, "cuda": 3}  # of the shorter round; a GPU replays a step from the third on
MOST_STEPS = 16
SECONDS = 0.3  # about as long as the longer round should take, and the test

Config = Mapping[str, Any]
Result = TypeVar("Result")


def probe(
    config: Config, registry: Registry, device: str, totals: Mapping[str, int], processes: int = 1
) -> dict[str, float]:
    """The fields of `fedbench.runs.estimate.Rates`, measured.

    config: resolved; its weights are not read · totals: of that cell, see `Ledger.totals` · processes: how many would
    compute it together. Where a step would take long, fewer images are in its batches, then fewer clients in it. What
    clients keep is deleted at once: a process that is forked to probe ends without its finalizers.
    """
    with tempfile.TemporaryDirectory(prefix="fedbench-clients-", ignore_cleanup_errors=True) as folder:
        store = ClientStore(Path(folder))
        try:
            return _measured(config, registry, device, totals, processes, store)
        finally:
            store.close()


def _measured(
    config: Config, registry: Registry, device: str, totals: Mapping[str, int], processes: int, store: ClientStore
) -> dict[str, float]:
    clock = _clock(device)
    began = clock()
    source = source_of(config, registry, load=False)[0]
    trial = Trial(_smaller(config, totals, device), registry, device, source, store=store)
    with trial.precision():
        state = trial.method.init(generator(trial.seed, use="init"))
        cohort = _affordable(trial, STEP_FLOPS[device])
        _round(trial, state, cohort, FEW_STEPS[device])
        ready = clock() - began
        few, some = _round(trial, state, cohort, FEW_STEPS[device])
        start, made = max(0.0, ready - few), trial.train.features_made  # what the first round took longer is paid once
        steps = FEW_STEPS[device] + _steps_in(SECONDS, few / FEW_STEPS[device])
        if made:  # features of the longer round's images, before that is timed
            _round(trial, state, cohort, steps)
        more, many = _round(trial, state, cohort, steps)
        per_evaluation, per_image = _test(trial, state)
        start += _features(trial, min(totals["images"], len(trial.train.images)) - made)
    per_flop = (more - few) / (many - some) if many > some and more > few else more / max(many, 1)
    return {
        "start": start,
        "per_round": max(0.0, few - per_flop * some),
        "per_flop": per_flop,
        "per_evaluation": per_evaluation,
        "per_image": per_image,
        "train_share": longest_share(trial, config["train"]["batch_size"], min(processes, trial.shares)),
        "test_share": 1 / min(processes, trial.shares),
    }


def _smaller(config: Config, totals: Mapping[str, int], device: str) -> dict[str, Any]:
    """The configuration with batches that a probe can afford."""
    per_image = max(1, totals["flops"]) / max(1, totals["images"])
    together = max(1.0, totals["client_rounds"] / config["train"]["rounds"])

    def at_most(images: int, each: float) -> int:
        return max(1, min(images, int(STEP_FLOPS[device] / each)))

    train = {**config["train"], "batch_size": at_most(config["train"]["batch_size"], per_image * together)}
    evaluation = {**config["evaluation"], "batch_size": at_most(config["evaluation"]["batch_size"], per_image)}
    lossless = {key: value for key, value in config.items() if key != "faults"}  # lost clients would be few steps
    return {**lossless, "train": train, "evaluation": evaluation}


def _affordable(trial: Trial, flops: float) -> Cohort:
    """The clients of the first round that take part, the cheapest first, as many as a step of so many FLOPs has room
    for; one at least."""
    cohort = trial.federation.cohort(0)
    step = {
        n: cost.flops_per_image * trial.federation.images(cohort.ids[n], 1)
        for n, cost in enumerate(trial.method.prices(cohort, 0))
        if cost is not None
    }
    chosen, taken = list[int](), 0
    for n in sorted(step, key=step.__getitem__):
        if not chosen or taken + step[n] <= flops:
            chosen.append(n)
            taken += step[n]
    return cohort.only(sorted(chosen))


def _round(trial: Trial, state: dict[str, Any], cohort: Cohort, steps: int) -> tuple[float, int]:
    """Seconds and FLOPs of a round of at most so many steps."""
    short = replace(cohort, steps=cohort.steps.clamp(max=steps))

    def rows() -> list[dict[str, Any]]:
        _, report = trial.method.round(state, 0, short, generator(trial.seed, 0, use="round"))
        return trial.ledger.rounds(0, report)

    seconds, found = _timed(trial, rows)
    return seconds, sum(row["flops"] for row in found)


def _test(trial: Trial, state: dict[str, Any]) -> tuple[float, float]:
    """Seconds to make ready for an evaluation, and seconds a test image."""
    first = trial.evaluation.passes[0]
    images = trial.evaluation.images[first.split]
    with fast(trial.model) if trial.fast else nullcontext(), torch.no_grad():
        made, predict = _timed(trial, lambda: trial.method.predictor(state))
        _timed(trial, lambda: answered(predict, images, first.indices))
        once, _ = _timed(trial, lambda: answered(predict, images, first.indices))
        times = _steps_in(SECONDS, once)
        seconds, _ = _timed(trial, lambda: [answered(predict, images, first.indices) for _ in range(times)])
    return made, seconds / times / len(first.indices)


@torch.no_grad()
def _features(trial: Trial, to_train_on: int) -> float:
    """Seconds to make the features of so many images, and of those to test on, where they are kept: once for all rounds
    and tests."""
    test = trial.evaluation.test
    count = len(test.images) if test.features_made else 0
    if trial.train.features_made:
        count += max(0, to_train_on)
    if not count:
        return 0.0
    model, (x, _) = in_layers(trial.model), trial.train(np.arange(min(MADE_TOGETHER, len(trial.train.images))))
    with fast(trial.model) if trial.fast else nullcontext():
        _timed(trial, lambda: model.pooled(x))
        seconds, _ = _timed(trial, lambda: model.pooled(x))
    return seconds / len(x) * count


def _clock(device: str) -> Callable[[], float]:
    """On a CPU the time that this process, of one thread, has computed: what others do meanwhile is not in it."""

    def with_gpu() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return with_gpu if device == "cuda" else time.process_time


def _timed(trial: Trial, work: Callable[[], Result]) -> tuple[float, Result]:
    clock = _clock(trial.device)
    began = clock()
    result = work()
    return clock() - began, result


def _steps_in(seconds: float, each: float) -> int:
    return max(1, min(MOST_STEPS, int(seconds / max(each, 1e-6))))


def longest_share(trial: Trial, batch_size: int, processes: int) -> float:
    """What the process with most to do has of a round's training, where several compute the cell together: a group
    of clients is not split. The first round stands for all."""
    if processes == 1:
        return 1.0
    cohort, tokens = trial.federation.cohort(0), in_layers(trial.model).tokens(trial.evaluation.test.images.x.shape[-1])
    work, rows = [], []
    for n, cost in enumerate(trial.method.prices(cohort, 0)):
        if cost is not None:
            work.append(cost.flops_per_image * int(cohort.steps[n]))
            rows.append(min(batch_size, int(cohort.num_examples[n])) * tokens)
    groups = [sum(work[n] for n in group) for group in grouped(work, rows, ROWS)]
    members = dealt(groups, processes)
    loads = [sum(each for each, who in zip(groups, members, strict=True) if who == rank) for rank in range(processes)]
    return max(loads, default=0) / max(sum(groups), 1)
