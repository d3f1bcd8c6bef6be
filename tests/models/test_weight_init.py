"""Weights that a model begins with, drawn again."""

import pytest
import torch
from torch import nn

from fedbench.errors import UserError
from fedbench.models.backbone import Body, begin, body_of, redraw
from fedbench.testing.setups import tiny_mixer, tiny_vit


@pytest.mark.parametrize("make", [tiny_vit, tiny_mixer])
def test_a_redraw_depends_on_the_seed_alone_and_leaves_nothing_of_what_was(make):
    def drawn(seed, before):
        model = make()
        for parameter in model.parameters():
            nn.init.constant_(parameter, before)
        redraw(model, seed)
        return dict(model.named_parameters())

    one, again, other = drawn(0, 7.25), drawn(0, -1.0), drawn(1, 7.25)
    assert all(torch.equal(value, again[name]) and not (value == 7.25).any() for name, value in one.items())
    assert any(not torch.equal(value, other[name]) for name, value in one.items())


def test_a_parameter_that_nothing_draws_is_named():
    class Scaled(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(2, 2))
            self.scale = nn.Parameter(torch.ones(1))

    with pytest.raises(UserError, match="Scaled cannot be drawn again: nothing in it draws its parameter scale;"):
        redraw(Scaled(), 0)
    begin(Body(Scaled().to("meta"), 2), "body", "random", 0)  # shapes alone, for a plan


def test_a_convnext_is_refused_rather_than_left_with_half_of_its_weights():
    from timm.models.convnext import ConvNeXt

    body = body_of(ConvNeXt(num_classes=0, depths=(1, 1, 1, 1), dims=(4, 4, 4, 4)))
    with pytest.raises(UserError, match=r"ConvNeXt cannot be drawn again: .* parameter stages\.0\.blocks\.0\.gamma"):
        begin(body, "body", "random", 0)
