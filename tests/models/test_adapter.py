"""Where adapters attach in each profile, and the dropout every engine shares."""

import pytest
import torch

from fedbench.errors import UserError
from fedbench.models.adapter import SeededDropout, seed_dropout
from fedbench.models.backbone import Blocks
from fedbench.simulation.simulation import attaching
from fedbench.testing.setups import tiny_mixer, tiny_vit


def adapted(registry, model, **options):
    blocks = Blocks(model)
    registry.make("adapter", {"name": "lora", "rank": 2, "alpha": 4, **options})(blocks)
    return blocks


def targets(blocks):
    return sorted({name.rsplit(".", 1)[0] for name in blocks.r(0)})


def test_last_fc_of_a_vit_is_the_projection_and_the_second_mlp_layer(registry):
    assert targets(adapted(registry, tiny_vit())) == ["attn.proj", "mlp.fc2"]


def test_last_fc_of_a_mixer_is_fc2_of_both_mlps(registry):
    assert targets(adapted(registry, tiny_mixer())) == ["mlp_channels.fc2", "mlp_tokens.fc2"]


def test_reference_targets_hit_the_patch_embedding_of_a_vit_too(registry):
    blocks = adapted(registry, tiny_vit(), targets="reference")
    assert targets(blocks) == ["attn.proj", "mlp.fc2"]
    shapes = {name: tuple(p.shape) for name, p in blocks.shared().items()}
    # PEFT's form: an r-channel convolution of the same kernel, then a 1x1 convolution
    assert shapes == {"model.patch_embed.proj.lora_A": (2, 3, 4, 4), "model.patch_embed.proj.lora_B": (8, 2, 1, 1)}


def test_named_targets(registry):
    assert targets(adapted(registry, tiny_vit(), targets=["attn.qkv"])) == ["attn.qkv"]
    with pytest.raises(UserError, match=r"no module is called 'atn.proj'.*did you mean 'attn.proj'"):
        adapted(registry, tiny_vit(), targets=["atn.proj"])
    with pytest.raises(UserError, match="is a LayerNorm; LoRA adapts Linear and Conv2d"):
        adapted(registry, tiny_vit(), targets=["norm1"])


def test_dropout_is_seeded_scaled_and_off_without_a_generator():
    dropout = SeededDropout(0.25)
    x = torch.ones(4000)
    assert torch.equal(dropout(x), x)
    dropout.generator = torch.Generator().manual_seed(0)
    y = dropout(x)
    assert sorted(y.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    # 4,000 Bernoulli draws: 4.5 standard deviations are a false alarm of 7e-6
    assert abs((y == 0).sum().item() - 1000) < 4.5 * (4000 * 0.25 * 0.75) ** 0.5


def test_seed_dropout_reaches_every_adapter(registry):
    blocks = adapted(registry, tiny_vit(), dropout=0.5)
    generator = torch.Generator()
    seed_dropout(blocks, generator)
    found = [m.generator for m in blocks.modules() if isinstance(m, SeededDropout)]
    assert len(found) == 8 and all(g is generator for g in found)


def test_what_a_constructor_draws_from_torch_follows_from_the_cells_seed_alone():
    """Frozen random matrices, which no state has: a cell that goes on must find them again."""

    def frozen(seed, elsewhere):
        torch.manual_seed(elsewhere)
        where = torch.get_rng_state()
        blocks = Blocks(tiny_vit())
        attaching(lambda: lambda blocks: blocks.register_buffer("V", torch.randn(3)), {"name": "v"}, seed)(blocks)
        assert torch.equal(torch.get_rng_state(), where)
        return blocks.V.tolist()

    assert frozen(1, elsewhere=5) == frozen(1, elsewhere=6) != frozen(2, elsewhere=5)
