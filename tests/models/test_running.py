"""What it takes to run a model: bytes counted by hand."""

import pytest
import torch
from torch import nn

from fedbench.models.backbone import HEAD, body_of
from fedbench.models.running import to_answer, to_run
from fedbench.testing.world import tiny_vit
from fedbench.types import Exit


class Two(nn.Module):
    """Two linear layers with a ReLU between them, which read the first ten numbers of an image."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 20), nn.Linear(20, 5)

    def forward(self, x):
        return self.b(torch.relu(self.a(x.flatten(1)[:, :10])))


def test_what_exists_at_once_is_the_image_and_two_tensors_at_most():
    """The image is 3 x 2 x 2 floats, the hidden units 20, once before and once after the ReLU; then the five logits."""
    assert to_answer(Two(), lambda model, x: model(x), 2) == 4 * (12 + 20 + 20)


def test_what_is_kept_counts_as_long_as_it_is_kept():
    def both(model, x):
        kept = model.a(x.flatten(1)[:, :10])
        return kept, model(x)

    assert to_answer(Two(), both, 2) == 4 * (12 + 20 + 20 + 20)


@pytest.fixture(scope="module")
def adapted(registry):
    model = body_of(tiny_vit())
    registry.make("adapter", {"name": "lora", "rank": 4, "alpha": 4})(model)
    model.add_classifier(HEAD, 3)
    return model


def test_a_layer_more_is_its_weights_more(adapted):
    two, three = (to_run(adapted, depth, [Exit(depth, HEAD)], 8) for depth in (2, 3))
    assert three - two == sum(p.nbytes for p in adapted.blocks[0].parameters())


def test_a_term_less_is_a_column_and_a_row_less_of_every_adapter(adapted):
    """attn.proj is 8 x 8, mlp.fc2 8 x 16."""
    three, four = (to_run(adapted, 2, [Exit(2, HEAD)], 8, rank) for rank in (3, 4))
    assert four - three == 2 * 4 * (8 + 8 + 8 + 16)
    assert four == to_run(adapted, 2, [Exit(2, HEAD)], 8)


def test_every_classifier_that_answers_is_held(adapted):
    adapted.add_classifier("exit1", 3)
    one, two = (to_run(adapted, 2, exits, 8) for exits in ([Exit(2, HEAD)], [Exit(1, "exit1"), Exit(2, HEAD)]))
    assert two - one >= 4 * (3 * 8 + 3)
