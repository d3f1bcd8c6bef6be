"""One round of every method of unequal ranks, and of centralised training, against plain loops with narrow adapters:
matrices of rank r_n, no masks."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from fedbench.engine import cohort as fast
from fedbench.engine import sequential
from fedbench.seeding import generator
from fedbench.simulation.coding import through_codecs
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

R, ALPHA, RANKS, EXAMPLES = 3, 4.0, [3, 2, 1, 3], [4, 2, 6, 5]
DEPTHS = [4, 3, 1, 2]  # of clients that differ in depth, from the output on
CAME = [0, 1, 2]  # the work of the last client is lost
OPTIMIZER = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
CLIP, GAMMA, LAM = 0.4, 0.5, 2.0
VIT = tiny_vit().double()
PLACES = [f"{j}.{target}" for j in range(4) for target in ("attn.proj", "mlp.fc2")]


def logits_of(own, x, scale, folded):
    """timm's ViT with every adapted weight written as W + scale B A; folded: what is added to W besides."""
    weights = {}
    for at in PLACES:
        layer, _, target = at.partition(".")
        W = VIT.blocks[int(layer)].get_submodule(target).weight.detach() + folded.get(at, 0.0)
        weights[f"blocks.{at}.weight"] = W + scale * own[f"{at}.lora_B"] @ own[f"{at}.lora_A"]
    return F.linear(torch.func.functional_call(VIT, weights, (x,)), own["head.weight"], own["head.bias"])


def tuned(own, batches, scale, folded=None, penalty=lambda w: 0.0):
    """Momentum SGD on the clipped gradient of loss + penalty."""
    w, velocity = dict(own), {}
    for x, y in batches:
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        loss = F.cross_entropy(logits_of(leaves, x, scale, folded or {}), y) + penalty(leaves)
        gradient = dict(zip(w, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        norm = sum((g**2).sum() for g in gradient.values()).sqrt()
        for k in w:
            direction = gradient[k] * min(1.0, CLIP / (norm + 1e-6)) + 0.01 * w[k]
            velocity[k] = 0.9 * velocity[k] + direction if k in velocity else direction
            w[k] = w[k] - 0.1 * velocity[k]
    return w


def narrow(model, terms, B_times=1.0):
    """The model with these terms of every adapter alone."""
    own = {}
    for name, value in model.items():
        own[name] = value[terms] if name.endswith("A") else value[:, terms] * B_times if name.endswith("B") else value
    return own


def padded(name, value):
    """With zeros to rank R."""
    if name.endswith("lora_A"):
        return torch.cat([value, value.new_zeros(R - len(value), value.shape[1])])
    if name.endswith("lora_B"):
        return torch.cat([value, value.new_zeros(len(value), R - value.shape[1])], 1)
    return value


def averaged(uploads, weights):
    """The mean of zero-padded uploads."""
    total = sum(weights)
    return {
        k: sum(weight * padded(k, w[k]) for w, weight in zip(uploads, weights, strict=True)) / total for k in uploads[0]
    }


def of_head(model):
    return {k: v for k, v in model.items() if k.startswith("head.")}


def best(dW, split):
    """B, A of the best part of rank R, the largest entry of each row of A positive."""
    U, sigma, Vt = torch.linalg.svd(dW)
    U, sigma, Vt = U[:, :R], sigma[:R], Vt[:R]
    sign = torch.stack([row[row.abs().argmax()].sign() for row in Vt])
    U, Vt = U * sign, Vt * sign[:, None]
    return (U * sigma.sqrt(), sigma.sqrt()[:, None] * Vt) if split else (U * sigma, Vt)


def fedit(model, batches, plan):
    uploads = [tuned(narrow(model, range(RANKS[n])), batches(n), ALPHA / R) for n in CAME]
    return averaged(uploads, [EXAMPLES[n] for n in CAME])


def hetlora(model, batches, plan):
    def tail(w, c):
        return sum(w[f"{at}.lora_B"][:, c:].norm() * w[f"{at}.lora_A"][c:].norm() for at in PLACES)

    uploads, sizes, ranks = [], [], {}
    for n in CAME:
        c, own = max(1, int(GAMMA * RANKS[n])), narrow(model, range(RANKS[n]))
        w = tuned(own, batches(n), ALPHA / R, penalty=lambda w, c=c: LAM * tail(w, c))
        if tail(w, c) < tail(own, c):
            w, ranks[str(n)] = narrow(w, range(c)), c
        uploads.append(w)
        sizes.append(sum(((w[f"{at}.lora_B"] @ w[f"{at}.lora_A"]) ** 2).sum() for at in PLACES).sqrt())
    assert len(set(ranks)) == 2  # the clients of ranks 3 and 2 prune
    return averaged(uploads, sizes) | of_head(averaged(uploads, [EXAMPLES[n] for n in CAME])) | {"ranks": ranks}


def flexlora(model, batches, plan, own=True):
    s = {n: ALPHA / (RANKS[n] if own else R) for n in CAME}
    uploads = [
        tuned(narrow(model, range(RANKS[n]), RANKS[n] / R if own else 1), batches(n), s[n])
        for n in range(len(RANKS))
        if n in CAME
    ]
    new = averaged(uploads, [EXAMPLES[n] for n in CAME])
    for at in PLACES:
        dW = sum(
            EXAMPLES[n] / 12 * s[n] * w[f"{at}.lora_B"] @ w[f"{at}.lora_A"] for n, w in zip(CAME, uploads, strict=True)
        )
        B, new[f"{at}.lora_A"] = best(dW, split=False)
        new[f"{at}.lora_B"] = B / (ALPHA / R)
    return new


def raflora(model, batches, plan):
    uploads = [tuned(narrow(model, range(RANKS[n])), batches(n), ALPHA / R) for n in CAME]
    new = averaged(uploads, [EXAMPLES[n] for n in CAME])
    for at in PLACES:
        dW = 0.0
        for h in (1, 2, 3):  # a slice is one term here
            reach = [(n, w) for n, w in zip(CAME, uploads, strict=True) if RANKS[n] >= h]
            N_h = sum(EXAMPLES[n] for n, _ in reach)
            for n, w in reach:
                dW += EXAMPLES[n] / N_h * torch.outer(w[f"{at}.lora_B"][:, h - 1], w[f"{at}.lora_A"][h - 1])
        new[f"{at}.lora_B"], new[f"{at}.lora_A"] = best(dW, split=True)
    return new


def fed_plora(model, batches, plan):
    new, uploads = {k: v.clone() for k, v in model.items()}, []
    drawn = [plan.trained_terms[n, 0].nonzero().flatten().tolist() for n in range(len(RANKS))]
    assert [len(terms) for terms in drawn] == RANKS
    for n in CAME:
        rest = [j for j in range(R) if j not in drawn[n]]
        folded = {at: ALPHA / R * model[f"{at}.lora_B"][:, rest] @ model[f"{at}.lora_A"][rest] for at in PLACES}
        uploads.append(tuned(narrow(model, drawn[n]), batches(n), ALPHA / R, folded))
    for at in PLACES:
        for j in range(R):
            had = [(EXAMPLES[n], drawn[n].index(j), w) for n, w in zip(CAME, uploads, strict=True) if j in drawn[n]]
            total = sum(e for e, _, _ in had)
            if had:
                new[f"{at}.lora_A"][j] = sum(e * w[f"{at}.lora_A"][i] for e, i, w in had) / total
                new[f"{at}.lora_B"][:, j] = sum(e * w[f"{at}.lora_B"][:, i] for e, i, w in had) / total
    return new | of_head(averaged([of_head(w) for w in uploads], [EXAMPLES[n] for n in CAME]))


def fslora(model, batches, plan):
    new, total = {k: v.clone() for k, v in model.items()}, len(CAME)
    for n in CAME:
        sketch = plan.terms[n, 0].nonzero().flatten().tolist()
        assert len(sketch) == RANKS[n]
        own = narrow(model, sketch)
        w = tuned(own, batches(n), ALPHA / R * R / RANKS[n])  # W + s B S A, of which S leaves these terms
        for k in new:
            at = (slice(None), sketch) if k.endswith("B") else (sketch,) if k.endswith("A") else ()
            new[k][at] += (w[k] - own[k]) / total
    return new


def legend(model, batches, plan):
    ranks, new = [1, 1, 2, 3], {k: v.clone() for k, v in model.items()}  # R - (L - j), at least 1

    def own_part(name, value, n):
        """What client n has: the terms of its layers' ranks, and none in the layers below."""
        layer = int(name[0]) if name[0].isdigit() else 3
        terms = range(ranks[layer] if layer >= 4 - DEPTHS[n] else 0)
        return narrow({name: value}, terms)[name]

    uploads = {n: tuned({k: own_part(k, v, n) for k, v in model.items()}, batches(n), ALPHA / R) for n in CAME}
    for k in new:
        had = [own_part(k, new[k], n).numel() > 0 for n in CAME]
        if any(had):
            mean = sum(uploads[n][k] for n, has in zip(CAME, had, strict=True) if has) / sum(had)
            at = (slice(None), slice(mean.shape[1])) if k.endswith("B") else (slice(len(mean)),)
            new[k][at] = mean
    return new


def largest(tensors, density):
    """The tensors with all numbers but the largest of all together put to 0."""
    flat = torch.cat([value.flatten() for value in tensors.values()])
    mask = torch.zeros_like(flat)
    mask[flat.abs().topk(int(len(flat) * density)).indices] = 1
    parts = mask.split([value.numel() for value in tensors.values()])
    return {k: value * part.view_as(value) for (k, value), part in zip(tensors.items(), parts, strict=True)}


def flasc(model, batches, plan):
    """The released code's: a mask of all adapters down, dense training, a mask of the whole update up."""
    down = model | largest({k: v for k, v in model.items() if "lora" in k}, 0.5)
    new = dict(model)
    for n in CAME:
        w = tuned(down, batches(n), ALPHA / R)
        for k, delta in largest({k: w[k] - down[k] for k in model}, 0.2).items():
            new[k] = new[k] + delta / len(CAME)
    return new


def pooled(model, batches, plan):
    return tuned(model, [batch for n in CAME for batch in batches(n)], ALPHA / R)


METHODS = {
    "fedit": fedit, "hetlora": hetlora, "flexlora": flexlora, "raflora": raflora, "fed_plora": fed_plora,
    "fslora": fslora, "legend": legend, "pooled": pooled, "flasc": flasc,
    "flexlora, shared": functools.partial(flexlora, own=False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *(pytest.param(name, fast.train, id=f"{name}-cohort") for name in METHODS),
        # Whether the engines are equal engine/test_plans.py tells; this has a pull for each client.
        pytest.param("hetlora", sequential.train, id="hetlora-sequential"),
        pytest.param("flasc", sequential.train, id="flasc-sequential"),
    ],
)
def test_a_round_equals_plain_loops_with_narrow_adapters(registry, name, engine):
    options = {
        "hetlora": {"gamma": GAMMA, "lam": LAM},
        "flexlora, shared": {"scale": "shared"},
        "flasc": {"dl_density": 0.5, "ul_density": 0.2},
    }.get(name, {})
    L_n, r_n = (DEPTHS, None) if name in ("legend", "pooled") else ([4] * 4, None if name == "flasc" else RANKS)
    adapter = {"name": "lora", "rank": R, "alpha": ALPHA}
    setup = setup_of(registry, tiny_vit(), L_n, adapter, r_n, optimizer=OPTIMIZER, clip=CLIP)
    method = registry.make(
        "method",
        {"name": name.partition(",")[0], **options},
        setup=replace(setup, engine=functools.partial(through_codecs, engine)),
    )
    state, draw = method.init(generator(0)), torch.Generator().manual_seed(7)
    for tensors in (*state["r"], state["shared"]):
        for value in tensors.values():
            value.normal_(0, 0.3, generator=draw)
    cohort = replace(cohort_of(L_n, EXAMPLES, ranks=r_n), arrives=torch.tensor([n in CAME for n in range(4)]))
    new, report = method.round(state, 0, cohort, generator(0, 0))
    expected = METHODS[name](flat(state), cohort.batches, report.plan)
    ranks = {n: RANKS[int(n)] - gone for n, gone in new["memory"].get("given_up", {}).items()}
    assert ranks == expected.pop("ranks", {})
    torch.testing.assert_close(flat(new), expected, rtol=1e-12, atol=1e-12)


def flat(state):
    return {f"{j}.{name}": v for j, r_j in enumerate(state["r"]) for name, v in r_j.items()} | state["shared"]
