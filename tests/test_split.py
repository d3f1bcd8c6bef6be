"""Where a model is cut, who starts where, and what split learning costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory import Allocated, live_bytes

from fedbench.backbone import Blocks, Plain
from fedbench.clientstore import ClientStore
from fedbench.cost import Sent
from fedbench.errors import NotApplicable, UserError
from fedbench.faults import Faults
from fedbench.guard import Guard, received
from fedbench.method import Method
from fedbench.objective import cross_entropy
from fedbench.seeding import generator
from fedbench.split import price, split
from fedbench.split.cut import Cut
from fedbench.split.server import ZerothOrder
from fedbench.state import load, save
from fedbench.testing.methods import check_method
from fedbench.testing.world import CLASSES, TRAIN, cohort_of, same, setup_of, tiny_mixer, tiny_vit

L, T, D, H, C = 4, 5, 8, 16, CLASSES
SHAPE = {"img_size": 8, "patch_size": 4, "embed_dim": D, "depth": L, "num_heads": 2, "mlp_ratio": 2.0}


def distilled():
    """A DeiT with a distillation token."""
    from timm.models.deit import VisionTransformerDistilled

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformerDistilled(**SHAPE, num_classes=0)


def averaging():
    """A ViT without class token, as some of timm's are: mean pooling, a norm behind it, scaled layers."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformer(
            **SHAPE, num_classes=0, global_pool="avg", class_token=False, init_values=0.1, pre_norm=True
        )


MODELS = [tiny_vit, tiny_mixer, distilled, averaging]
CUTS = [(0, 0), (1, 0), (0, 1), (2, 1), (1, 2)]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(("head", "tail"), CUTS)
def test_the_three_parts_are_the_whole(make, head, tail):
    cut = Cut(Blocks(make()), C, head, tail)
    x = torch.randn(3, 3, 8, 8)
    h = cut.H(x)
    b = cut.E(h)
    assert h.dim() == 3
    assert b.shape == ((3, D) if tail == 0 else h.shape)
    torch.testing.assert_close(cut.T(b), cut.model.classifiers["head"](cut.model.pooled(x)), rtol=0, atol=0)
    names = [*cut.w_H, *cut.w_E, *cut.w_T]
    wanted = {name.removeprefix("classifiers.") for name, _ in cut.model.named_parameters()}
    assert len(names) == len(set(names))
    assert set(names) == wanted
    assert sorted([*cut.w_H, *cut.w_T]) == cut.own_names


def test_head_and_tail_are_as_described():
    cut = Cut(Blocks(distilled()), C)
    assert set(cut.w_H) == {
        *("model.cls_token", "model.dist_token", "model.pos_embed"),
        *("model.patch_embed.proj.weight", "model.patch_embed.proj.bias"),
    }
    assert set(cut.w_T) == {"head.weight", "head.bias"}
    cut = Cut(Blocks(tiny_vit()), C, 1, 2)
    blocks = {
        part: {n.split(".")[2] for n in w if ".blocks." in n} for part, w in zip("HET", cut_parts(cut), strict=True)
    }
    assert blocks == {"H": {"0"}, "E": {"1"}, "T": {"2", "3"}}
    assert {"model.norm.weight", "model.norm.bias"} <= cut.w_T.keys()


def cut_parts(cut):
    return cut.w_H, cut.w_E, cut.w_T


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(("head", "tail"), CUTS)
def test_gradients_reach_their_parts_alone(make, head, tail):
    """The loss reaches every weight of head and tail, and none of a frozen encoder."""
    cut = Cut(Blocks(make()), C, head, tail)
    cross_entropy([cut.T(cut.E(cut.H(torch.randn(3, 3, 8, 8))))], torch.tensor([0, 1, 2]), 0).backward()
    assert all(p.grad is not None for p in cut.own.values())
    assert all(p.grad is None for p in cut.w_E.values())


@pytest.mark.parametrize("make", MODELS)
def test_starts_are_as_timm_draws_them(make):
    """Each client's own, the same again, and of the deviation that timm gives such a layer."""
    cut = Cut(Blocks(make()), C, 1, 1)
    one, again, other = cut.start(0, 1), cut.start(0, 1), cut.start(0, 2)
    assert list(one) == cut.own_names
    assert all(torch.equal(one[name], again[name]) for name in one)
    drawn = [name for name, value in one.items() if (value != value.flatten()[0]).any()]
    assert len(drawn) > 5
    assert all(not torch.equal(one[name], other[name]) for name in drawn)
    usual = dict(Blocks(make()).named_parameters())
    for name in one:
        if name.startswith("model."):
            spread, wanted = one[name].std(unbiased=False), usual[name].std(unbiased=False)
            if name in drawn:
                apart = 1 + 10 / one[name].numel() ** 0.5  # of two draws; a wrong rule differs by its scale
                assert 1 / apart < spread / wanted < apart, name
            else:
                torch.testing.assert_close(one[name], usual[name], msg=name)


def test_a_pretrained_start_is_the_backbones_but_for_the_classifier():
    blocks = Blocks(tiny_vit())
    before = {name: p.clone() for name, p in blocks.named_parameters()}
    cut = Cut(blocks, C, 1, 1, "pretrained")
    cut.wear(cut.start(0, 5))
    for p in cut.own.values():
        p.add_(1)  # what a client does to its own is nobody else's
    one, other = cut.start(0, 1), cut.start(0, 2)
    assert all(torch.equal(one[name], before[name]) for name in one if name.startswith("model."))
    assert not torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"head_blocks": -1}, "head_blocks is a whole number"),
        ({"tail_blocks": True}, "tail_blocks is a whole number"),
        ({"head_blocks": 1.5}, "head_blocks is a whole number"),
        ({"head_blocks": 2, "tail_blocks": 2}, "at least one stays on the server"),
        ({"client_start": "zero"}, "client_start is pretrained or random"),
        ({"learns": "never"}, "learns is"),
        ({"fedround": 0}, "fedround is a whole number from 1 on"),
        ({"num_directions": 0}, "num_directions is a whole number from 1 on"),
        ({"server_lr": -1}, "server_lr is a number above 0"),
        ({"server_lr": float("nan")}, "server_lr is a number above 0"),
        ({"epsilon": 0}, "epsilon is a number above 0"),
        ({"server_decay": "half"}, "server_decay is a number above 0"),
    ],
)
def test_what_means_nothing_is_refused(registry, options, told):
    with pytest.raises(UserError, match=told):
        split(setup_of(registry, tiny_vit(), [L]), **options)


def test_what_cannot_be_cut_or_pulled_is_not_applicable(registry):
    class Whole(torch.nn.Linear):
        num_features = 4

    with pytest.raises(NotApplicable, match="cannot be cut"):
        split(replace(setup_of(registry, tiny_vit(), [L]), backbone=Plain(Whole(4, 4))))
    with pytest.raises(NotApplicable, match="regularisers"):
        split(setup_of(registry, tiny_vit(), [L], regularizer={"fedprox": 0.1}))


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {"name": "fedv", "fedround": 1, "head_blocks": 1, "tail_blocks": 1, "client_start": "pretrained"},
        {"name": "fedv", "server_lr": 0},
        {"name": "fedvz", "num_directions": 2, "tail_blocks": 1},
        {"name": "festa", "fedround": 2, "head_blocks": 2},
    ],
    ids=lambda options: options["name"] + str(options.get("server_lr", "")),
)
def test_options_keep_the_contract(registry, make, options):
    check_method(lambda setup: registry.make("method", options, setup=setup), registry, make)


def test_aggregators_work_on_heads_and_tails(registry):
    """The coordinate-wise median of three clients' heads, not of the encoder's gradient."""
    setup = setup_of(registry, tiny_vit(), [L] * 3)
    method = registry.make("method", {"name": "fedv", "aggregator": "coordinate_median"}, setup=setup)
    state, report = method.round(method.init(generator(0)), 0, cohort_of([L] * 3), generator(0, 0))
    for name, rows in report.uploads.shared.items():
        torch.testing.assert_close(state["shared"][name], rows.median(0).values)


def test_only_clients_of_the_round_are_loaded(registry):
    """And a round leaves no client's tensors in the state."""
    setup = setup_of(registry, tiny_vit(), [L] * 9)
    method, asked = registry.make("method", {"name": "fedv"}, setup=setup), []
    usual = setup.store.get
    setup.store.get = lambda key, device="cpu": asked.append(key) or usual(key, device)
    state = method.init(generator(0))
    for t, ids in enumerate(([0, 1, 2, 3], [3, 8])):
        state, _ = method.round(state, t, cohort_of([L] * len(ids), ids=ids), generator(0, t))
    assert len(asked) == 1
    assert sorted(state["clients"]) == ["0", "1", "2", "3", "8"]
    assert len({state["clients"][i] for i in "012"}) == 1, "who got the average keeps the same file"


@pytest.mark.parametrize("name", ["fedv", "fedvz"])
def test_a_hundred_clients_do_not_cost_a_hundred_models_of_memory(registry, monkeypatch, name):
    """All of them in one round, counted when every tenth puts its head and tail away."""
    setup = setup_of(registry, tiny_vit(dim=32), [L] * 100)
    method = registry.make("method", {"name": name, "head_blocks": 1, "tail_blocks": 2}, setup=setup)
    state = method.init(generator(0))
    one, before, most = sum(w.nbytes for w in state["shared"].values()), live_bytes(), []
    put = ClientStore.put

    def counted(store, own):
        most.append(live_bytes() if len(most) % 10 == 9 else 0)
        return put(store, own)

    monkeypatch.setattr(ClientStore, "put", counted)
    state = method.round(state, 1, cohort_of([L] * 100, steps=1), generator(0, 1))[0]
    assert len(state["clients"]) == len(most) == 100
    assert 2 < (max(most) - before) / one < 6  # its start, its weights, gradient, momentum; and the encoder's gradient
    assert max(most) - most[9] < one / 10


def spoilt(setup, kind, client=1):
    """A set-up in which that client's messages arrive spoilt, in every round."""
    faults = Faults({"corrupted": {"probability": 1.0, "kind": kind}}, seed=0)
    usual = faults.kind_of
    faults.kind_of = lambda t, i: usual(t, i) if i == client else ""
    return replace(setup, receive=lambda *of_a_round: received(*of_a_round, faults, Guard()))


@pytest.mark.parametrize("name", ["fedv", "fedvz", "festa"])
@pytest.mark.parametrize("t", [0, 1])
@pytest.mark.parametrize("kind", ["nan", "wrong_shape"])
def test_of_a_refused_client_nothing_remains(registry, name, t, kind):
    """Whether heads and tails are averaged or not, it is as if its work had been lost."""
    spoiling, well = (setup_of(registry, tiny_vit(), [L] * 3) for _ in range(2))
    a, b = (registry.make("method", {"name": name}, setup=one) for one in (spoilt(spoiling, kind), well))
    cohort = cohort_of([L] * 3)
    with_it, report = a.round(a.init(generator(0)), t, cohort, generator(0, t))
    lost = replace(cohort, arrives=torch.tensor([True, False, True]))
    without, _ = b.round(b.init(generator(0)), t, lost, generator(0, t))
    assert same(with_it, without)
    assert list(report.uploads.rejected) == [1]
    assert report.uploads.arrived.tolist() == [True, False, True]


def test_what_a_client_keeps_is_not_spoilt_on_the_way(registry):
    """Boosted a million times, a message moves the encoder; the client's own head and tail it does not, unless they
    were sent."""
    setups = [setup_of(registry, tiny_vit(), [L] * 3) for _ in range(2)]
    a, b = (registry.make("method", {"name": "fedv"}, setup=s) for s in (spoilt(setups[0], "scaled"), setups[1]))
    for t, sent in ((1, False), (0, True)):
        one, two = (m.round(m.init(generator(0)), t, cohort_of([L] * 3), generator(0, t))[0] for m in (a, b))
        assert not same(one["encoder"], two["encoder"])
        assert (one["clients"] == two["clients"]) != sent


def test_a_state_read_from_disk_goes_on_as_it_was(registry, tmp_path):
    setup = setup_of(registry, tiny_vit(), [L] * 3)
    for name in ("fedv", "fedvz", "festa"):
        method, again = (registry.make("method", {"name": name, "fedround": 2}, setup=setup) for _ in range(2))
        state = method.init(generator(0))
        for t in range(2):
            state, _ = method.round(state, t, cohort_of([L] * 3), generator(0, t))
        save(tmp_path / name, state)
        again.init(generator(0))
        ends = [
            m.round(s, 2, cohort_of([L] * 3), generator(0, 2))[0]
            for m, s in ((method, state), (again, load(tmp_path / name)))
        ]
        assert same(*ends)


# --- what it costs ------------------------------------------------------------------------------------------------


def matmul(m, k, n):
    return 2 * m * k * n


BLOCK = 2 * matmul(T, D, T) + matmul(T, D, 3 * D) + matmul(T, D, D) + matmul(T, D, H) + matmul(T, H, D)
DENSE = matmul(T, D, 3 * D) + matmul(T, D, D) + matmul(T, D, H) + matmul(T, H, D)  # with weights
BLOCK_BACK = 4 * matmul(T, D, T) + DENSE  # to its input
PATCHES = matmul(4, 3 * 4 * 4, D)
HEAD = matmul(1, D, C)
BYTES = 4
OF_BLOCK = D * 3 * D + 3 * D + D * D + D + 2 * D * H + H + D + 4 * D
OF_HEAD = 3 * 4 * 4 * D + D + D + T * D  # patches, class token, positions
OF_TAIL = D * C + C


def cost(registry, t=1, **options) -> Method:
    setup = setup_of(registry, tiny_vit(), [L])
    return split(replace(setup, backbone=Blocks(tiny_vit())), **options).cost(L, t)


def test_flops_equal_a_count_by_hand(registry):
    """Of client and server, forward and backward; the server's own gradient at the last step alone."""
    c = cost(registry)
    assert c.flops_per_image == 2 * PATCHES + 3 * HEAD  # patches: no gradient of images
    assert c.flops_last == 0
    assert c.server.flops_per_image == L * (BLOCK + BLOCK_BACK)
    assert c.server.flops_last == L * DENSE
    festa = cost(registry, learns="every_step")
    assert festa.server.flops_per_image == L * (BLOCK + BLOCK_BACK + DENSE)
    assert festa.server.flops_last == 0
    frozen = cost(registry, server_lr=0)
    assert frozen.server.flops_per_image == c.server.flops_per_image
    assert frozen.server.flops_last == 0


def test_flops_of_spsa_are_forward_passes(registry):
    c = cost(registry, learns="losses", num_directions=3)
    assert c.server.flops_per_image == L * (BLOCK + BLOCK_BACK)
    assert c.server.flops_last == 6 * L * BLOCK
    assert c.flops_last == 6 * HEAD
    assert c.flops(images=10, last=4) == 10 * c.flops_per_image + 4 * c.flops_last
    assert c.flops(10, 4, arrives=False) == 10 * c.flops_per_image


def test_flops_move_with_the_cut(registry):
    c = cost(registry, head_blocks=1, tail_blocks=2)
    trained = BLOCK + BLOCK_BACK + DENSE
    assert c.flops_per_image == 2 * PATCHES + 3 * trained + 3 * HEAD
    assert c.server.flops_per_image == BLOCK + BLOCK_BACK


def test_bytes_equal_a_count_by_hand(registry):
    h, b = BYTES * T * D, BYTES * D
    c = cost(registry)
    assert c.sent == (
        Sent("features", down_per_image=b, up_per_image=h),
        Sent("gradients", down_per_image=h, up_per_image=b),
    )
    assert (c.bytes_down, c.bytes_up) == (0, 0)
    own = BYTES * (OF_HEAD + OF_TAIL)
    averaged = cost(registry, t=100)
    assert averaged.sent == (*c.sent, Sent("weights", up=own, down_after=own))
    assert averaged.exchange(20, 5)[-1] == ("weights", own, own)
    assert averaged.exchange(20, 5, arrives=False)[-1] == ("weights", 0, 0)
    assert averaged.exchange(20, 5, refused=True)[-1] == ("weights", 0, own)
    spsa = cost(registry, learns="losses", num_directions=3)
    assert spsa.sent[0] == Sent("features", down_per_image=b, up_per_image=h, down_last=6 * b)
    assert spsa.sent[2] == Sent("losses", up=6 * BYTES)


def test_bytes_move_with_the_cut(registry):
    c = cost(registry, t=0, head_blocks=1, tail_blocks=1)
    h = BYTES * T * D
    assert (c.sent[0].down_per_image, c.sent[0].up_per_image) == (h, h)
    assert c.bytes_up == BYTES * (OF_HEAD + 2 * OF_BLOCK + 2 * D + OF_TAIL)


def test_memory_is_what_each_side_holds(registry):
    setup = setup_of(registry, tiny_vit(), [L])
    cut = Cut(Blocks(tiny_vit()), C)
    prices = price.measure(cut, cross_entropy, 8)
    own, encoder = BYTES * (OF_HEAD + OF_TAIL), BYTES * (L * OF_BLOCK + 2 * D)
    assert (prices.H.weights + prices.T.weights, prices.E_trained.weights) == (own, encoder)
    batch = setup.train["batch_size"]
    fc = BYTES * (D * 3 * D + 3 * D)  # queries, keys and values, of all modules the largest
    for learns, copies, more, part in (
        ("last_step", 3, 0, prices.E_trained),
        ("losses", 1, fc, prices.E),
        (None, 1, 0, prices.E),
    ):
        c = price.of_client(prices, TRAIN, learns=learns, directions=learns == "losses")
        assert c.server.memory_bytes == copies * encoder + more + batch * part.passes.saved
        assert c.memory_bytes == 3 * own + batch * (prices.H.passes.saved + prices.T.passes.saved)  # with momentum
    assert 0 < prices.E.passes.saved < prices.E_trained.passes.saved


@pytest.mark.parametrize("blocks", [(0, 0), (1, 2)])
def test_the_memory_of_a_server_that_learns_from_losses_is_what_it_allocates(registry, blocks):
    """Beside w_E: to send gradients back, to learn its own, and to step by them. Saved activations and a module's copy,
    which are billed together, are there one after the other."""
    vit = tiny_vit(dim=32)
    for block in vit.blocks:
        block.attn.fused_attn = False
    cut, B = Cut(Blocks(vit), C, *blocks), 4
    billed = price.of_client(
        price.measure(cut, cross_entropy, 8), {**TRAIN, "batch_size": B}, learns="losses", directions=3
    )
    server, y = ZerothOrder(cut, 0, 1e-4, 3), torch.zeros(B, dtype=torch.long)
    h = cut.H(torch.randn(B, 3, 8, 8)).detach().requires_grad_(True)
    with Allocated() as there:
        cut.E(h).sum().backward()
    with Allocated() as learning, torch.no_grad():
        server.take(server.ask(h, lambda b: cross_entropy([cut.T(b)], y, 0), 0, 0), 0, 0)
    with Allocated() as stepping:
        server.step(cut.w_E, 0.1)
    w_E, one = sum(w.nbytes for w in cut.w_E.values()), 4 * (32 * 96 + 96)  # queries, keys and values
    counted = w_E + max(count.peak for count in (there, learning, stepping))
    assert counted <= billed.server.memory_bytes < 1.2 * counted
    assert stepping.peak <= one, "no second w_E"
