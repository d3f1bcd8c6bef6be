"""Rounds of FedV, FedVZ and FESTA in float64 against plain loops written from the FedV paper, see `split_loops`."""

from __future__ import annotations

import functools

import pytest
import torch
from split_loops import (
    CLIENTS,
    CLIP,
    DECAY,
    DIRECTIONS,
    EPSILON,
    LR,
    MOMENTUM,
    ROUNDS,
    SERVER_LR,
    L,
    Ran,
    Rules,
    batch,
    plain_loops,
)

from fedbench.seeding import generator
from fedbench.testing.setups import setup_of, tiny_vit
from fedbench.types import Cohort

pytestmark = pytest.mark.usefixtures("counted_once")


def cohort(t):
    ids, K, lost = ROUNDS[t]
    numbers = [torch.tensor(values) for values in ([L] * len(ids), [4 + i for i in ids], K)]
    arrives = torch.tensor([i not in lost for i in ids])
    return Cohort(ids, *numbers, lambda n: iter([batch(t, ids[n], k) for k in range(K[n])]), arrives)


def wide_vit():
    """Weights of usual size in every place, so that gradients are clipped and not."""
    model = tiny_vit()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(name))) + ("norm" in name))
    return model


@pytest.fixture(scope="module")
def fedbench_ran(registry):
    """fedbench_ran(case) -> Ran"""

    @functools.cache
    def run(case):
        method, options, _ = CASES[case]
        train = {"name": "sgd", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}
        setup = setup_of(registry, wide_vit(), [L] * CLIENTS, optimizer=train, clip=CLIP, rounds=len(ROUNDS))
        made = registry.make("method", {"name": method, "fedround": 2, **options}, setup=setup)
        state = made.init(generator(0))
        ran = Ran([models(made, state)], [])
        for t in range(len(ROUNDS)):
            state, report = made.round(state, t, cohort(t), generator(0, t))
            ran.models.append(models(made, state))
            ran.losses.append(report.uploads.loss.tolist())
        return ran

    return run


def models(method, state):
    """The weights that every client's predictor, and last the global one, computes with."""
    found = []
    for client in (*range(CLIENTS), None):
        blocks = method.predictor(state, client=client).blocks
        names = blocks.named_parameters()
        found.append({name.split(".", 1)[1]: p.detach().clone() for name, p in names})
    return found


def same(ran: Ran, looped: Ran, close: float = 1e-12) -> None:
    """All numbers to `close`. Raises AssertionError."""
    for t, (one, two) in enumerate(zip(ran.models, looped.models, strict=True)):
        for i, (mine, theirs) in enumerate(zip(one, two, strict=True)):
            assert mine.keys() == theirs.keys()
            for name in mine:
                at = f"after {t} rounds, client {i}, {name}"
                torch.testing.assert_close(
                    mine[name], theirs[name], rtol=close, atol=close, msg=lambda text, at=at: f"{at}: {text}"
                )
    for one, two in zip(ran.losses, looped.losses, strict=True):
        assert one == pytest.approx(two, rel=close, abs=close)


ADAM_LR = 0.01
ADAM = {"adam": True, "server_lr": ADAM_LR}
SPSA = {"server_lr": SERVER_LR, "server_decay": 1.0, "epsilon": EPSILON, "num_directions": DIRECTIONS}
CASES = {
    "fedv": ("fedv", {"server_lr": SERVER_LR}, {}),
    "fedv, eta for both": ("fedv", {}, {"server_lr": LR}),
    "fedv, blocks on the client": (
        "fedv",
        {"server_lr": SERVER_LR, "head_blocks": 1, "tail_blocks": 1},
        {"head_blocks": 1, "tail_blocks": 1},
    ),
    "fedv, frozen": ("fedv", {"server_lr": 0}, {"server": "none"}),
    "fedvz": ("fedvz", SPSA, {"server": "spsa"}),
    "fedvz, halved": ("fedvz", {**SPSA, "server_decay": 0.5}, {"server": "spsa", "halved_from": 2}),
    "fedvz, a block in the tail": ("fedvz", {**SPSA, "tail_blocks": 1}, {"server": "spsa", "tail_blocks": 1}),
    "festa, plain": (
        "festa",
        {"server_lr": SERVER_LR, "server_optimizer": {"name": "sgd"}},
        {"every_step": True},
    ),
    "fedv, Adam": ("fedv", {"server_lr": ADAM_LR, "server_optimizer": {"name": "adamw"}}, {**ADAM}),
    "fedv, Adam with decay": (
        "fedv",
        {"server_lr": ADAM_LR, "server_optimizer": {"name": "adamw", "weight_decay": 0.5}},
        {**ADAM, "server_decay": 0.5},
    ),
    "festa": ("festa", {"server_lr": ADAM_LR}, {**ADAM, "every_step": True}),
    "festa, eta for both": ("festa", {}, {**ADAM, "server_lr": LR, "every_step": True}),
}
# The others differ from one of these in a number.
OFTEN = (
    "fedv",
    "fedv, blocks on the client",
    "fedvz",
    "fedv, Adam with decay",
    "festa",
)
# What would be another rule, and the case in which it shows.
OTHER_RULES = {
    "head and tail after their update": (dict(after_update=True), "fedv"),
    "losses after the update": (dict(after_update=True), "fedvz"),
    "the server's gradient clipped": (dict(server_clip=True), "fedv"),
    "by examples": (dict(by_examples=True), "fedv"),
    "lost work counts": (dict(lost_count=True), "fedv"),
    "lost work counts at every step": (dict(lost_count=True), "festa, plain"),
    "a plain step": (dict(adam=False), "fedv, Adam"),
    "a plain step at every step": (dict(adam=False), "festa"),
    "moments of one round": (dict(forgets=True), "fedv, Adam with decay"),
    "moments of one round at every step": (dict(forgets=True), "festa"),
    "Adam once a round": (dict(every_step=False), "festa"),
    "Adam at every step": (dict(every_step=True), "fedv, Adam"),
    "Adam without decay": (dict(server_decay=0.0), "fedv, Adam with decay"),
    "averaged in every round": (dict(fedround=1), "fedv"),
    "averages for everybody": (dict(average_everybody=True), "fedv"),
    "the body once a round": (dict(every_step=False), "festa, plain"),
    "the encoder at every step": (dict(every_step=True), "fedv"),
    "one z for all clients": (dict(one_z=True), "fedvz"),
    "one direction": (dict(one_direction=True), "fedvz"),
    "a gradient in place of its estimate": (dict(server="gradient"), "fedvz"),
    "norm and pooling on the client": (dict(tail_blocks=1), "fedv"),
}


def closeness(case: str) -> float:
    """Adam divides by the gradient's size: of a key's bias, which moves no loss, it makes steps of the rounding."""
    return 1e-9 if "adam" in CASES[case][2] else 1e-12


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in OFTEN else pytest.mark.slow) for case in CASES]
)
def test_rounds_equal_plain_loops(fedbench_ran, case):
    """Through two rounds that average and one that does not, with lost clients, uneven steps and a round without
    return."""
    ran = fedbench_ran(case)
    same(ran, plain_loops(ran.models[0], Rules(**CASES[case][2])), closeness(case))


# Rules that show in two cases, and those of which another part is tried.
RARELY = (
    *("lost work counts at every step", "a plain step at every step", "moments of one round at every step"),
    *("Adam once a round", "Adam at every step", "Adam without decay", "the body once a round", "a plain step"),
    *("losses after the update", "one direction", "lost work counts", "moments of one round"),
    *("averages for everybody", "a gradient in place of its estimate", "norm and pooling on the client"),
    *("by examples", "the encoder at every step"),
)


@pytest.mark.parametrize(
    "other", [pytest.param(other, marks=pytest.mark.slow if other in RARELY else ()) for other in OTHER_RULES]
)
def test_one_rule_changed_is_noticed(fedbench_ran, other):
    changes, case = OTHER_RULES[other]
    ran = fedbench_ran(case)
    with pytest.raises(AssertionError):
        same(ran, plain_loops(ran.models[0], Rules(**{**CASES[case][2], **changes})), closeness(case))


def test_the_rounds_meet_what_the_rules_are_about(fedbench_ran):
    """Gradients to clip and not to; everybody starts elsewhere, and the rounds move everything."""
    ran = fedbench_ran("fedv")
    first, last = ran.models[0], ran.models[-1]
    assert len({float(model["patch_embed.proj.weight"].sum()) for model in first}) == CLIENTS + 1
    assert all(not torch.equal(first[0][name], last[0][name]) for name in first[0])
    norms = plain_loops(first, Rules()).norms
    assert min(norms) < CLIP < max(norms)
