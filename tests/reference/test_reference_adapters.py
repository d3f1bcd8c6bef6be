"""FFA-LoRA, RoLoRA, FedSA-LoRA, FedEx-LoRA, FLoRA and LoRA-FAIR: two rounds against plain loops in float64 to 1e-12.

The loops have one model, in matrices, for each method's rounds. They share with fedbench the seeds and the images.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedbench.seeding import generator
from fedbench.testing.setups import TRAIN, cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once", "never_counted")

L, R, SCALE = 4, 2, 2.0  # alpha / rank of the set-up's adapter, and FLoRA's own
EXAMPLES = [4, 2, 6]
P = [n / sum(EXAMPLES) for n in EXAMPLES]
NAMES = [f"blocks.{j}.{target}" for j in range(L) for target in ("attn.proj", "mlp.fc2")]
RANKS = {"flora": [1, 2, 2]}
OPTIONS = {"lora_fair": {"aggregator": {"name": "refined_mean", "steps": 5}}}  # all of them downhill
X = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def ran(registry, name):
    """The states around two rounds, and the method."""
    ranks = RANKS.get(name)
    setup = replace(setup_of(registry, tiny_vit(L), [L] * 3, ranks=ranks), by_client=True)
    method = registry.make("method", {"name": name, **OPTIONS.get(name, {})}, setup=setup)
    states = [method.init(generator(0))]
    for t in range(2):
        states.append(method.round(states[-1], t, cohort_of([L] * 3, EXAMPLES, ranks=ranks), generator(0, t))[0])
    return states, method


def factor(state, name, which):
    _, j, target = name.split(".", 2)
    return state["r"][int(j)][f"{target}.lora_{which}"]


def addition(state, name):
    _, j, target = name.split(".", 2)
    return state.get("frozen", {}).get(f"r/{j}/{target}", torch.zeros((), dtype=torch.float64))


# --- the plain loops ----------------------------------------------------------------------------------------------


class Plain:
    """One model for all rounds, in matrices: W, A and B by name, and the head."""

    def __init__(self, state):
        self.vit = tiny_vit(L).double()
        self.W = {name: self.vit.get_submodule(name).weight.detach().clone() for name in NAMES}
        self.A, self.B = ({name: factor(state, name, which).clone() for name in NAMES} for which in "AB")
        self.head = {name: state["shared"][f"head.{name}"].clone() for name in ("weight", "bias")}

    def logits(self, x, A, B, head):
        merged = {f"{name}.weight": self.W[name] + SCALE * B[name] @ A[name] for name in NAMES}
        return functional_call(self.vit, merged, (x,)) @ head["weight"].T + head["bias"]

    def tuned(self, n, A, B, head, frozen=""):
        """Client n's A, B and head after its steps; frozen: the half that is not trained."""
        own = {"A": dict(A), "B": dict(B), "head": dict(head)}
        mine = [(part, key) for part in own for key in own[part] if part != frozen]
        velocity = {}
        for x, y in cohort_of([L] * 3).batches(n):
            for part, key in mine:
                own[part][key] = own[part][key].detach().requires_grad_()
            loss = nn.functional.cross_entropy(self.logits(x, **own), y)
            gradients = torch.autograd.grad(loss, [own[part][key] for part, key in mine])
            norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
            for (part, key), g in zip(mine, gradients, strict=True):
                value = own[part][key].detach()
                step = g * min(1, TRAIN["clip"] / (norm + 1e-6)) + 0.01 * value
                velocity[part, key] = 0.9 * velocity[part, key] + step if (part, key) in velocity else step
                own[part][key] = value - 0.1 * velocity[part, key]
        return own


def mean(values):
    return sum(p * value for p, value in zip(P, values, strict=True))


def mean_of(clients, part):
    return {key: mean([own[part][key] for own in clients]) for key in clients[0][part]}


def plain_ffa_lora(plain, t):
    clients = [plain.tuned(n, plain.A, plain.B, plain.head, frozen="A") for n in range(3)]
    plain.B, plain.head = mean_of(clients, "B"), mean_of(clients, "head")


def plain_rolora(plain, t):
    clients = [plain.tuned(n, plain.A, plain.B, plain.head, frozen="AB"[t % 2]) for n in range(3)]
    plain.A, plain.B, plain.head = (mean_of(clients, part) for part in ("A", "B", "head"))


def plain_fedex_lora(plain, t):
    clients = [plain.tuned(n, plain.A, plain.B, plain.head) for n in range(3)]
    plain.A, plain.B, plain.head = (mean_of(clients, part) for part in ("A", "B", "head"))
    for name in NAMES:
        residual = mean([own["B"][name] @ own["A"][name] for own in clients]) - plain.B[name] @ plain.A[name]
        plain.W[name] = plain.W[name] + SCALE * residual


def plain_flora(plain, t):
    clients = []
    for n, r_n in enumerate(RANKS["flora"]):
        draw = generator(0, t, n, "adapters")
        A = {name: torch.empty(R, plain.W[name].shape[1], dtype=torch.float64) for name in NAMES}
        for value in A.values():
            nn.init.kaiming_uniform_(value, a=math.sqrt(5), generator=draw)
        B = {name: torch.zeros(len(plain.W[name]), r_n, dtype=torch.float64) for name in NAMES}
        clients.append(plain.tuned(n, {name: value[:r_n] for name, value in A.items()}, B, plain.head))
    plain.head = mean_of(clients, "head")
    for name in NAMES:
        stacked_A = torch.cat([p * own["A"][name] for p, own in zip(P, clients, strict=True)])
        plain.W[name] = plain.W[name] + SCALE * torch.cat([own["B"][name] for own in clients], 1) @ stacked_A


def plain_lora_fair(plain, t):
    clients = [plain.tuned(n, plain.A, plain.B, plain.head) for n in range(3)]
    plain.A, plain.B, plain.head = (mean_of(clients, part) for part in ("A", "B", "head"))
    for name in NAMES:
        A, B = plain.A[name], plain.B[name]
        product = mean([own["B"][name] @ own["A"][name] for own in clients])
        step = 0.5 / (float(torch.linalg.svdvals(A)[0]) ** 2 / float((B @ A).norm()) ** 2 + 2 * 0.01)
        D = torch.zeros_like(B)
        for _ in range(5):
            D.requires_grad_()
            cosine = torch.cosine_similarity(product.flatten(), ((B + D) @ A).flatten(), dim=0)
            (gradient,) = torch.autograd.grad(1 - cosine + 0.01 * (D**2).sum(), D)
            D = D.detach() - step * gradient
        plain.B[name] = B + D


@pytest.mark.parametrize("name", ["ffa_lora", "rolora", "fedex_lora", "flora", "lora_fair"])
def test_two_rounds_equal_plain_loops(registry, name):
    states, method = ran(registry, name)
    plain = Plain(states[0])
    W_0 = dict(plain.W)
    for t, state in enumerate(states[1:]):
        globals()[f"plain_{name}"](plain, t)
        for at in NAMES:
            for which in "AB":
                same(factor(state, at, which), getattr(plain, which)[at])
            same(addition(state, at).expand_as(W_0[at]), plain.W[at] - W_0[at])
    same(state["shared"]["head.weight"], plain.head["weight"])
    same(method.predictor(state)(X), plain.logits(X, plain.A, plain.B, plain.head))


def test_two_rounds_of_fedsa_equal_plain_loops(registry):
    states, method = ran(registry, "fedsa_lora")
    plain = Plain(states[0])
    own = [{"B": plain.B, "head": plain.head}] * 3
    for state in states[1:]:
        own = [plain.tuned(n, plain.A, own[n]["B"], own[n]["head"]) for n in range(3)]
        plain.A = mean_of(own, "A")
        for at in NAMES:
            same(factor(state, at, "A"), plain.A[at])
    for n in range(3):
        same(method.predictor(state, client=n)(X), plain.logits(X, plain.A, own[n]["B"], own[n]["head"]))


def same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
