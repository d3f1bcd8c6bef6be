"""The independent implementation: plain loops written from Algorithms 1 and 2 of the FedV paper.

They share nothing with fedbench but the weights everybody starts from, the images, and the seeds of z. They know a
model as a dictionary of tensors, and compute the ViT, its gradients' clipping, SGD, Adam and all that follows
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES

L, DIM, HEADS, PATCH, CLIENTS = 4, 8, 2, 4, 5
LR, MOMENTUM, DECAY, CLIP = 0.1, 0.9, 0.01, 0.5
SERVER_LR, EPSILON, DIRECTIONS = 0.3, 1e-2, 2

# Who takes part in a round, with how many local steps, and whose work is lost.
ROUNDS = [((0, 1, 2), (2, 1, 3), ()), ((2, 3, 4, 1), (1, 2, 2, 3), (3, 1)), ((4, 0), (2, 2), ()), ((1,), (2,), (1,))]
Weights = Mapping[str, Tensor]


def batch(t, i, k):
    draw = torch.Generator().manual_seed(10_000 * t + 100 * i + k)
    size = 4 if k == 0 else 3
    x = torch.randn(size, 3, 8, 8, generator=draw, dtype=torch.float64)
    return x, torch.randint(CLASSES, (size,), generator=draw)


@dataclass
class Ran:
    """The models of every client and the global one after each round, the first state's too, by timm's names; losses
    and steps of every round."""

    models: list[list[Weights]]
    losses: list[list[float]]
    norms: list[float] = field(default_factory=list)  # of gradients before clipping, where the loops tell


@dataclass(frozen=True)
class Rules:
    """What the papers say, as far as it is a number or a choice."""

    server: str = "gradient"  # or spsa, none
    every_step: bool = False
    head_blocks: int = 0
    tail_blocks: int = 0
    fedround: int = 2
    server_lr: float = SERVER_LR
    adam: bool = False  # the server's step; its decay of weights, and whether moments last from round to round
    server_decay: float = 0.0
    forgets: bool = False
    halved_from: float = math.inf  # rounds
    after_update: bool = False
    server_clip: bool = False
    by_examples: bool = False
    lost_count: bool = False
    one_z: bool = False
    average_everybody: bool = False
    one_direction: bool = False


def plain_loops(first: list[Weights], rules: Rules) -> Ran:
    """Algorithm 1, as many rounds as there are."""
    encoder = {name for name in first[0] if part(name, rules) == "E"}
    w_E = {name: first[0][name] for name in encoder}
    own = [{name: w for name, w in model.items() if name not in encoder} for model in first]
    ran, moments = Ran([first], []), None
    for t, (ids, K, lost) in enumerate(ROUNDS):
        back = [i for i in ids if i not in lost]
        counted = ids if rules.lost_count else back
        trained = {i: dict(own[i]) for i in ids}
        velocity = {i: {} for i in ids}
        losses, g_s, start = {i: [] for i in ids}, {}, (w_E, moments)
        if rules.forgets:
            moments = None
        for k in range(max(K)):
            active = [i for i, K_i in zip(ids, K, strict=True) if k < K_i]
            for i in active:
                last = k == K[ids.index(i)] - 1
                x, y = batch(t, i, k)
                loss, grads = differentiated(trained[i], w_E, x, y, rules)
                before = trained[i]
                grads_own = {name: g for name, g in grads.items() if name not in encoder}
                ran.norms.append(norm(grads_own))
                trained[i] = client_update(before, grads_own, velocity[i])
                losses[i].append(loss)
                if (last or rules.every_step) and i in counted:
                    at = trained[i] if rules.after_update else before
                    g_s[i] = server_gradient(at, w_E, x, y, t, i, grads, rules)
            if rules.every_step and g_s:
                w_E, moments, g_s = *stepped(w_E, moments, g_s, rules, t), {}
        ran.losses.append([sum(losses[i]) / len(losses[i]) for i in ids])
        if not back:
            w_E, moments = start
        elif not rules.every_step:
            w_E, moments = stepped(w_E, moments, g_s, rules, t)
        for i in back:
            own[i] = trained[i]
        if t % rules.fedround == 0 and back:
            mean = {name: sum(trained[i][name] for i in back) / len(back) for name in own[0]}
            for i in range(CLIENTS) if rules.average_everybody else back:
                own[i] = mean
            own[-1] = mean  # what the server has of heads and tails
        ran.models.append([{**w_E, **mine} for mine in own])
    return ran


def part(name: str, rules: Rules) -> str:
    """Head, encoder or tail."""
    if name.startswith("blocks."):
        j = int(name.split(".")[1])
        return "H" if j < rules.head_blocks else "E" if j < L - rules.tail_blocks else "T"
    if name.startswith("norm."):
        return "T" if rules.tail_blocks else "E"
    return "T" if name.startswith("head.") else "H"


def loss_of(w: Weights, x: Tensor, y: Tensor) -> Tensor:
    o = logits(w, x)
    return -(o - o.exp().sum(1, keepdim=True).log())[range(len(y)), y].mean()


def differentiated(own: Weights, w_E: Weights, x: Tensor, y: Tensor, rules: Rules):
    w = {name: value.clone().requires_grad_() for name, value in {**own, **w_E}.items()}
    loss = loss_of(w, x, y)
    return loss.item(), dict(zip(w, torch.autograd.grad(loss, list(w.values())), strict=True))


def norm(gradients: Weights) -> float:
    return math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))


def clipped(gradients: Weights) -> Weights:
    shrink = min(1.0, CLIP / (norm(gradients) + 1e-6))  # torch's clip_grad_norm_ adds 1e-6
    return {name: g * shrink for name, g in gradients.items()}


def client_update(own: Weights, gradients: Weights, velocity: dict) -> Weights:
    new = {}
    for name, g in clipped(gradients).items():
        step = g + DECAY * own[name]
        velocity[name] = MOMENTUM * velocity[name] + step if name in velocity else step
        new[name] = own[name] - LR * velocity[name]
    return new


def server_gradient(own, w_E, x, y, t, i, grads, rules) -> Weights:
    if rules.server == "none":
        return {name: torch.zeros_like(w) for name, w in w_E.items()}
    if rules.server == "gradient":
        if rules.after_update:
            _, grads = differentiated(own, w_E, x, y, rules)
        found = {name: grads[name] for name in w_E}
        return clipped(found) if rules.server_clip else found
    estimates = []
    for number in range(1 if rules.one_direction else DIRECTIONS):
        client = 0 if rules.one_z else i
        z = {
            name: torch.empty(w.shape, dtype=torch.float64).normal_(
                generator=generator(0, t, client, f"spsa/{number}/model.{name}")
            )
            for name, w in w_E.items()
        }
        ends = [{name: w + sign * EPSILON * z[name] for name, w in w_E.items()} for sign in (1, -1)]
        plus, minus = (loss_of({**own, **end}, x, y) for end in ends)
        estimates.append({name: (plus - minus) / (2 * EPSILON) * z[name] for name in w_E})
    return {name: sum(e[name] for e in estimates) / len(estimates) for name in w_E}


def stepped(w_E: Weights, moments, g_s: Mapping[int, Weights], rules: Rules, t: int):
    """The server's next weights and moments: line 19, or Adam (Kingma and Ba, Algorithm 1) on the same mean."""
    eta = rules.server_lr * (0.5 ** ((t >= 2) + (t >= 3)) if t >= rules.halved_from else 1)
    weight = {i: (4 + i) if rules.by_examples else 1 for i in g_s}
    total = sum(weight.values())
    g_mean = {name: sum(weight[i] * g[name] for i, g in g_s.items()) / total for name in w_E}
    if not rules.adam:
        return {name: w - eta * g_mean[name] for name, w in w_E.items()}, None
    n, m, v = moments or (0, *({name: torch.zeros_like(w) for name, w in w_E.items()} for _ in range(2)))
    n += 1
    m = {name: 0.9 * m[name] + 0.1 * g for name, g in g_mean.items()}
    v = {name: 0.999 * v[name] + 0.001 * g**2 for name, g in g_mean.items()}
    new = {}
    for name, w in w_E.items():
        step = m[name] / (1 - 0.9**n) / ((v[name] / (1 - 0.999**n)).sqrt() + 1e-8)
        new[name] = w - eta * rules.server_decay * w - eta * step  # decay as in AdamW
    return new, (n, m, v)


# The forward pass of timm's ViT.


def logits(w: Weights, x: Tensor) -> Tensor:
    tokens = patches(w, x)
    for j in range(L):
        tokens = tokens + attended(w, f"blocks.{j}.attn", layer_norm(w, f"blocks.{j}.norm1", tokens))
        wide = linear(w, f"blocks.{j}.mlp.fc1", layer_norm(w, f"blocks.{j}.norm2", tokens))
        wide = wide * (1 + torch.erf(wide / math.sqrt(2))) / 2  # GELU
        tokens = tokens + linear(w, f"blocks.{j}.mlp.fc2", wide)
    return linear(w, "head", layer_norm(w, "norm", tokens)[:, 0])


def patches(w: Weights, x: Tensor) -> Tensor:
    corners = [(i, j) for i in range(0, 8, PATCH) for j in range(0, 8, PATCH)]
    cut = torch.stack([x[:, :, i : i + PATCH, j : j + PATCH].flatten(1) for i, j in corners], dim=1)
    tokens = cut @ w["patch_embed.proj.weight"].flatten(1).T + w["patch_embed.proj.bias"]
    return torch.cat([w["cls_token"].expand(len(x), 1, DIM), tokens], dim=1) + w["pos_embed"]


def attended(w: Weights, at: str, x: Tensor) -> Tensor:
    width, outputs = DIM // HEADS, []
    q, k, v = linear(w, f"{at}.qkv", x).split(DIM, dim=2)
    for h in range(HEADS):
        rows = slice(h * width, (h + 1) * width)
        scores = q[..., rows] @ k[..., rows].transpose(1, 2) / math.sqrt(width)
        outputs.append(torch.softmax(scores, dim=2) @ v[..., rows])
    return linear(w, f"{at}.proj", torch.cat(outputs, dim=2))


def linear(w: Weights, at: str, x: Tensor) -> Tensor:
    return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]


def layer_norm(w: Weights, at: str, x: Tensor) -> Tensor:
    centred = x - x.mean(2, keepdim=True)
    return centred / ((centred**2).mean(2, keepdim=True) + 1e-6).sqrt() * w[f"{at}.weight"] + w[f"{at}.bias"]
