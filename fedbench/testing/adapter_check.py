"""Checks of adapters: what is trained inside the frozen layers, in both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedbench.engine import cohort, sequential
from fedbench.models.backbone import HEAD, Blocks
from fedbench.models.param_paths import by_layer, places
from fedbench.seeding import global_generator
from fedbench.testing.setups import (
    CLASSES,
    TRAIN,
    cohort_of,
    expect,
    same,
    shaken,
    shapes_are_enough,
    tiny_vit,
    twice,
    untouched,
)
from fedbench.types import Exit, Job, Plan, Uploads

Attach = Callable[[Blocks], None]
DROPOUT = "dropout is fedbench.models.adapter.SeededDropout, and a start is drawn in `draw(generator)`"
STACK = "`stack` promises that a module computes with `stack.values`, one row a client; use them, or do without `stack`"
PER_TOKEN = "rows and tokens must be treated one by one"


def check_adapter(attach: Attach, again: Callable[[], Attach] | None = None) -> None:
    """Check an adapter.

    It adds trainable parameters, thaws nothing frozen, draws its start from the generator, keeps shapes, remembers
    nothing between calls, and trains to the same in both engines. `again` makes another one.
    """
    model = tiny_vit()
    frozen = {name: (p, p.detach().double()) for name, p in model.named_parameters()}
    blocks = _adapted(model, attach, seed=1)
    inside = [name for j in range(blocks.num_layers) for name in blocks.r(j)]
    expect(inside or len(blocks.shared()) > 2, "the adapter adds nothing that can be trained")
    _check_frozen(blocks, frozen)
    with shaken(2):
        other = _adapted(tiny_vit(), again() if again else attach, seed=1)
        elsewhere = _adapted(tiny_vit(), attach, seed=2)
    start = _check_start(blocks, elsewhere)
    _check_constants(blocks, other)
    _check_calls(blocks, other)
    _check_engines(blocks, start)
    _check_frozen(blocks, frozen)
    _check_shapes_alone(attach)


def _adapted(model: nn.Module, attach: Attach, seed: int) -> Blocks:
    blocks = Blocks(model)
    with global_generator(seed, use="adapter"):
        attach(blocks)
    blocks.add_classifier(HEAD, CLASSES)
    return blocks


def _check_frozen(blocks: Blocks, frozen: dict[str, tuple[nn.Parameter, Tensor]]) -> None:
    memory = {p.untyped_storage().data_ptr(): name for name, (p, _) in frozen.items()}
    trained = blocks.trained().values()
    thawed = [name for p in trained if (name := memory.get(p.untyped_storage().data_ptr()))]
    expect(not thawed, f"the adapter thaws frozen parameters: {', '.join(thawed[:3])}; add parameters of its own")
    for name, (p, before) in frozen.items():
        expect(
            same(p.detach().double(), before),
            f"the adapter changes the frozen {name}; leave what it stands on as it is",
        )


def _check_start(blocks: Blocks, other: Blocks) -> dict[str, Tensor]:
    """The values by place after a draw, the same in a model that was adapted when chance stood elsewhere."""

    def start(of: Blocks = blocks) -> dict[str, Tensor]:
        of.draw(torch.Generator().manual_seed(1))
        return {place: p.detach().clone() for place, p in of.trained().items()}

    alone = "it must set every parameter from its generator alone"
    first: dict[str, Tensor] = twice(start, "the adapter's `draw`", instead=alone)
    with shaken(3):
        second = start(other)
    expect(first.keys() == second.keys(), "attached again, the adapter has other parameters")
    for place, value in first.items():
        expect(
            same(value, second[place]),
            f"{place} starts elsewhere when the adapter is attached again: give its module a `draw(generator)` that "
            "sets it, or let it start from a constant",
        )
    return first


def _check_constants(blocks: Blocks, other: Blocks) -> None:
    """What nobody trains and no state has is the same in a model that was adapted and drawn for the same seeds."""
    other.draw(torch.Generator().manual_seed(1))
    trained = {id(p) for of in (blocks, other) for p in of.trained().values()}
    ours, theirs = (
        {name: x for kind in (of.named_parameters, of.named_buffers) for name, x in kind() if id(x) not in trained}
        for of in (blocks, other)
    )
    expect(ours.keys() == theirs.keys(), "attached again, the adapter has other frozen tensors")
    for name, value in ours.items():
        expect(
            same(value.detach(), theirs[name].detach()),
            f"{name} is frozen, and another when the adapter is attached again for the same seed: draw it from torch's "
            "global generator, which stands at the cell's seed then, or let it be a constant",
        )


def _check_calls(blocks: Blocks, other: Blocks) -> None:
    """Finite logits that depend on the images alone, and not on what was seen before."""
    x, y = torch.randn(2, 2, 3, 8, 8, generator=torch.Generator().manual_seed(2)).unbind()
    layers, exits = range(blocks.num_layers), [Exit(blocks.num_layers, HEAD)]

    def seen(model: Blocks, images: Tensor) -> Tensor:
        logits: Tensor = model(images, layers, exits)[0]
        fits = logits.shape == (2, CLASSES) and logits.isfinite().all()
        expect(fits, "the adapted model must give finite logits (B, C)")
        return logits.detach()

    kept = "a module must keep nothing of a forward pass"
    before = {name: value.clone() for name, value in blocks.state_dict().items()}
    seen(blocks, x)
    changed = [name for name, value in blocks.state_dict().items() if not same(value, before[name])]
    expect(not changed, f"a forward pass changes {', '.join(changed[:3])}: {kept}")
    first: Tensor = twice(lambda: seen(blocks, x), "the adapter", x, instead=DROPOUT)
    seen(other, y)
    message = f"the adapter's answer depends on what it has seen before: {kept}"
    expect(torch.equal(first, seen(other, x)), message)
    with torch.no_grad():  # the other way round, a client's rows next to others'
        both = blocks(torch.cat([x, y]), layers, exits)[0][:2]
    expect(
        torch.allclose(first, both, atol=1e-5),
        f"the adapter's answer depends on the batch around an image: {PER_TOKEN}",
    )


def _check_engines(blocks: Blocks, start: dict[str, Tensor]) -> None:
    """Clients of unequal depths train to the same, and to something, in both engines."""
    blocks.double()
    begun = by_layer({place: value.double() for place, value in start.items()}, blocks.num_layers)
    L_n = [blocks.num_layers, 2, 1]
    plan = Plan(torch.arange(blocks.num_layers) < torch.tensor(L_n)[:, None], [[Exit(n, HEAD)] for n in L_n])
    how: Any = TRAIN
    job = Job(0, 0, how["optimizer"], how["clip"], _cross_entropy)

    def trained(engine: Callable[..., Uploads]) -> dict[str, Tensor]:
        with untouched(begun, what="the adapter, in training,", instead=DROPOUT):
            up = engine(blocks, begun, plan, cohort_of(L_n), job)
        return dict(places({"r": up.r, "shared": up.shared}))

    one, two = trained(sequential.train), trained(cohort.train)
    inside = [place for place in one if place.startswith(("r/", "shared/model."))]
    values = dict(places(begun))
    moved = {place: not torch.equal(one[place], values[place].expand_as(one[place])) for place in inside}
    expect(any(moved.values()), "none of the adapter's parameters moves in training: the loss must depend on them")
    for place in one:
        if not torch.allclose(one[place], two[place], rtol=1e-6, atol=1e-9):
            still = torch.equal(two[place], values[place].expand_as(two[place]))
            what = "is not trained at all" if still else "trains to something else"
            raise AssertionError(f"{place} {what} in the cohort engine, which is the default: {STACK}; {PER_TOKEN}")


def _check_shapes_alone(attach: Attach) -> None:
    """What `fedbench plan` does to know prices."""
    with shapes_are_enough("the adapter"), torch.device("meta"):
        blocks = _adapted(tiny_vit(), attach, seed=1)
        blocks(torch.empty(1, 3, 8, 8), range(blocks.num_layers), [Exit(blocks.num_layers, HEAD)])


def _cross_entropy(exits: Any, y: Tensor, t: int) -> Tensor:
    return nn.functional.cross_entropy(exits[0], y)
