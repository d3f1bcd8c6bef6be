"""The global model at a size, by hand: a prefix with the head at its end, truncated rank, sliced weights."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedbench.families.layerwise import layerwise
from fedbench.models.globalmodel import GlobalModel
from fedbench.models.lowrank import pairs
from fedbench.models.param_paths import places
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Exit, Size

pytestmark = pytest.mark.usefixtures("counted_once")

X = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def trained(registry, name, depth=2, rank=3, ranks=None, **options):
    """(setup, method, state after one round of two clients)."""
    capacities = [depth, 1]
    lora = {"name": "lora", "rank": rank, "alpha": 6}
    setup = setup_of(registry, tiny_vit(depth), capacities, lora, ranks=ranks, rounds=1)
    method = registry.make("method", {"name": name, **options}, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of(capacities, ranks=ranks), generator(0, 0))
    return setup, method, state


def answer(predict):
    with torch.no_grad():
        given = predict(X)
    return next(iter(given.values())) if isinstance(given, Mapping) else given


def test_a_prefix_is_the_first_layer_and_then_the_head(registry):
    """Written out for two layers, the adapter (alpha / R) B A = 2 B A beside the weights of both its targets."""
    setup, method, state = trained(registry, "inclusivefl")
    model, block = setup.backbone.model, setup.backbone.blocks[0]
    r, head = state["r"][0], state["shared"]
    W_o, W_2 = (
        module.weight + 2 * r[f"{name}.lora_B"] @ r[f"{name}.lora_A"]
        for name, module in (("attn.proj", block.attn.proj), ("mlp.fc2", block.mlp.fc2))
    )
    with torch.no_grad():
        tokens = model._pos_embed(model.patch_embed(X))
        q, k, v = block.attn.qkv(block.norm1(tokens)).view(5, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.mT / 2).softmax(-1) @ v  # two heads of four dimensions
        tokens = tokens + mixed.transpose(1, 2).reshape(5, 5, 8) @ W_o.T + block.attn.proj.bias
        tokens = tokens + F.gelu(block.mlp.fc1(block.norm2(tokens))) @ W_2.T + block.mlp.fc2.bias
        expected = model.norm(tokens)[:, 0] @ head["head.weight"].T + head["head.bias"]
    assert torch.allclose(answer(method.at(state, Size(1))), expected, atol=1e-12)


def test_a_truncated_rank_is_the_best_approximation_of_the_whole_update(registry):
    """FlexLoRA, against numpy's SVD of (alpha / R) B A, folded into W."""
    setup, method, state = trained(registry, "flexlora", ranks=[3, 1])
    found, values = answer(method.at(state, Size(2, rank=1))), dict(places(state))
    for pair in pairs(setup.backbone):
        module = setup.backbone.blocks[int(pair.place.split("/")[1])].get_submodule(pair.place.split("/")[2])
        U, sigma, Vt = np.linalg.svd((2 * values[pair.B] @ values[pair.A]).numpy())
        module.weight.data += torch.from_numpy(sigma[0] * np.outer(U[:, 0], Vt[0]))
        module.lora_B.data.zero_()
    whole = setup.backbone(X, range(2), [Exit(2, "head")])[0]
    assert torch.allclose(found, whole, atol=1e-12)
    assert not torch.allclose(found, answer(method.predictor(state)), atol=1e-6)


def test_a_width_is_the_first_units_of_every_layer(registry):
    """FjORD at one half, against timm's own ViT of half the dimensions around slices written out by hand."""
    _, method, state = trained(registry, "fjord", rates=[0.5, 1.0], body="random")
    small = tiny_vit(2, 4).double()
    D, heads, hidden = range(4), [0, 1, 4, 5], range(8)  # of 8, of two heads of 4, of 16
    qkv = [8 * part + unit for part in range(3) for unit in heads]
    along = {"qkv": (qkv, D), "attn.proj": (D, heads), "fc1": (hidden, D), "fc2": (D, hidden)}
    for name, parameter in small.named_parameters():
        value = state["shared"][f"model.{name}"]
        kind = next((kind for kind in along if kind in name), None)
        rows, columns = along.get(kind, (D, D))
        if name in ("cls_token", "pos_embed"):
            value = value[..., list(D)]
        else:
            value = value[list(rows)]
            value = value[:, list(columns)] if kind and value.dim() == 2 else value
        parameter.data.copy_(value)
    head = state["shared"]["head.weight"][:, list(D)]
    expected = small(X) @ head.T + state["shared"]["head.bias"]
    assert torch.allclose(answer(method.at(state, Size(2, width=0.5))), expected, atol=1e-12)


def test_a_random_allocation_hands_out_the_same_layers_for_one_seed(registry):
    _, method, state = trained(registry, "fedra", depth=6, rank=2)
    models = [method.at(state, Size(3)) for _ in range(2)]
    assert models[0].layers == models[1].layers
    assert len(models[0].layers) == 3 and models[0].exits == [Exit(3, "head")]


def test_a_stranger_that_answers_in_its_own_way_says_itself_how_it_does_at_a_size(registry):
    def setup():
        return setup_of(registry, tiny_vit(2), [2, 1])

    def mean_of_both(model, state):
        return GlobalModel(model, range(2), [Exit(1, "head"), Exit(2, "head")], lambda o: (o[0] + o[1]) / 2)

    assert layerwise(setup(), "prefix", predict=mean_of_both).at is None
    assert layerwise(setup(), "prefix").at is not None


# By shipped method: at which of two sizes there is a model of its own.
EVERY, FULL, ONE, SERVER = (1, 2), (2,), "its one model alone", "needs the server"
RULES = {
    **dict.fromkeys(("fedra", "inclusivefl", "depthfl", "reefl", "allsmall", "local_only", "fedsa_lora"), EVERY),
    **dict.fromkeys(("ffa_lora", "rolora", "fedex_lora", "lora_fair"), EVERY),
    **dict.fromkeys(("fedit", "hetlora", "flexlora", "flora", "raflora", "fed_plora"), EVERY),
    **dict.fromkeys(("alllarge", "head_only", "exclusive", "fed_hello"), FULL),
    **dict.fromkeys(("heterofl", "fedrolex", "fjord"), EVERY),
    **dict.fromkeys(("fedavg", "ditto", "fedrod", "majority", "zero_round"), ONE),
    **dict.fromkeys(("fedv", "fedvz", "festa", "splitlora"), SERVER),
}


# One of each rule and family; the others share their code.
OFTEN = (
    *("fedra", "depthfl", "reefl", "allsmall", "hetlora", "flora", "exclusive", "fed_hello"),
    *("fjord", "fedavg", "fedv"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in sorted(RULES)]
)
def test_every_shipped_method_has_its_rule(registry, name):
    """The largest size is the global model; what is smaller takes no more memory and answers."""
    setup = replace(setup_of(registry, tiny_vit(2), [2, 1], rounds=1), by_client=True)
    method = registry.make("method", {"name": name}, setup=setup)
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([2, 1], steps=1), generator(0, 0))
    width = name in ("heterofl", "fedrolex", "fjord")
    sizes = [Size(2, width=g) for g in (0.5, 1.0)] if width else [Size(1), Size(2)]
    running = [method.running(size) for size in sizes]
    if RULES[name] in (ONE, SERVER):
        assert method.at is None
        assert all((bytes is None) == (RULES[name] == SERVER) for bytes in running)
        return
    assert [depth for depth, bytes in zip((1, 2), running, strict=True) if bytes is not None] == list(RULES[name])
    found = [answer(method.at(state, size)) for size in sizes if method.running(size) is not None]
    assert all(logits.shape == (5, 3) and logits.isfinite().all() for logits in found)
    assert torch.allclose(found[-1], answer(method.predictor(state)), atol=1e-12)
    assert running[-1] >= (running[0] or 0)
