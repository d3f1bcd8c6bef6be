"""A global model's answers by less work, against its own."""

import pytest
import torch
from engine.test_cohort import ADAPTERS, OTHERS
from engine.test_compiling import MOST
from engine.test_compiling import counting as counting

from fedbench.engine import answering, shortcuts
from fedbench.models.adapter import fold
from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel
from fedbench.testing.world import tiny_mixer, tiny_vit
from fedbench.types import Exit

SIZES = [7, 3, 1]  # of an evaluation's passes


def close(one, two):
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(("layers", "exits", "cut"), [([0, 2], [1, 2], True), ([0, 2], [1], False), ([], [0], False)])
def test_a_global_model_answers_the_same_by_its_class_token_alone(layers, exits, cut):
    """In its last layer, where a classifier stands behind that; earlier classifiers read what they always read."""
    vit = Blocks(tiny_vit()).double().eval()
    for name in {f"e{depth}" for depth in exits}:
        vit.add_classifier(name, 3)
    model = GlobalModel(vit, layers, [Exit(depth, f"e{depth}") for depth in exits], torch.stack)
    x, seen = torch.randn(2, 3, 8, 8, dtype=torch.float64), []
    plain = model(x)
    vit.blocks[2].mlp.register_forward_hook(lambda module, given, out: seen.append(out.shape[1]))
    close(answering.answer(model, x), plain)
    assert seen == ([1] if cut else [5] if layers else [])


def test_what_is_no_global_model_answers_itself():
    class Own(Blocks):
        def forward(self, x, layers, exits):
            return [x]

    assert answering.answer(lambda x: x + 1, torch.zeros(1)) == 1
    assert answering.answer(GlobalModel(Own(tiny_vit()), [0], [Exit(1, "head")]), torch.zeros(1)) == 0


@torch.no_grad()
@pytest.mark.parametrize(
    ("adapter", "make"),
    [
        (ADAPTERS["plain"], tiny_vit),
        pytest.param(ADAPTERS["plain"], tiny_mixer, marks=pytest.mark.slow),
        *(pytest.param(OTHERS[name], tiny_vit, marks=pytest.mark.slow) for name in ("bitfit", "ia3", "bottleneck")),
    ],
    ids=lambda one: one.__name__ if callable(one) else one["name"],
)
def test_few_graphs_serve_all_evaluations(registry, counting, adapter, make):
    """Of whichever layers, with a short last batch, by weights that change in between, folded or not."""
    model = Blocks(make(12)).double().eval()
    registry.make("adapter", adapter)(model)
    model.double()
    model.add_classifier("head", 3)
    made = []
    for t, layers in enumerate([range(12), [0, 3, 7], range(5)]):
        model.draw(torch.Generator().manual_seed(t))
        for parameter in model.trained().values():
            parameter.add_(torch.rand_like(parameter))
        if t != 1:
            fold(model)
        one = GlobalModel(model, list(layers), [Exit(len(layers), "head")])
        for B in SIZES:
            x = torch.randn(B, 3, 8, 8, dtype=torch.float64)
            counting.asked = counting.ran = 0
            found, asked, ran = answering.answer(one, x), counting.asked, counting.ran
            close(found, one(x))
            assert asked == len(layers) and ran == (0 if B == 1 else asked)
        made.append(counting.graphs)
    assert 0 < made[0] <= MOST // 2 and made[-1] <= MOST and made[1] == made[2]
    assert shortcuts.reads_class_token(model, 0) == (make is tiny_vit)
