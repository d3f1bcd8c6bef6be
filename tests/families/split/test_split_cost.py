"""fedbench/families/split/split_cost.py: what split learning costs either side, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory import Allocated
from uncut import C, D, H, L, T

from fedbench.families.split import split, split_cost
from fedbench.families.split.cut import Cut
from fedbench.families.split.server import ZerothOrder
from fedbench.method import Method
from fedbench.models.backbone import Blocks
from fedbench.testing.setups import TRAIN, setup_of, tiny_vit
from fedbench.types import Sent
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once")


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
    prices = split_cost.measure(cut, cross_entropy, 8)
    own, encoder = BYTES * (OF_HEAD + OF_TAIL), BYTES * (L * OF_BLOCK + 2 * D)
    assert (prices.H.weights + prices.T.weights, prices.E_trained.weights) == (own, encoder)
    batch = setup.train["batch_size"]
    fc = BYTES * (D * 3 * D + 3 * D)  # queries, keys and values, of all modules the largest
    for learns, copies, more, part in (
        ("last_step", 3, 0, prices.E_trained),
        ("losses", 1, fc, prices.E),
        (None, 1, 0, prices.E),
    ):
        c = split_cost.of_client(prices, TRAIN, learns=learns, directions=learns == "losses")
        assert c.server.memory_bytes == copies * encoder + more + batch * part.passes.saved
        assert c.memory_bytes == 3 * own + batch * (prices.H.passes.saved + prices.T.passes.saved)  # with momentum
    assert 0 < prices.E.passes.saved < prices.E_trained.passes.saved
    plain, *others = (
        split_cost.of_client(prices, TRAIN, learns="every_step", server_optimizer=optimizer).server.memory_bytes
        for optimizer in (None, {"name": "adamw"}, {"name": "sgd", "momentum": 0.9}, {"name": "sgd", "momentum": 0.0})
    )
    assert [other - plain for other in others] == [2 * encoder, encoder, 0]  # what it remembers of every weight


def test_festas_server_keeps_moments_and_fedvs_does_not(registry):
    def memory(name: str, **options) -> int:
        method = registry.make("method", {"name": name, **options}, setup=setup_of(registry, tiny_vit(), [L]))
        return method.cost(L, 1).server.memory_bytes

    encoder = 8 * (L * OF_BLOCK + 2 * D)
    assert memory("festa") - memory("festa", server_optimizer={"name": "sgd"}) == 2 * encoder
    assert memory("fedv", server_optimizer={"name": "adamw"}) - memory("fedv") == 2 * encoder
    frozen = {"server_lr": 0, "server_optimizer": {"name": "adamw"}}
    assert memory("fedv", **frozen) == memory("fedv", server_lr=0)


def test_the_memory_of_a_server_that_learns_from_losses_is_what_it_allocates():
    """Beside w_E: to send gradients back, to learn its own, and to step by them. Saved activations and a module's copy,
    which are billed together, are there one after the other."""
    vit = tiny_vit(dim=32)
    for block in vit.blocks:
        block.attn.fused_attn = False
    cut, B = Cut(Blocks(vit), C, 1, 2), 4
    billed = split_cost.of_client(
        split_cost.measure(cut, cross_entropy, 8), {**TRAIN, "batch_size": B}, learns="losses", directions=3
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
