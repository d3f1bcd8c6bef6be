"""Checks of single components against the contracts in `fedbench/hookspecs.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import UserError
from fedbench.families import allocation as alloc
from fedbench.method import State
from fedbench.models.backbone import Blocks, Source, body_of
from fedbench.testing.world import cohort_of, expect, same, tiny_vit, twice, untouched
from fedbench.types import MIXED, Client, Dataset, Exit, Images, Objective, Plan, Uploads

CAPACITIES = ([1], [6], [6, 3, 1], [2, 2, 2], [1, 1], [5, 4, 3, 2, 1, 6])


class _Registered(functools.partial[Tensor]):
    """An allocation with what it is registered with."""

    exact: bool


def check_allocation(
    allocate: Callable[..., Tensor], num_layers: int = 6, exact: bool | None = None, draws: int = 5
) -> None:
    """M is (N, L) bool with row sums L_n (exact=False: at most), chance by its generator alone, inputs unchanged."""
    if exact is not None:
        allocate = _Registered(allocate)
        allocate.exact = exact
    cases = [[min(c, num_layers) for c in capacities] for capacities in CAPACITIES]
    for capacities in [*cases, []]:
        L_n = torch.tensor(capacities, dtype=torch.int64)
        state = {"scores": torch.rand(num_layers, dtype=torch.float64), "history": torch.arange(num_layers)}
        costs = torch.full((num_layers,), 1e6, dtype=torch.float64)
        for t in range(draws):

            def draw(L_n: Tensor = L_n, t: int = t, state: State = state, costs: Tensor = costs) -> dict[str, Any]:
                chance = torch.Generator().manual_seed(t)
                known: dict[str, Callable[[], Any]] = {
                    "ranks": lambda: None,
                    "layer_memory": costs.clone,
                    "memory_budgets": lambda: L_n * 1e6,
                }
                made = alloc.draw(allocate, L_n, num_layers, t, range(len(L_n)), state, chance, lambda: costs, known)
                return vars(made) if isinstance(made, Plan) else {"M": made}

            try:
                M = twice(draw, "the allocation", L_n, state, costs)["M"]
            except UserError as error:
                raise AssertionError(f"{error} (capacities {capacities}, {num_layers} layers)") from None
            expect(M.shape[1] == num_layers, f"the allocation must give {num_layers} columns, not {M.shape[1]}")


def check_aggregator(aggregate: Callable[..., State]) -> None:
    """Keeps shapes, changes nothing it is given, leaves rows that did not arrive alone; a layer or classifier that
    nobody returned keeps its value."""
    L, capacities = 3, [2, 2, 1]
    chance = torch.Generator().manual_seed(0)

    def tensors(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance, dtype=torch.float64)

    M = torch.tensor([[True, True, False], [True, True, False], [True, False, False]])
    plan = Plan(M, [[Exit(L_n, "head")] for L_n in capacities])
    state: State = {
        "r": [{"lora_A": tensors(2, 3)} for _ in range(L)],
        "shared": {"head.weight": tensors(3, 4), "model.patch_embed.proj.lora_A": tensors(2)},
        "scores": torch.zeros(L, dtype=torch.float64),
        "history": torch.zeros(L, dtype=torch.int64),
        "memory": {},
    }
    r = [{"lora_A": tensors(int(M[:, j].sum()), 2, 3)} for j in range(L)]
    shared = {name: tensors(3, *value.shape) for name, value in state["shared"].items()}
    cohort = cohort_of(capacities, examples=[5, 3, 2])
    for arrived in ([True, True, True], [False, False, True], [False, False, False]):
        back = torch.tensor(arrived)
        loss, steps, seconds = (torch.ones(3, dtype=torch.float64) for _ in range(3))
        up = Uploads(r, shared, back, loss, steps, seconds)
        new = twice(functools.partial(aggregate, state, up, plan, cohort), "the aggregator", state, vars(up), M)
        lost = [_spoilt(rows, ~back[M[:, j]]) for j, rows in enumerate(r)]
        other = aggregate(state, replace(up, r=lost, shared=_spoilt(shared, ~back)), plan, cohort)
        expect(same(new, other), "rows that did not arrive (`uploads.arrived`) change the state")
        expect(set(new) >= {"r", "shared"}, "the aggregator must return the whole state, with `r` and `shared`")
        _same_shapes(state, new)
        for j in range(L):
            kept = not (M[:, j] & back).any()
            expect(
                not kept or same(new["r"][j], state["r"][j]), f"layer {j} came back from nobody and must keep its value"
            )
        if not back.any():
            expect(same(new["shared"], state["shared"]), "with no upload, what is shared must stay as it is")


def _spoilt(rows: dict[str, Tensor], lost: Tensor) -> dict[str, Tensor]:
    """The same with no number in the rows that are lost (n,)."""
    spoil = {name: value.clone() for name, value in rows.items()}
    for value in spoil.values():
        value[lost] = float("nan")
    return spoil


def _same_shapes(old: dict[str, Any], new: dict[str, Any]) -> None:
    for before, after in zip([*old["r"], old["shared"]], [*new["r"], new["shared"]], strict=True):
        expect(before.keys() == after.keys(), f"tensors were {sorted(before)} and are {sorted(after)}")
        for name, value in before.items():
            same_kind = value.shape == after[name].shape and value.dtype == after[name].dtype
            expect(same_kind, f"{name} was {value.dtype} {tuple(value.shape)} and is not any more")


def check_objective(objective: Objective) -> None:
    """A finite scalar with a gradient for every exit that can have one, for one to four exits and any round."""
    for m in range(1, 5):
        exits = [torch.randn(4, 3, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(m)]
        y = torch.tensor([0, 1, 2, 0])
        for t in (0, 1, 10_000):
            leaves = [o.clone().requires_grad_() for o in exits]
            with untouched(exits, y, what="the objective"):
                loss = objective(leaves, y, t)
            expect(isinstance(loss, Tensor) and loss.dim() == 0, f"the loss of {m} exits must be a scalar tensor")
            expect(bool(loss.isfinite()), f"the loss of {m} exits in round {t} is {loss}")
            loss.backward()
            expect(any(o.grad is not None and o.grad.any() for o in leaves), f"the loss of {m} exits has no gradient")


def check_adapter(attach: Callable[[Blocks], None]) -> None:
    """Adds trainable parameters, thaws nothing frozen, draws its start from the generator, and keeps shapes."""
    blocks = Blocks(tiny_vit())
    frozen = {name for name, _ in blocks.named_parameters()}
    attach(blocks)
    blocks.add_classifier("head", 3)
    inside = [name for j in range(blocks.num_layers) for name in blocks.r(j)]
    expect(inside or len(blocks.shared()) > 2, "the adapter adds nothing that can be trained")
    thawed = [name for name, p in blocks.named_parameters() if name in frozen and p.requires_grad]
    expect(not thawed, f"the adapter thaws frozen parameters: {', '.join(thawed[:3])}")

    def drawn() -> list[dict[str, Tensor]]:
        blocks.draw(torch.Generator().manual_seed(1))
        return [{name: p.detach().clone() for name, p in blocks.r(j).items()} for j in range(blocks.num_layers)]

    twice(drawn, "the adapter's `draw`")
    logits = blocks(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2)), range(4), [Exit(4, "head")])[0]
    expect(logits.shape == (2, 3) and logits.isfinite().all(), "the adapted model must give finite logits (B, C)")
    logits.sum().backward()


def check_backbone(source: Source) -> None:
    """A model with finite features of the size it names, also of some of its layers where it can be cut into layers,
    and facts of the right types."""
    expect(isinstance(source, Source), f"a backbone is a fedbench.models.backbone.Source, not {type(source).__name__}")
    expect(isinstance(source.fingerprint, str) and source.fingerprint, "the fingerprint must be a text")
    expect(
        len(source.mean) == len(source.std) == 3 and all(s > 0 for s in source.std), "mean and std: three numbers each"
    )
    body = body_of(source.model).eval()
    body.add_classifier("head", 3)
    x = torch.randn(1, 3, source.image_size, source.image_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = body.classifiers["head"](body.pooled(x))
        expect(logits.shape == (1, 3) and logits.isfinite().all(), "the model gives no finite features")
        for layers in ([0], range(0, body.num_layers, 2), range(body.num_layers)) if isinstance(body, Blocks) else ():
            logits = body(x, layers, [Exit(len(layers), "head")])[0]
            expect(logits.shape == (1, 3) and logits.isfinite().all(), f"layers {list(layers)} give no finite logits")


def check_dataset(dataset: Dataset) -> None:
    """Types, shapes and ranges of both splits, both filled in every domain, and the same images on every load."""
    expect(isinstance(dataset.fingerprint, str) and dataset.fingerprint, "the fingerprint must be a text")
    for what, names in (("domains", dataset.domains), ("classes", dataset.classes)):
        expect(names and len(set(names)) == len(names), f"{what} must be different names, at least one")
    with untouched(what="`load`"):
        one, two = dataset.load(), dataset.load()
    for split in ("train", "test"):
        images: Images = getattr(one, split)
        n, x = len(images.y), images.x
        shaped = x.ndim == 4 and x.shape[:2] == (n, 3) and x.shape[2] == x.shape[3]
        fits = shaped and x.dtype in (np.uint8, np.float32)
        expect(fits, f"{split}.x must be uint8 or float32 (n, 3, H, H), not {x.dtype} {x.shape}")
        if x.dtype == np.float32:
            far = n and float(np.abs(x).max())
            expect(far <= 2, f"{split}.x in float32 must lie in or near [0, 1], not reach {far:g}")
        for part, names in (("y", dataset.classes), ("domain", dataset.domains)):
            values = getattr(images, part)
            expect(values.shape == (n,) and values.dtype == np.int64, f"{split}.{part} must be int64 ({n},)")
            inside = n and values.min() >= 0 and values.max() < len(names)
            expect(inside, f"{split}.{part} must lie between 0 and {len(names) - 1}")
        lacking = set(range(len(dataset.domains))) - set(images.domain.tolist())
        expect(not lacking, f"{split} has no image of domain {lacking and dataset.domains[min(lacking)]!r}")
        again = getattr(two, split)
        alike = all(np.array_equal(getattr(images, part), getattr(again, part)) for part in ("x", "y", "domain"))
        expect(alike, f"{split} is another one on the second load")


def check_partition(partition: Callable[..., list[Client]]) -> None:
    """Ids 0, 1, ...; each image with at most one client, and in its domain, or the domain MIXED where there are
    several; chance by the generator alone."""
    y, domain = np.tile(np.arange(4), 60), np.repeat(np.arange(3), 80)

    def dealt(seed: int = 0) -> list[Client]:
        return partition(y, domain, 3, np.random.default_rng(seed))

    before = y.copy(), domain.copy()
    with untouched(what="the partition"):
        clients, again = dealt(), dealt()
    expect(
        np.array_equal(y, before[0]) and np.array_equal(domain, before[1]),
        "the partition changes the labels it is given",
    )
    alike = [np.array_equal(a.indices, b.indices) for a, b in zip(clients, again, strict=True)]
    expect(all(alike), "the partition deals otherwise when called again with the same seed")
    expect([client.id for client in clients] == list(range(len(clients))), "client ids must be 0, 1, 2, ... in order")
    owned = np.concatenate([client.indices for client in clients])
    expect(owned.dtype.kind == "i" and owned.min() >= 0 and owned.max() < len(y), "indices must be positions in y")
    expect(len(set(owned.tolist())) == len(owned), "an image belongs to two clients")
    for client in clients:
        expect(len(client) > 0, f"client {client.id} has no image")
        found = set(domain[client.indices].tolist())
        right = found == {client.domain} or (len(found) > 1 and client.domain == MIXED)
        expect(right, f"client {client.id} of domain {client.domain} holds images of another domain: {sorted(found)}")


def check_metric(metric: Callable[[Tensor, Tensor], float]) -> None:
    """A finite number for any logits (n, C), the same each time, leaving them alone."""
    for n in (1, 7):
        logits = torch.randn(n, 3, generator=torch.Generator().manual_seed(n))
        y = torch.arange(n) % 3
        value = float(twice(functools.partial(metric, logits, y), "the metric", logits, y))
        expect(np.isfinite(value), f"the metric of {n} images is {value}")
