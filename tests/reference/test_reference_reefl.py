"""Two rounds of ReeFL in float64 against plain loops, in both profiles' forms.

The loops call the layers of timm's ViT with W + (alpha / r) B A in place of the adapted weights; Ree, the losses, the
teacher's choice, the steps and the means they write out themselves.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from fedbench.models import cost
from fedbench.models.param_paths import places
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

CAPACITIES, EXAMPLES, STEPS = [3, 1, 4], [4, 2, 6], 2
LR, MOMENTUM, DECAY = 0.1, 0.9, 0.01
NORM, VALUE, RAMP = 0.8, 0.02, 2
OPTIMIZER = {"name": "sgd", "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}


def layer(vit, own, j, tokens):
    weights = {}
    for target in ("attn.proj", "mlp.fc2"):
        A, B = (own[f"r/{j}/{target}.lora_{part}"] for part in "AB")
        weights[f"{target}.weight"] = vit.blocks[j].get_submodule(target).weight.detach() + 4 / 2 * B @ A
    return functional_call(vit.blocks[j], weights, (tokens,))


def normed(own, at, x):
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / ((centred**2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return scaled * own[f"{at}.weight"] + own[f"{at}.bias"]


def linear(own, at, x):
    return x @ own[f"{at}.weight"].T + own[f"{at}.bias"]


def ree(own, tokens: list[Tensor]) -> list[Tensor]:
    """Token by token and head by head: what becomes of the meta token and of every class token (B, D)."""
    at = "shared/model.ree"
    T = [own[f"{at}.meta"].expand(len(tokens[0]), -1), *tokens]
    T = [token + own[f"{at}.positions"][i] for i, token in enumerate(T)]
    q, k, v = zip(
        *(linear(own, f"{at}.qkv", normed(own, f"{at}.norm1", token)).split(16, 1) for token in T), strict=True
    )
    out = []
    for i, token in enumerate(T):
        heads = []
        for h in range(0, 16, 2):
            scores = torch.stack([(q[i][:, h : h + 2] * k_[:, h : h + 2]).sum(1) / math.sqrt(16) for k_ in k], 1)
            share = scores.exp() / scores.exp().sum(1, keepdim=True)
            heads.append(sum(share[:, [i_]] * v_[:, h : h + 2] for i_, v_ in enumerate(v)))
        token = token + linear(own, f"{at}.proj", torch.cat(heads, 1))
        wide = linear(own, f"{at}.fc1", normed(own, f"{at}.norm2", token))
        out.append(token + linear(own, f"{at}.fc2", wide * (1 + torch.erf(wide / math.sqrt(2))) / 2))
    return out


def logits_of(vit, own, x, depth, modulated) -> list[Tensor]:
    """Of exits after every layer: four in four layers."""
    tokens, before, found = vit.patch_embed(x), [], []
    tokens = torch.cat([vit.cls_token.expand(len(x), -1, -1), tokens], 1) + vit.pos_embed
    for j in range(depth):
        tokens = layer(vit, own, j, tokens)
        Z = ree(own, [*before, tokens[:, 0]])
        found.append(linear(own, "shared/head", normed(own, "shared/model.ree.norm", Z[0] + tokens[:, 0])))
        before.append(Z[-1] if modulated else tokens[:, 0])
        tokens = torch.cat([Z[-1][:, None], tokens[:, 1:]], 1)
    return found


def tuned(vit, state, depth, batches, t, modulated, by_value):
    """A client's tensors, its mean loss, and its teachers."""
    held = ("shared/", *(f"r/{j}/" for j in range(depth)))
    own = {place: value.clone() for place, value in state.items() if place.startswith(held)}
    velocity, losses, run, teachers = {}, [], [0.0] * depth, []
    w = math.exp(-5 * (1 - min(t, RAMP) / RAMP) ** 2)
    for x, y in batches:
        leaves = {place: value.requires_grad_() for place, value in own.items()}
        log_p = [o - o.exp().sum(1, keepdim=True).log() for o in logits_of(vit, leaves, x, depth, modulated)]
        entropies = [-lp[range(len(y)), y].mean() for lp in log_p]
        run = [0.8 * before + 0.2 * CE.item() for before, CE in zip(run, entropies, strict=True)]
        best = run.index(min(run))
        teachers.append(best)
        taught = log_p[best].detach()
        kl = [(taught.exp() * (taught - lp)).sum(1).mean() for i, lp in enumerate(log_p) if i != best]
        loss = sum(entropies) + w * sum(kl)
        gradient = dict(zip(own, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        norm = sum((g**2).sum() for g in gradient.values()).sqrt()
        for place, g in gradient.items():
            g = g.clamp(-VALUE, VALUE) if by_value else g * min(1.0, NORM / (norm + 1e-6))
            step = g + DECAY * own[place].detach()
            velocity[place] = MOMENTUM * velocity[place] + step if place in velocity else step
            own[place] = (own[place] - LR * velocity[place]).detach()
        losses.append(loss.item())
    return own, sum(losses) / len(losses), teachers


def averaged(state, uploads):
    new = {}
    for place, old in state.items():
        held = [(EXAMPLES[i], own[place]) for i, own in enumerate(uploads) if place in own]
        new[place] = sum(n * value for n, value in held) / sum(n for n, _ in held) if held else old
    return new


@pytest.mark.parametrize("released", [False, True])
def test_two_rounds_of_reefl_equal_plain_loops(registry, monkeypatch, released):
    monkeypatch.setattr(cost, "measure", lambda *given, **more: None)
    setup = setup_of(registry, tiny_vit(), CAPACITIES, optimizer=OPTIMIZER, clip=NORM)
    options = {"history": "modulated", "clip_value": VALUE} if released else {}
    method = registry.make("method", {"name": "reefl", "ramp_rounds": RAMP, **options}, setup=setup)
    state = method.init(generator(0))
    w, taught = dict(places(state)), set()
    vit = tiny_vit().double().requires_grad_(False)
    for t in (1, 2):
        cohort = cohort_of(CAPACITIES, EXAMPLES, STEPS)
        state, report = method.round(state, t, cohort, generator(0, t))
        done = [tuned(vit, w, L_n, cohort.batches(n), t, released, released) for n, L_n in enumerate(CAPACITIES)]
        w = averaged(w, [own for own, _, _ in done])
        taught |= {best for _, _, teachers in done for best in teachers}
        found = dict(places(state))
        assert found.keys() == w.keys()
        for place, value in w.items():
            torch.testing.assert_close(found[place], value, rtol=0, atol=1e-12, msg=lambda m, at=place: f"{at}: {m}")
        told = torch.tensor([loss for _, loss, _ in done], dtype=torch.float64)
        torch.testing.assert_close(report.uploads.loss, told, rtol=0, atol=1e-12)
    assert len(taught) > 1  # the teacher is chosen, not fixed
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    logits = logits_of(vit, w, x, 4, released)
    answer = method.predictor(state)(x)
    torch.testing.assert_close(answer["last"], logits[-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(answer["ensemble"], sum(logits) / 4, rtol=0, atol=1e-12)
    other = logits_of(vit, w, x, 4, not released)
    assert not torch.allclose(other[-1], logits[-1], atol=1e-9)
