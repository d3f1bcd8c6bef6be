"""Every family of timm: a model of it is trained by both engines, in layers or as a whole, or refused in a line."""

from __future__ import annotations

import dataclasses
import re

import pytest
import timm
import torch
from ragged import same
from timm.models import _registry

from fedbench.engine import cohort, sequential
from fedbench.errors import NotApplicable, UserError
from fedbench.models.backbone import Blocks, body_of
from fedbench.models.meta_init import shapes_alone
from fedbench.seeding import generator
from fedbench.testing.setups import CLASSES, cohort_of, setup_of

SMALL = ("test_", "nano", "atto", "femto", "pico", "xxs", "tiny", "_t", "xs", "small")
SECOND_CLASSES = ("deit_tiny_distilled_patch16_224", "levit_128", "deepseek_vit_412m_enc", "vit_small_patch16_dinov3")
SHRUNK = {"embed_dim": 48, "depth": 2, "num_heads": 3}  # as far as a class takes it
MOST = 12_000_000  # parameters of a model that is trained here; of a larger one the shapes are enough
REFUSED = r"keeps running statistics|cannot be a backbone: its forward pass (gives|takes no image)"


def smallest(names: set[str]) -> str:
    """The model of a family that sounds smallest."""
    return min(sorted(names), key=lambda name: (next((i for i, s in enumerate(SMALL) if s in name), 9), len(name)))


FAMILIES = {module: names for module, names in sorted(_registry._module_to_models.items()) if names}
FAMILIES.pop("sequencer")  # LSTMs, whose shapes take torch minutes to follow
NAMES = [*map(smallest, FAMILIES.values()), *SECOND_CLASSES]


def made(name: str, shapes: bool = False) -> torch.nn.Module:
    options = SHRUNK if "vit_" in name and ("enc" in name or "dinov3" in name) else {}
    torch.manual_seed(0)
    if not shapes:
        return timm.create_model(name, pretrained=False, num_classes=0, **options).eval()
    with shapes_alone():
        return timm.create_model(name, pretrained=False, num_classes=0, **options).eval()


def one_image_each(size: int, clients: int):
    """A cohort of clients with one image of that size each."""

    def batches(n):
        draw = torch.Generator().manual_seed(n)
        x = torch.randn(1, 3, size, size, generator=draw, dtype=torch.float64)
        yield x, torch.randint(CLASSES, (1,), generator=draw)

    return dataclasses.replace(cohort_of([1] * clients, steps=1), batches=batches)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_family_of_timm_is_trained_by_both_engines_or_refused_in_one_line(registry, name):
    model = made(name, shapes=True)
    size = model.pretrained_cfg["input_size"][1]
    try:
        shape = body_of(model, image_size=size)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
        with pytest.raises(UserError, match=REFUSED):
            raise
        return
    assert shape.pooled(torch.empty(1, 3, size, size, device="meta")).shape == (1, shape.num_features)
    if sum(p.numel() for p in model.parameters()) > MOST:
        return
    method = "fedra" if isinstance(shape, Blocks) else "fedavg"
    states = []
    for engine in (sequential.train, cohort.train):
        setup = setup_of(registry, made(name), [1, 1], engine=engine, image_size=size)
        assert type(setup.backbone) is type(shape) and setup.backbone.num_features == shape.num_features
        try:
            ours = registry.make("method", {"name": method}, setup=setup)
        except NotApplicable as error:  # CoaT shares a convolution
            assert str(error).startswith(f"{type(model).__name__} has one parameter in several places")
            return
        except UserError as error:  # a gMLP has no layer that mixes tokens alone
            assert re.fullmatch(r"adapter\.targets: no module is called 'mlp_tokens\.fc2' in MlpMixer; .*", str(error))
            return
        state, report = ours.round(ours.init(generator(0)), 0, one_image_each(size, 2), generator(0, 0))
        assert report.uploads.loss.isfinite().all()
        states.append(state)
    same(*states)
    if not isinstance(shape, Blocks):
        setup = setup_of(registry, made(name), [1], image_size=size)
        with pytest.raises(NotApplicable, match="cannot be cut into layers"):
            registry.make("method", {"name": "fedra"}, setup=setup)
