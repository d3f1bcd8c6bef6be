"""fedbench/families/split/cut.py: the three parts are the whole, and who starts where."""

from __future__ import annotations

import pytest
import torch
from uncut import MODELS, C, D, distilled

from fedbench.families.split.cut import Cut
from fedbench.models.backbone import Blocks
from fedbench.testing.setups import tiny_vit
from fedbench_plugins.objectives import cross_entropy

CUTS = [(0, 0), (2, 1)]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(("head", "tail"), CUTS)
def test_the_three_parts_are_the_whole(make, head, tail):
    cut = Cut(Blocks(make()), C, head, tail)
    x = torch.randn(3, 3, 8, 8)
    h = cut.H(x)
    b = cut.E(h)
    assert h.dim() == 3
    assert b.shape == ((3, D) if tail == 0 else h.shape)
    torch.testing.assert_close(cut.T(b), cut.model.classifiers["head"](cut.model.pooled(x)), rtol=0, atol=0)
    names = [*cut.w_H, *cut.w_E, *cut.w_T]
    wanted = {name.removeprefix("classifiers.") for name, _ in cut.model.named_parameters()}
    assert len(names) == len(set(names))
    assert set(names) == wanted
    assert sorted([*cut.w_H, *cut.w_T]) == cut.own_names


def test_head_and_tail_are_as_described():
    cut = Cut(Blocks(distilled()), C)
    assert set(cut.w_H) == {
        *("model.cls_token", "model.dist_token", "model.pos_embed"),
        *("model.patch_embed.proj.weight", "model.patch_embed.proj.bias"),
    }
    assert set(cut.w_T) == {"head.weight", "head.bias"}
    cut = Cut(Blocks(tiny_vit()), C, 1, 2)
    blocks = {
        part: {n.split(".")[2] for n in w if ".blocks." in n} for part, w in zip("HET", cut_parts(cut), strict=True)
    }
    assert blocks == {"H": {"0"}, "E": {"1"}, "T": {"2", "3"}}
    assert {"model.norm.weight", "model.norm.bias"} <= cut.w_T.keys()


def cut_parts(cut):
    return cut.w_H, cut.w_E, cut.w_T


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(("head", "tail"), CUTS)
def test_gradients_reach_their_parts_alone(make, head, tail):
    """The loss reaches every weight of head and tail, and none of a frozen encoder."""
    cut = Cut(Blocks(make()), C, head, tail)
    cross_entropy([cut.T(cut.E(cut.H(torch.randn(3, 3, 8, 8))))], torch.tensor([0, 1, 2]), 0).backward()
    assert all(p.grad is not None for p in cut.own.values())
    assert all(p.grad is None for p in cut.w_E.values())


@pytest.mark.parametrize("make", MODELS)
def test_starts_are_as_timm_draws_them(make):
    """Each client's own, the same again, and of the deviation that timm gives such a layer."""
    cut = Cut(Blocks(make()), C, 1, 1)
    one, again, other = cut.start(0, 1), cut.start(0, 1), cut.start(0, 2)
    assert list(one) == cut.own_names
    assert all(torch.equal(one[name], again[name]) for name in one)
    drawn = [name for name, value in one.items() if (value != value.flatten()[0]).any()]
    assert len(drawn) > 5
    assert all(not torch.equal(one[name], other[name]) for name in drawn)
    usual = dict(Blocks(make()).named_parameters())
    for name in one:
        if name.startswith("model."):
            spread, wanted = one[name].std(unbiased=False), usual[name].std(unbiased=False)
            if name in drawn:
                apart = 1 + 10 / one[name].numel() ** 0.5  # of two draws; a wrong rule differs by its scale
                assert 1 / apart < spread / wanted < apart, name
            else:
                torch.testing.assert_close(one[name], usual[name], msg=name)


def test_a_pretrained_start_is_the_backbones_but_for_the_classifier():
    blocks = Blocks(tiny_vit())
    before = {name: p.clone() for name, p in blocks.named_parameters()}
    cut = Cut(blocks, C, 1, 1, "pretrained")
    cut.wear(cut.start(0, 5))
    for p in cut.own.values():
        p.add_(1)  # what a client does to its own is nobody else's
    one, other = cut.start(0, 1), cut.start(0, 2)
    assert all(torch.equal(one[name], before[name]) for name in one if name.startswith("model."))
    assert not torch.equal(one["head.weight"], other["head.weight"])
