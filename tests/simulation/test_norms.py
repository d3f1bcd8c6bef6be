"""The norms behind layers.parquet: of a mean of products, from its factors alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedbench.simulation.layer_effects import factors, norm_of_mean
from fedbench.testing.setups import setup_of, tiny_vit

LORA = {"name": "lora", "rank": 2, "alpha": 6.0, "targets": "reference"}

sizes = st.integers(1, 6)


@given(n=sizes, out=sizes, rank=sizes, features=sizes, seed=st.integers(0, 2**31))
def test_norm_of_a_mean_product_needs_no_whole_matrix(n, out, rank, features, seed):
    draw = torch.Generator().manual_seed(seed)
    B = torch.randn(n, out, rank, generator=draw, dtype=torch.float64)
    A = torch.randn(n, rank, features, generator=draw, dtype=torch.float64)
    weights = torch.rand(n, generator=draw) + 0.1
    whole = torch.einsum("n,nor,nri->oi", (weights / weights.sum()).double(), B, A).norm()
    torch.testing.assert_close(norm_of_mean(B, A, weights), whole, rtol=1e-6, atol=1e-7 * float(B.norm() * A.norm()))


def test_factors_multiply_to_what_the_adapter_adds(registry):
    """For Linear layers to the weight, for convolutions to the kernel."""
    setup = setup_of(registry, tiny_vit(depth=2), [2], LORA)
    setup.adapter(model := setup.backbone)
    for module in (model.blocks[0].mlp.fc2, model.model.patch_embed.proj):
        for p in (module.lora_A, module.lora_B):
            nn.init.normal_(p, generator=torch.Generator().manual_seed(1))
        ((B, A),) = factors(module, {"lora_A": module.lora_A[None], "lora_B": module.lora_B[None]})
        low_rank = module.low_rank()
        added = (B[0] @ A[0]).view_as(low_rank.weight)
        torch.testing.assert_close(low_rank.weight + added, low_rank.merged())


def test_what_it_computes_is_little_beside_a_round(registry):
    """A ViT of 64 features and rank 8, as the embedded one: under 2 % of the FLOPs of ten steps of 32 images."""
    clients, D, H, r, tokens = 6, 64, 256, 8, 17
    draw = torch.Generator().manual_seed(0)
    weights = torch.ones(clients)
    with FlopCounterMode(display=False) as counter:
        for out, features in ((D, D), (D, H)):
            B, A = torch.randn(clients, out, r, generator=draw), torch.randn(clients, r, features, generator=draw)
            norm_of_mean(B, A, weights)
            norm_of_mean(B - B.mean(0), A - A.mean(0), weights)
    weight_flops = 2 * (4 * D * D + 2 * D * H)  # forward of one token through one layer
    a_round = clients * 10 * 32 * tokens * weight_flops * 2  # forward, and at least as much backward
    assert counter.get_total_flops() < 0.02 * a_round
