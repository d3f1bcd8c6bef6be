"""Batches of uneven sizes that are filled up, as on a GPU, against the oracle; and those that are not."""

import pytest
import torch
from engine.test_cohort import ADAPTERS, FEDPROX, OTHERS, SGD, rounds
from ragged import ragged, same

from fedbench.engine import cohort as fast
from fedbench.engine import evening, sequential, shortcuts
from fedbench.models.adapter import Stack, filled_up
from fedbench.testing.world import tiny_mixer, tiny_vit


@pytest.fixture
def filling(monkeypatch):
    """As on a GPU, however much it adds; nothing is done client by client, and who ends in a layer passes it with the
    others unless half of them do."""
    monkeypatch.setattr(shortcuts, "pass_apart", lambda ending, held, x: 2 * len(ending) >= len(held))
    monkeypatch.setattr(evening, "fills", lambda sizes, x: len(set(sizes)) > 1)
    monkeypatch.setattr(Stack, "map", lambda *given: pytest.fail("client by client"))


@pytest.mark.parametrize(
    ("name", "adapter", "model", "train"),
    [
        ("fedra", "dropout", tiny_vit, {"clip": 0.5, "regularizer": FEDPROX}),
        ("depthfl", "plain", tiny_vit, {}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("inclusivefl", "dropout", tiny_mixer, {"clip": 0.5}),
                *(("fedra", other, tiny_vit, {}) for other in OTHERS if "prompts" not in other),
            ]
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_batches_that_are_filled_up_equal_the_oracles(registry, filling, name, adapter, model, train):
    cohort = ragged([4, 3, 3, 1], steps=[3, 2, 3, 1], sizes=[4, 1, 4, 2])
    one, two = (
        rounds(
            registry, engine, {"name": name}, model(), (ADAPTERS | OTHERS)[adapter], cohort, {"optimizer": SGD, **train}
        )
        for engine in (fast.train, sequential.train)
    )
    same(one, two)


def test_short_parts_are_filled_up_with_rows_that_are_there():
    parts = [torch.arange(3.0), torch.full((1,), 7.0), torch.full((2,), 8.0), torch.full((3,), 9.0)]
    assert filled_up(parts, 3).tolist() == [0, 1, 2, 7, 1, 2, 8, 8, 2, 9, 9, 9]
    assert filled_up(parts[1:3], 5).tolist() == [7, 8, 8, 8, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize(
    ("sizes", "there", "filled"),
    [([4, 4, 3], True, True), ([4, 1, 1], True, False), ([4, 4], True, False), ([4, 4, 3], False, False)],
)
def test_on_a_gpu_what_adds_little_is_filled_up(sizes, there, filled):
    class Somewhere:
        is_cuda = there

    assert evening.fills(sizes, Somewhere()) == filled
