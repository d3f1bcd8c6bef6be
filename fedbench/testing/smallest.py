"""A plugin with the smallest cell there is, which says that it was computed: what executors are checked with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fedbench import hookimpl
from fedbench.types import ClientCost, Dataset, Images, Splits

BROKE = "it broke, as it was to"


def squares(image_size: int) -> Dataset:
    """Two black and two white images in each of two domains."""
    y = np.arange(8) % 2
    x = np.broadcast_to((255 * y)[:, None, None, None], (8, 3, image_size, image_size)).astype(np.uint8)
    images = Images(x, y, np.arange(8) // 4)
    return Dataset(("one", "two"), ("black", "white"), f"squares-{image_size}", lambda: Splits(images, images))


def smallest_vit(load: bool = True) -> Any:
    """A ViT of two blocks for images of 8 x 8."""
    from fedbench.models.backbone import Source
    from fedbench.testing.world import tiny_vit

    return Source(tiny_vit(2, 4), 8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "smallest")


def noted(setup: Any, log: str = "", fault: str = "", spared: int = 0) -> Any:
    """A method that trains nothing. Where a cell begins it adds its process to the file `log`; its first round raises
    where `fault` is `raise`, and where that is `die` it ends the process, unless that is the `spared` one."""
    import torch

    from fedbench.method import Method
    from fedbench.types import Plan, Report, Uploads

    layers = setup.backbone.num_layers
    cost = ClientCost(flops_per_image=1, bytes_down=1, bytes_up=1, memory_bytes=1)

    def init(generator: torch.Generator) -> dict[str, Any]:
        with open(log, "a") as lines:
            lines.write(f"{os.getpid()}\n")
        return {"w": torch.zeros(setup.num_classes)}

    def round(state: Any, t: int, cohort: Any, generator: torch.Generator) -> Any:
        if fault == "die" and os.getpid() != spared:
            os._exit(7)
        if fault:
            raise RuntimeError(BROKE)
        none = torch.zeros(len(cohort))
        uploads = Uploads.of(cohort, [{} for _ in range(layers)], {}, none, none)
        plan = Plan(torch.zeros(len(cohort), layers, dtype=torch.bool), [[] for _ in cohort.ids])
        return {"w": state["w"] + 1}, Report(plan, cohort, uploads, [cost] * len(cohort))

    def predictor(state: Any, client: int | None = None) -> Any:
        return lambda x: x.flatten(1)[:, : setup.num_classes] * state["w"]

    return Method(init, round, predictor, lambda capacity, t: cost)


@hookimpl
def fedbench_register_datasets(register: Any) -> None:
    register("squares", squares)


@hookimpl
def fedbench_register_backbones(register: Any) -> None:
    register("smallest_vit", smallest_vit)


@hookimpl
def fedbench_register_methods(register: Any) -> None:
    register("noted", noted)
