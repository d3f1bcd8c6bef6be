"""Rounds under `profile: reference`, in float64, against plain loops written from notes on the released code.

The second part of this file is that independent implementation, which shares nothing with fedbench but the seeds. It
takes over the frozen weights, the state a method starts from, who takes part, and FedRA's M; all else, from the
colours of an image to the next global state, it computes itself.

The suite below leaves the profile as it is, but for two rounds, batches of two images, and, where a test says so, no
dropout. With dropout, the masks come from the seeds that fedbench documents, in the order of the forward pass.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedbench.backbone import Source
from fedbench.pixels import Pixels
from fedbench.runner import load
from fedbench.seeding import generator, numpy_generator
from fedbench.trial import Trial
from fedbench.types import Dataset, Images, Splits

METHODS = ("fedra", "inclusivefl", "depthfl", "alllarge", "allsmall")
CAPACITIES = {"all": (12, 10, 8, 6, 4, 3), "some": (8, 4, 3, 2, 2, 1)}
EXAMPLES = (3, 7, 6, 4, 8, 2)  # of each client; the last has one batch, client 0 a short second one
CLASSES, SIDE, PATCH, DIM, HEADS, L, BATCH, ROUNDS = 3, 8, 4, 8, 2, 12, 2, 2
SEED = 10  # of three clients it draws 1, 2, 3 and then 0, 2, 4: once without client 0, never the smallest

SUITE = f"""
suite: reference_round
profile: reference
defaults:
  backbone: {{name: micro_vit, pretrained: false}}  # stands for a tiny ViT, which has 12 layers too
  data: strokes6  # stands for images of 8x8, in six domains too
  train: {{rounds: {ROUNDS}, batch_size: {BATCH}}}
scenarios:
  all: {{capacities: {list(CAPACITIES["all"])}}}
  some: {{capacities: {list(CAPACITIES["some"])}, participation: {{count: 3}}}}
methods: [{", ".join(METHODS)}]
seeds: [{SEED}]
"""

Tensors = Mapping[str, Tensor]


# --- fedbench's rounds --------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def fedbench_ran(registry, tmp_path_factory):
    """fedbench_ran(scenario, method, dropout, engine) -> Ran; dropout None leaves the profile's."""
    path = tmp_path_factory.mktemp("suite") / "reference_round.yaml"
    path.write_text(SUITE)

    @functools.cache
    def suite(dropout):
        return load(path, registry, sets=[] if dropout is None else [f"adapter.dropout={dropout}"])

    @functools.cache
    def ran(scenario: str, method: str, dropout: float | None = 0.0, engine: str = "cohort") -> Ran:
        (cell,) = suite(dropout).cells(scenarios=[scenario], methods=[method])
        return recorded(in_double({**cell.config, "engine": engine}, registry))

    return ran


def in_double(config, registry) -> Trial:
    """The trial of a resolved configuration, with the tiny ViT and the tiny images, in float64."""
    source = Source(tiny_vit(), SIDE, (0.5,) * 3, (0.5,) * 3, "tiny")
    dataset = Dataset(tuple("abcdef"), tuple("xyz"), "pictures", lambda: Splits(TRAIN, TEST))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.trial.Pixels", functools.partial(Pixels, dtype=torch.float64))
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of the adapters, which are made with the trial
        try:
            return Trial(config, registry, source=source, dataset=dataset)
        finally:
            torch.set_default_dtype(usual)


def recorded(trial: Trial) -> Ran:
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


# --- the independent implementation -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """What the released code does, as far as it is a number or a choice."""

    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-5
    clip: float = 10.0
    extra_batches: float = 1  # beyond those of the smallest registered client
    scaling: float = 8 / 8  # alpha / r
    dropout: float = 0.1
    mean: Sequence[float] = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
    std: Sequence[float] = (0.26862954, 0.26130258, 0.27577711)
    by_examples: bool = False
    patch_needs_client_0: bool = True  # in FedRA
    exit_blocks: Sequence[int] = (3, 6, 9)
    ramp: float = 500
    epsilon: float = 1e-7
    ensemble: bool = False


@dataclass
class Looped:
    """The states, steps and losses of the plain loops, the gradient norms they met, and their last answer."""

    states: list[Tensors]
    steps: list[list[int]]
    losses: list[list[float]]
    norms: list[float]
    answer: Tensor


Drop = Callable[[Tensor], Tensor]
Reads = Sequence[tuple[int, str]]  # (after how many layers, which classifier)


def plain_loops(ran: Ran, method: str, capacities: Sequence[int], rules: Rules) -> Looped:
    """As many rounds as `ran` has, from its first state, with its participants."""
    theta = {name: value.clone() for name, value in tiny_vit().named_parameters()}
    state, looped = dict(ran.states[0]), Looped([ran.states[0]], [], [], [], torch.empty(0))
    for t, ids in enumerate(ran.ids):
        uploads, steps, losses = [], [], []
        for place, n in enumerate(ids):
            layers = layers_of(method, capacities, n, ran.M[t][place])
            trained, curve, norms = tuned(theta, state, method, layers, t, n, rules)
            uploads.append(trained)
            steps.append(len(curve))
            losses.append(sum(curve) / len(curve))
            looped.norms += norms
        state = averaged(state, uploads, ids, method, rules)
        looped.states.append(state)
        looped.steps.append(steps)
        looped.losses.append(losses)
    looped.answer = answered(theta, state, method, capacities, rules)
    return looped


def layers_of(method: str, capacities: Sequence[int], n: int, drawn: Tensor) -> list[int]:
    """S_n, from 0."""
    if method == "fedra":
        layers = [j for j in range(L) if drawn[j]]
        assert len(layers) == capacities[n]
        return layers
    depth = {"alllarge": L, "allsmall": min(capacities)}.get(method, capacities[n])
    return list(range(depth))


def reads_of(method: str, depth: int, rules: Rules) -> Reads:
    """DepthFL's (depth - 1) // 3 exits, and the head of every method after a client's last layer."""
    count = (depth - 1) // 3 if method == "depthfl" else 0
    names = ("exit4", "exit7", "exit10")
    return [(block + 1, name) for block, name in zip(rules.exit_blocks, names, strict=True)][:count] + [(depth, "head")]


def tuned(theta, state, method, layers, t, n, rules) -> tuple[Tensors, list[float], list[float]]:
    """Client n's tensors after its local steps, with the losses and gradient norms on the way."""
    reads = reads_of(method, len(layers), rules)
    mine = ("patch_embed.", *(f"blocks.{j}." for j in layers), *(f"{name}." for _, name in reads))
    own = {name: value.clone().requires_grad_() for name, value in state.items() if name.startswith(mine)}
    velocity: dict[str, Tensor] = {}
    drop = dropping(rules.dropout, generator(SEED, t, n, "dropout"))
    losses, norms = [], []
    for x, y in batches(t, n, rules):
        loss = objective(logits(theta, own, x, layers, reads, rules, drop), y, t, rules)
        gradients = dict(zip(own, torch.autograd.grad(loss, list(own.values())), strict=True))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        shrink = min(1.0, rules.clip / (norm + 1e-6))  # torch's clip_grad_norm_ adds 1e-6
        for name, value in own.items():
            step = gradients[name] * shrink + rules.weight_decay * value.detach()
            velocity[name] = rules.momentum * velocity[name] + step if name in velocity else step
            own[name] = (value.detach() - rules.lr * velocity[name]).requires_grad_()
        losses.append(loss.item())
        norms.append(norm)
    return {name: value.detach() for name, value in own.items()}, losses, norms


def batches(t: int, n: int, rules: Rules) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch in a random order, cut off after mmm + 1 batches."""
    order = numpy_generator(SEED, t, n, "shuffle/0").permutation(np.flatnonzero(TRAIN.domain == n))
    mmm = min(math.ceil(count / BATCH) for count in EXAMPLES)
    for b in range(math.ceil(len(order) / BATCH)):
        if b < mmm + rules.extra_batches:
            chosen = order[b * BATCH : (b + 1) * BATCH]
            yield normalised(TRAIN.x[chosen], rules), torch.from_numpy(TRAIN.y[chosen])


def normalised(x: np.ndarray, rules: Rules) -> Tensor:
    channels = [(x[:, c] / 255.0 - rules.mean[c]) / rules.std[c] for c in range(3)]
    return torch.from_numpy(np.stack(channels, axis=1))


def averaged(state: Tensors, uploads: Sequence[Tensors], ids: Sequence[int], method: str, rules: Rules) -> Tensors:
    """Every tensor's mean over those who trained it; one that nobody trained keeps its value."""
    new = {}
    for name, old in state.items():
        held = [
            (EXAMPLES[n] if rules.by_examples else 1, up[name])
            for n, up in zip(ids, uploads, strict=True)
            if name in up
        ]
        alone = method == "fedra" and name.startswith("patch_embed.") and rules.patch_needs_client_0 and 0 not in ids
        if not held or alone:
            new[name] = old
            continue
        new[name] = sum(weight * value for weight, value in held) / sum(weight for weight, _ in held)
    return new


@torch.no_grad()
def answered(theta: Tensors, state: Tensors, method: str, capacities: Sequence[int], rules: Rules) -> Tensor:
    """The global model's logits for the test images: the head's, after all its layers."""
    depth = min(capacities) if method == "allsmall" else L
    reads = reads_of(method, depth, rules)
    found = logits(theta, state, normalised(TEST.x, rules), range(depth), reads, rules, lambda x: x)
    return torch.stack(found).mean(0) if rules.ensemble else found[-1]


# The objective.


def objective(outputs: Sequence[Tensor], y: Tensor, t: int, rules: Rules) -> Tensor:
    """Cross-entropy of every classifier; where there are several, also what each learns from each other one."""
    log_p = [o - o.exp().sum(1, keepdim=True).log() for o in outputs]
    loss = sum(-lp[range(len(y)), y].mean() for lp in log_p)
    w = math.exp(-5 * (1 - t / rules.ramp) ** 2)
    for i, student in enumerate(log_p):
        for j, teacher in enumerate(log_p):
            if i != j:
                target = teacher.detach().exp() + rules.epsilon
                kl = (target * (target.log() - student)).sum(1).mean()
                loss = loss + w / (len(log_p) - 1) * kl
    return loss


# The forward pass of timm's ViT, with adapters.


def logits(theta, own, x, layers, reads, rules, drop) -> list[Tensor]:
    """What the classifiers of `reads` say, through the layers in their order."""
    tokens, found = embedded(theta, own, x, rules, drop), []
    for depth, j in enumerate(layers, start=1):
        tokens = block(theta, own, f"blocks.{j}", tokens, rules, drop)
        for after, name in reads:
            if after == depth:
                token = layer_norm(theta, "norm", tokens)[:, 0]
                found.append(token @ own[f"{name}.weight"].T + own[f"{name}.bias"])
    return found


def dropping(p: float, draw: torch.Generator) -> Drop:
    """Inverted dropout."""
    return lambda x: x * (torch.rand(x.shape, generator=draw) >= p) / (1 - p) if p else x


def embedded(theta, own, x, rules, drop) -> Tensor:
    """The patches' tokens behind a class token. The adapter is PEFT's for a convolution: r channels, then 1x1."""
    kernel, A, B = (theta["patch_embed.proj.weight"], *(own[f"patch_embed.proj.lora_{part}"] for part in "AB"))
    patches, dropped = cut(x), cut(drop(x))
    tokens = patches @ kernel.flatten(1).T + theta["patch_embed.proj.bias"]
    tokens = tokens + rules.scaling * (dropped @ A.flatten(1).T) @ B.flatten(1).T
    return torch.cat([theta["cls_token"].expand(len(x), 1, DIM), tokens], dim=1) + theta["pos_embed"]


def cut(x: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, patches, 3 PATCH PATCH), row by row."""
    corners = [(i, j) for i in range(0, SIDE, PATCH) for j in range(0, SIDE, PATCH)]
    return torch.stack([x[:, :, i : i + PATCH, j : j + PATCH].flatten(1) for i, j in corners], dim=1)


def block(theta, own, at, tokens, rules, drop) -> Tensor:
    mixed = attended(theta, at, layer_norm(theta, f"{at}.norm1", tokens))
    tokens = tokens + adapted(theta, own, f"{at}.attn.proj", mixed, rules, drop)
    wide = linear(theta, f"{at}.mlp.fc1", layer_norm(theta, f"{at}.norm2", tokens))
    wide = wide * (1 + torch.erf(wide / math.sqrt(2))) / 2  # GELU
    return tokens + adapted(theta, own, f"{at}.mlp.fc2", wide, rules, drop)


def attended(theta, at, x) -> Tensor:
    """Head by head, before the projection."""
    width, outputs = DIM // HEADS, []
    q, k, v = linear(theta, f"{at}.attn.qkv", x).split(DIM, dim=2)
    for h in range(HEADS):
        part = slice(h * width, (h + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
        outputs.append(torch.softmax(scores, dim=2) @ v[..., part])
    return torch.cat(outputs, dim=2)


def linear(theta, at, x) -> Tensor:
    return x @ theta[f"{at}.weight"].T + theta[f"{at}.bias"]


def adapted(theta, own, at, x, rules, drop) -> Tensor:
    """x W^T + b + alpha / r x A^T B^T"""
    return linear(theta, at, x) + rules.scaling * drop(x) @ own[f"{at}.lora_A"].T @ own[f"{at}.lora_B"].T


def layer_norm(theta, at, x) -> Tensor:
    centred = x - x.mean(2, keepdim=True)
    scale = ((centred**2).mean(2, keepdim=True) + 1e-6).sqrt()
    return centred / scale * theta[f"{at}.weight"] + theta[f"{at}.bias"]


# --- the comparison -----------------------------------------------------------------------------------------------


def same(ran: Ran, looped: Looped) -> None:
    """Equal steps, and all numbers to 1e-12. Raises AssertionError."""
    close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    assert ran.steps == looped.steps
    for t, (one, two) in enumerate(zip(ran.states, looped.states, strict=True)):
        assert one.keys() == two.keys()
        for name in one:
            close(one[name], two[name], msg=lambda text, at=f"after {t} rounds, {name}": f"{at}: {text}")
    close(*(torch.tensor(losses, dtype=torch.float64) for losses in (ran.losses, looped.losses)))
    close(ran.answer, looped.answer)


@pytest.fixture(scope="module")
def looped(fedbench_ran):
    """looped(scenario, method, rules) -> Looped, from the state and the draws of fedbench's own run."""

    @functools.cache
    def run(scenario: str, method: str, rules: Rules) -> Looped:
        dropout = None if rules.dropout else 0.0
        return plain_loops(fedbench_ran(scenario, method, dropout), method, CAPACITIES[scenario], rules)

    return run


CASES = [
    ("cohort", "all", 0.0),
    ("cohort", "some", 0.0),
    ("cohort", "some", None),
    ("sequential", "some", None),
]
# What would be another rule, and a method and scenario in which it shows.
OTHER_RULES = {
    "weights by examples": (dict(by_examples=True), "alllarge", "some"),
    "no batch beyond the smallest client's": (dict(extra_batches=0), "fedra", "some"),
    "a whole epoch": (dict(extra_batches=math.inf), "fedra", "some"),
    "no momentum": (dict(momentum=0.0), "allsmall", "some"),
    "no weight decay": (dict(weight_decay=0.0), "allsmall", "some"),
    "no clipping": (dict(clip=math.inf), "inclusivefl", "some"),
    "colours as the backbone's": (dict(mean=(0.5,) * 3, std=(0.5,) * 3), "allsmall", "some"),
    "patch embedding without client 0": (dict(patch_needs_client_0=False), "fedra", "some"),
    "exits after every third layer": (dict(exit_blocks=(2, 5, 8)), "depthfl", "some"),
    "ramp-up over the run": (dict(ramp=ROUNDS), "depthfl", "some"),
    "no epsilon": (dict(epsilon=0.0), "depthfl", "some"),
    "the ensemble answers": (dict(ensemble=True), "depthfl", "some"),
    "other masks": (dict(dropout=0.2), "allsmall", "some"),
}


@pytest.mark.parametrize(("engine", "scenario", "dropout"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_two_rounds_equal_plain_loops(fedbench_ran, looped, method, engine, scenario, dropout):
    rules = Rules() if dropout is None else Rules(dropout=dropout)
    same(fedbench_ran(scenario, method, dropout, engine), looped(scenario, method, rules))


@pytest.mark.parametrize("other", OTHER_RULES)
def test_one_rule_changed_is_noticed(fedbench_ran, looped, other):
    changes, method, scenario = OTHER_RULES[other]
    rules = Rules(**{"dropout": 0.0, **changes})
    with pytest.raises(AssertionError):
        same(fedbench_ran(scenario, method, None if rules.dropout else 0.0), looped(scenario, method, rules))


def test_the_rounds_meet_what_the_rules_are_about(fedbench_ran, looped):
    """Client 0 away and there, the smallest client never there, layers nobody holds, gradients to clip and not to."""
    some = fedbench_ran("some", "fedra")
    assert [0 in ids for ids in some.ids] == [False, True]
    assert all(EXAMPLES.index(min(EXAMPLES)) not in ids for ids in some.ids)
    assert all(not M.any(0).all() and M.any() for M in some.M)
    for method in METHODS:
        norms = looped("some", method, Rules(dropout=0.0)).norms
        assert min(norms) < Rules.clip < max(norms)
