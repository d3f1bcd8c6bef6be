"""ReeFL: the first L_n layers, one exit module for all depths, and the best exit as every other's teacher (Lee et al.,
ICML 2024, arXiv 2405.14791)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from fedbench import hookimpl
from fedbench.errors import NotApplicable
from fedbench.families.layerwise import layerwise
from fedbench.method import Method, Ref, Setup, State
from fedbench.models.backbone import HEAD, Blocks, in_layers
from fedbench.models.globalmodel import GlobalModel
from fedbench.options import Count, Positive, judged
from fedbench.types import Cohort, Exit, Job, Plan, Uploads

# ReeFL's model: a backbone whose class token passes through one shared module after every layer


HEADS, WIDTH, MLP_RATIO = 8, 16, 1.35  # of the released configuration


class Ree(nn.Module):
    """Z = Ree([m, c_1, ..., c_b] + pos): one pre-norm transformer block over the class tokens of the layers so far.

    m is `meta` (1, D), and pos `positions` (L + 1, D), the first of which is m's. `norm` is the head's LayerNorm, whose
    linear layer is the classifier. Attention has 8 heads of 2 channels each, and its products are scaled by 16^(-1/2),
    the width of all heads, as in the released code; the MLP has int(1.35 D) units and GELU.
    """

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        hidden = int(MLP_RATIO * dim)
        self.meta = nn.Parameter(torch.empty(1, dim))
        self.positions = nn.Parameter(torch.empty(layers + 1, dim))
        self.norm1, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * WIDTH), nn.Linear(WIDTH, dim)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)

    def draw(self, generator: Generator) -> None:
        """As the released code draws it: weights, m and pos from a normal of deviation 0.02, cut off at 2; biases 0,
        norms the identity."""
        linear = (self.qkv, self.proj, self.fc1, self.fc2)
        for weight in (self.meta, self.positions, *(layer.weight for layer in linear)):
            nn.init.trunc_normal_(weight, std=0.02, generator=generator)
        for layer in linear:
            nn.init.zeros_(layer.bias)
        for norm in (self.norm1, self.norm2, self.norm):
            norm.reset_parameters()

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, b, D) -> Z (B, b + 1, D): m's first, that of the last token last."""
        B, b, _ = tokens.shape
        T = torch.cat([self.meta.expand(B, 1, -1), tokens], dim=1) + self.positions[: b + 1]
        T = T + self._attended(self.norm1(T))
        mlp: Tensor = self.fc2(F.gelu(self.fc1(self.norm2(T))))
        return T + mlp

    def _attended(self, T: Tensor) -> Tensor:
        """By explicit products, which are few, and which torch counts on every device."""
        q, k, v = self.qkv(T).unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)  # (B, heads, b + 1, 2)
        mixed = (q @ k.mT * WIDTH**-0.5).softmax(-1) @ v
        attended: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return attended


class ReeBlocks(Blocks):
    """A backbone whose class token passes through Ree after every layer, and which exits through it.

    Ree stands in timm's model next to its parts, so that it is shared by all clients: `model.ree.meta` and so on.
    """

    def __init__(self, blocks: Blocks, history: str) -> None:
        if getattr(blocks.model, "cls_token", None) is None:
            raise NotApplicable(
                f"{type(blocks.model).__name__} has no class token, which ReeFL rewrites after every layer and reads "
                "at its exits"
            )
        super().__init__(blocks.model, blocks.origin)
        self.classifiers, self.history = blocks.classifiers, history
        like = next(self.model.parameters())
        self.model.ree = Ree(self.num_features, self.num_layers).to(like.device, like.dtype)

    @property
    def ree(self) -> Ree:
        ree = self.model.ree
        assert isinstance(ree, Ree)
        return ree

    def read(self, x: Tensor, layers: Sequence[int], depths: Sequence[int]) -> list[Tensor]:
        """(B, 3, H, W) -> what the classifier reads (B, D) after each of the depths: LayerNorm(Z_0 + c_b).

        The backbone's own final norm has no part in it.
        """
        tokens, mask, found = self.embed(x), self.mask(x), {}
        before: list[Tensor] = []
        for depth, j in enumerate(layers, start=1):
            tokens = self.layer(j, tokens, mask)
            c_b = tokens[:, 0]  # (B, D)
            Z = self.ree(torch.stack([*before, c_b], dim=1))  # (B, b + 1, D)
            if depth in depths:
                found[depth] = self.ree.norm(Z[:, 0] + c_b)
            tokens = torch.cat([Z[:, -1:], tokens[:, 1:]], dim=1)
            before.append(c_b if self.history == "raw" else Z[:, -1])
        return [found[depth] for depth in depths]

    def forward(self, x: Tensor, layers: Sequence[int], exits: Sequence[Exit]) -> list[Tensor]:
        """(B, 3, H, W) -> the logits (B, C) of every exit."""
        features = self.read(x, layers, [exit.depth for exit in exits])
        return [self.classifiers[exit.classifier](z) for exit, z in zip(exits, features, strict=True)]


@dataclass(frozen=True)
class Recurrent(GlobalModel):
    """The global model, as deep as the deepest client that ever came back."""

    def features(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D): what the classifier reads at the deepest exit."""
        assert isinstance(self.blocks, ReeBlocks)
        return self.blocks.read(x, self.layers, [self.last.depth])[0]


# ReeFL: the first L_n layers, one exit module for all depths, and the best exit as every other's teacher (Lee et
# al., ICML 2024, arXiv 2405.14791)


KEPT = 0.8  # of an exit's running loss, at every step
RAMP = 0.3  # of the run: 300 of 1000 rounds in the released code


@judged("reefl")
def reefl(
    setup: Setup,
    exits: Count = 4,
    answer: Literal["ensemble", "last"] = "last",
    history: Literal["raw", "modulated"] = "raw",
    ramp_rounds: Count | None = None,
    clip_value: Positive | None = None,
    each: bool = False,
    aggregator: Ref = "weighted_mean",
) -> Method:
    """Clients train S_n = {1, ..., L_n}; after every layer the module Ree rewrites the class token, and at every exit
    gives what the one classifier reads.

    exits: how many, at equal distances up to the last layer; a client has those within its L_n, and one after its own
    last layer. answer: `last`, the deepest exit, or `ensemble`, the mean of all exits' logits; the other is reported
    too, with `each` every other exit as well. history: of the layers below, Ree is given the class tokens as these made
    them, `raw`, or `modulated`, as the layers above were given them. ramp_rounds: T_w in w(t) = exp(-5 (1 - min(t, T_w)
    / T_w)^2), by default three tenths of the run. clip_value: clip every coordinate of a gradient at this, in place of
    the suite's clipping by norm.

    A client of depth d can run the first d layers with the exits of its depth, as it trains them. All that is not one
    of the layers (Ree and the classifier) is trained, sent and averaged by everybody. Not
    applicable to a backbone without a class token.
    """
    T_w = max(1, round(RAMP * setup.train["rounds"])) if ramp_rounds is None else ramp_rounds
    model = ReeBlocks(in_layers(setup.backbone), history)
    exits_of = functools.partial(evenly, model.num_layers, exits)
    aggregate = setup.component("aggregator", aggregator)

    def engine(model: Blocks, start: State, plan: Plan, cohort: Cohort, job: Job) -> Uploads:
        return _trained(setup, T_w, clip_value, model, start, plan, cohort, job)

    def counted(state: State, uploads: Uploads, plan: Plan, cohort: Cohort) -> State:
        new = aggregate(state, uploads, plan, cohort)
        came = int(plan.M[uploads.arrived].sum(1).max())
        return {**new, "memory": {**new["memory"], "depth": max(came, state["memory"].get("depth", 0))}}

    def at(model: Blocks, state: State, layers: Sequence[int], exits: Sequence[Exit]) -> Recurrent:
        depth = min(len(layers), state["memory"].get("depth", model.num_layers))
        everywhere = exits_of(depth)
        others = everywhere[:-1] if each else ()
        return Recurrent(model, range(depth), everywhere, lambda logits: answers(logits, answer, others))

    def predict(model: Blocks, state: State) -> Recurrent:
        return at(model, state, range(model.num_layers), ())

    given = replace(setup, backbone=model, engine=engine)
    how: dict[str, Any] = {"exits_of": exits_of, "predict": predict, "at": at}
    made = layerwise(given, "prefix", counted, by_last, whole_batches=True, **how)  # the teacher is that of a batch
    return replace(made, alone=True)


def evenly(layers: int, count: int, depth: int) -> list[Exit]:
    """The exits of a client with so many of the layers: after 3, 6, 9 and 12 of 12 where count is 4, and after its
    last. All of them have one classifier."""
    depths = {-(-i * layers // count) for i in range(1, count + 1)}
    return [Exit(e, HEAD) for e in sorted({e for e in depths if e < depth} | {depth})]


def answers(logits: list[Tensor], first: str, others: Sequence[Exit]) -> Mapping[str, Tensor]:
    """The deepest exit's logits (B, C) and the mean of all, the method's own answer first; then those of others."""
    both = {"last": logits[-1], "ensemble": torch.stack(logits).mean(0)}
    own = {name: both[name] for name in sorted(both, key=lambda name: name != first)}
    return own | {f"exit{exit.depth}": o for exit, o in zip(others, logits, strict=False)}


# --- what clients minimise --------------------------------------------------------------------------------------------


def ramp_up(t: int, T_w: int) -> float:
    """w(t) = exp(-5 (1 - min(t, T_w) / T_w)^2)."""
    return math.exp(-5.0 * (1.0 - min(t, T_w) / T_w) ** 2)


def distillation(exits: Sequence[Tensor], y: Tensor, w: float, best: int) -> Tensor:
    """sum_i CE(o_i, y) + w sum_{i != best} KL(softmax(o_best) || softmax(o_i)), o_best detached. Batch means.

    exits: the o_i (B, C). One exit alone has no teacher.
    """
    loss = torch.stack([F.cross_entropy(o, y) for o in exits]).sum()
    if len(exits) == 1:
        return loss
    target = F.log_softmax(exits[best].detach(), dim=1)
    others = [F.log_softmax(o, dim=1) for i, o in enumerate(exits) if i != best]
    pairs = [F.kl_div(log_p, target, reduction="batchmean", log_target=True) for log_p in others]
    return loss + w * torch.stack(pairs).sum()


def by_last(exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
    """What is counted: the same work whatever the losses, the deepest exit teaches."""
    return distillation(exits, y, 1.0, len(exits) - 1)


class RunningTeacher:
    """The objective of one client after another: its teacher i* is the exit of the lowest running loss.

    run_i <- 0.8 run_i + 0.2 CE_i before each step, from 0 in every round of every client; the first of equals.
    """

    def __init__(self, T_w: int) -> None:
        self.T_w = T_w
        self.run: list[float] = []

    def forget(self) -> None:
        """Another client's round begins."""
        self.run = []

    def __call__(self, exits: Sequence[Tensor], y: Tensor, t: int) -> Tensor:
        now = [F.cross_entropy(o.detach(), y).item() for o in exits]
        self.run = [
            KEPT * before + (1 - KEPT) * CE for before, CE in zip(self.run or [0.0] * len(now), now, strict=True)
        ]
        return distillation(exits, y, ramp_up(t, self.T_w), self.run.index(min(self.run)))


def _trained(
    setup: Setup,
    T_w: int,
    clip_value: float | None,
    model: Blocks,
    start: State,
    plan: Plan,
    cohort: Cohort,
    job: Job,
) -> Uploads:
    """A round by the engine, which trains a model of such a forward pass client by client, each beginning with its
    first batch."""
    objective = RunningTeacher(T_w)

    def batches(n: int) -> Any:
        objective.forget()
        return cohort.batches(n)

    given = replace(cohort, batches=batches), replace(job, objective=objective)
    if clip_value is None:
        return setup.engine(model, start, plan, *given)
    limit: Callable[[Tensor], Tensor] = functools.partial(torch.clamp, min=-clip_value, max=clip_value)
    hooks = [p.register_hook(limit) for p in model.parameters() if p.requires_grad]
    try:
        return setup.engine(model, start, plan, given[0], replace(given[1], clip=None))
    finally:
        for hook in hooks:
            hook.remove()


# The released code; history: it keeps views of tokens that it overwrites afterwards.
REFERENCE = {
    "history": "modulated",
    "ramp_rounds": 300,
    "clip_value": 1.0,
    "aggregator": {"name": "weighted_mean", "weights": "examples"},  # its own `reference` is FedRA's code
}


@hookimpl
def fedbench_register_methods(register):
    register(
        "reefl",
        reefl,
        ignores=["ranks", "widths"],
        profiles={"reference": REFERENCE},
        family="Depth",
        paper="Lee et al., ReeFL, ICML 2024, arXiv 2405.14791",
    )
