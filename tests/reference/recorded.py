"""fedbench's own rounds of a tiny ViT on tiny images, in float64, and what passed between them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedbench.models.backbone import Source
from fedbench.simulation.batches import Pixels
from fedbench.simulation.simulation import Simulation
from fedbench.types import Dataset, Images, Splits

METHODS = ("fedra", "inclusivefl", "depthfl", "alllarge", "allsmall")
CAPACITIES = {"all": (12, 10, 8, 6, 4, 3), "some": (8, 4, 3, 2, 2, 1)}
EXAMPLES = (3, 7, 6, 4, 8, 2)  # of each client; the last has one batch, client 0 a short second one
CLASSES, SIDE, PATCH, DIM, HEADS, L, BATCH, ROUNDS = 3, 8, 4, 8, 2, 12, 2, 2
SEED = 10  # of three clients it draws 1, 2, 3 and then 0, 2, 4: once without client 0, never the smallest

Tensors = Mapping[str, Tensor]


@dataclass
class Ran:
    """Every state of a trial, the first one included; each round's cohort, M, steps and losses; the last answer."""

    states: list[Tensors]
    ids: list[list[int]]
    M: list[Tensor]
    steps: list[list[int]]
    losses: list[list[float]]
    answer: Tensor


def tiny_vit():
    """A timm ViT in which no parameter is 0 or 1, and whose final norm is so wide that some gradients are clipped."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=SIDE, patch_size=PATCH, embed_dim=DIM, depth=L, num_heads=HEADS, mlp_ratio=2.0, num_classes=0
        ).double()
        for name, parameter in model.named_parameters():
            parameter.data = 0.3 * torch.randn_like(parameter) + ("norm" in name and name.endswith("weight"))
        model.norm.weight.data *= 4
    return model


def pictures(seed: int, each: Sequence[int]) -> Images:
    """Random images and labels, so many of each domain."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 256, (sum(each), 3, SIDE, SIDE)).astype(np.uint8)
    return Images(x, draw.integers(0, CLASSES, sum(each)), np.repeat(np.arange(len(each)), each))


TRAIN, TEST = pictures(1, EXAMPLES), pictures(2, (2,) * len(EXAMPLES))


def in_double(config, registry) -> Simulation:
    """The trial of a resolved configuration, with the tiny ViT and the tiny images, in float64."""
    source = Source(tiny_vit(), SIDE, (0.5,) * 3, (0.5,) * 3, "tiny")
    dataset = Dataset(tuple("abcdef"), tuple("xyz"), "pictures", lambda: Splits(TRAIN, TEST))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.simulation.federated_data.Pixels", functools.partial(Pixels, dtype=torch.float64))
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of the adapters, which are made with the trial
        try:
            return Simulation(config, registry, source=source, dataset=dataset)
        finally:
            torch.set_default_dtype(usual)


def recorded(trial: Simulation) -> Ran:
    """Run it, and note what passes between its rounds."""
    method, states, reports = trial.method, [], []

    def init(draw):
        states.append(method.init(draw))
        return states[-1]

    def round(*of_a_round):
        state, report = method.round(*of_a_round)
        states.append(state)
        reports.append(report)
        return state, report

    trial.method = dataclasses.replace(method, init=init, round=round)
    trial.run()
    with torch.no_grad():
        answer = method.predictor(states[-1])(trial.evaluation.test(np.arange(len(TEST)))[0])
    return Ran(
        states=[flat(state) for state in states],
        ids=[list(report.cohort.ids) for report in reports],
        M=[report.plan.M for report in reports],
        steps=[report.uploads.steps.tolist() for report in reports],
        losses=[report.uploads.loss.tolist() for report in reports],
        answer=next(iter(answer.values())) if isinstance(answer, dict) else answer,
    )


def flat(state) -> Tensors:
    """What is trained, by timm's names: `blocks.0.attn.proj.lora_A`, `patch_embed.proj.lora_A`, `head.weight`."""
    layers = {f"blocks.{j}.{name}": value for j, r_j in enumerate(state["r"]) for name, value in r_j.items()}
    return layers | {name.removeprefix("model."): value for name, value in state["shared"].items()}
