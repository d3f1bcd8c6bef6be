"""What holds for every adapter beside LoRA: what is sent, where the model starts, and what can be exported."""

import pytest
import torch

from fedbench.errors import UserError
from fedbench.export.parts import parts_of
from fedbench.families.layerwise import head_at_end
from fedbench.models.backbone import Blocks
from fedbench.models.cost import pricing, whole
from fedbench.models.globalmodel import GlobalModel
from fedbench.testing.setups import CLASSES, TRAIN, tiny_mixer, tiny_vit
from fedbench_plugins.objectives import cross_entropy

D, H = 8, 16  # of the tiny ViT: channels, and the MLP's hidden ones
# adapter, numbers in a layer, numbers outside of layers
ADDED = [
    ({"name": "bitfit"}, 7 * D + H, 0),  # norm1 D, qkv 3 D, proj D, norm2 D, fc1 H, fc2 D
    ({"name": "bitfit", "targets": ["attn.qkv", "mlp.fc1"]}, 3 * D + H, 0),
    ({"name": "full"}, 8 * D + 4 * D * D + 2 * D * H + D + H, 0),  # bitfit's, the norms' weights, all products
    ({"name": "ia3"}, 2 * D + H, 0),
    ({"name": "bottleneck", "size": 2}, 2 * (2 * 2 * D + 2 + D), 0),
    ({"name": "bottleneck", "size": 2, "where": "mlp"}, 2 * 2 * D + 2 + D, 0),
    ({"name": "vpt", "prompts": 3}, 0, 3 * D),
    ({"name": "vpt", "prompts": 3, "deep": True}, 3 * D, 0),
]


@pytest.mark.parametrize(("adapter", "inside", "outside"), ADDED, ids=str)
def test_what_an_adapter_adds_is_sent_up_and_its_frozen_model_once(adapted, adapter, inside, outside):
    blocks, plain = adapted(tiny_vit(), **adapter), Blocks(tiny_vit()).double()
    head, replaced = CLASSES * (D + 1), inside if adapter["name"] in ("bitfit", "full") else 0
    for depth in (1, 2):
        cost = pricing(blocks, cross_entropy, TRAIN, 8)(whole(depth, head_at_end(depth)))
        assert cost.bytes_up == 8 * (depth * inside + outside + head)
        frozen = plain.frozen_bytes(depth) - 8 * depth * replaced
        assert cost.bytes_down == cost.bytes_up + frozen and cost.memory_bytes > cost.bytes_down


def features(blocks, x):
    with torch.no_grad():
        return blocks.pooled(x)


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("name", ["bitfit", "full", "ia3", "bottleneck"])
def test_at_the_start_the_model_is_the_frozen_one(adapted, model, name):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    wanted = features(Blocks(model()).double().eval(), x)
    blocks = adapted(model(), name=name)
    tolerance = 5e-3 if name == "bottleneck" else 1e-12  # which starts near the identity, of weights of size 0.01
    torch.testing.assert_close(features(blocks, x), wanted, rtol=tolerance, atol=tolerance)
    trained = [p for p in blocks.model.parameters() if p.requires_grad]
    with torch.no_grad():
        torch._foreach_add_(trained, 0.3)
    assert (features(blocks, x) - wanted).abs().max() > 0.01
    blocks.draw(torch.Generator().manual_seed(0))
    torch.testing.assert_close(features(blocks, x), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("adapter", [adapter for adapter, _, _ in ADDED], ids=str)
def test_only_what_a_plain_model_has_a_place_for_can_be_exported(adapted, adapter):
    """Tuned biases and weights go into the plain model, which then answers the same."""
    blocks = adapted(tiny_vit(), **adapter)
    with torch.no_grad():
        torch._foreach_mul_([p for p in blocks.model.parameters() if p.requires_grad], 1.1)
    model = GlobalModel(blocks, range(4), head_at_end(4))
    if adapter["name"] not in ("bitfit", "full"):
        with pytest.raises(UserError, match="is trained, and a plain model has no place for it: models with the adap"):
            parts_of(model, 8)
        return
    plain = tiny_vit().double().eval()
    lost = plain.load_state_dict(parts_of(model, 8).frozen, strict=False)
    assert not lost.unexpected_keys and not [name for name in lost.missing_keys if not name.startswith("head")]
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(features(Blocks(plain), x), features(blocks, x), rtol=1e-12, atol=1e-12)
