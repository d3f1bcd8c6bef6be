"""A client's dropout draws a step's numbers at once, and on a CPU they are those of single calls."""

import pytest
import torch

from fedbench.models import draws as module
from fedbench.models.draws import Draws, drawn_by


@pytest.mark.parametrize("most", [2**22, 7, 1])
def test_numbers_are_those_of_single_calls_whatever_the_batches(monkeypatch, most):
    monkeypatch.setattr(module, "AT_ONCE", most)
    single, draws = torch.Generator().manual_seed(3), Draws(torch.Generator().manual_seed(3))
    for asked in ([5, 3, 8], [5, 3, 8], [10, 6, 16], [4, 2, 9], [4, 2, 9], [2, 1, 4], [5, 1], [1, 1, 1]):
        draws.begin()
        for count in asked:
            assert torch.equal(draws.numbers(count), torch.rand(count, generator=single))


def test_a_step_like_the_one_before_draws_once(monkeypatch):
    calls, rand = [], torch.rand
    monkeypatch.setattr(torch, "rand", lambda *given, **more: calls.append(given) or rand(*given, **more))
    draws = Draws(torch.Generator().manual_seed(0))
    for asked in [(5, 3, 8)] * 3 + [(10, 6, 16), (5, 3, 8)]:  # the same, and of batches of other sizes
        draws.begin()
        [draws.numbers(count) for count in asked]
    assert calls == [(5,), (3,), (8,), (16,), (16,), (32,), (16,)]


def test_several_clients_numbers_stand_one_after_the_other():
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    found = drawn_by([Draws(one), two], [2, 3])
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    assert torch.equal(found, torch.cat([torch.rand(2, generator=one), torch.rand(3, generator=two)]))
