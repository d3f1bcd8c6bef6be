"""How fast the round could be: nothing but its necessary matrix products, at the best rate measured here."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from work import CLASSES, RANK, Work

from fedbench.machine import cores

SHAPE = (2048, 768, 768)  # rows, in, out: large enough for the peak, small enough for the caches


def necessary_flops(work: Work) -> int:
    """FLOPs (2 a multiply-add) of the round, with all work left out that changes no result.

    Forward through all held layers; backward to the inputs of all but the first, whose adapters need no more than
    the gradient of their own output; in the last layer queries, projection and MLP of the class token alone.
    """
    return work.images * sum(_of_an_image(work, depth) for depth in work.depths)


def _of_an_image(work: Work, depth: int) -> int:
    D, T = work.dim, work.tokens
    embed, head = 2 * (T - 1) * 3 * work.patch**2 * D, 3 * 2 * D * CLASSES
    total = embed + head
    for i in range(depth):
        first, rows = i == 0, 1 if i == depth - 1 else T
        kv, q = 2 * T * D * 2 * D, 2 * rows * D * D
        scores = 2 * 2 * rows * T * D  # q k^T and the mean of v
        proj, mlp = 2 * rows * D * D, 2 * 2 * rows * D * 4 * D
        adapters = sum(2 * rows * RANK * (inputs + D) for inputs in (D, 4 * D))
        attention = kv + q + scores
        forward = attention + proj + mlp + adapters
        backward = (0 if first else kv + q + 2 * scores + proj) + mlp + 2 * adapters
        total += forward + backward
    return total


def peak() -> dict[str, float]:
    """FLOPs a second of all cores together, by library: one process a core, one thread each, at the same time."""
    fork = multiprocessing.get_context("fork")
    with fork.Pool(cores(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        rates = pool.map(_rates, range(cores()), chunksize=1)
    return {name: sum(rate[name] for rate in rates) for name in rates[0]}


def _rates(_: int, repeats: int = 15) -> dict[str, float]:
    rows, inputs, outputs = SHAPE
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    ways: dict[str, Callable[[], Tensor]] = {"default": lambda: torch.nn.functional.linear(x, weight)}
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        ways["oneDNN"] = lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)
    flops = 2 * rows * inputs * outputs
    return {name: flops / statistics.median(times) for name, times in seconds.items()}
