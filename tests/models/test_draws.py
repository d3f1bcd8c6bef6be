"""What a client's dropout draws."""

import torch

from fedbench.models.draws import Draws, drawn_by


def test_several_clients_numbers_stand_one_after_the_other():
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    found = drawn_by([Draws(one), two], [2, 3])
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    assert torch.equal(found, torch.cat([torch.rand(2, generator=one), torch.rand(3, generator=two)]))
