"""The independent implementation: plain loops written from notes on the released code.

They share nothing with fedbench but the seeds. They take over the frozen weights, the state a method starts from, who
takes part, and FedRA's M; all else, from the colours of an image to the next global state, they compute themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from recorded import BATCH, DIM, EXAMPLES, HEADS, PATCH, SEED, SIDE, TEST, TRAIN, L, Ran, Tensors, tiny_vit
from torch import Tensor

from fedbench.seeding import generator, numpy_generator


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
