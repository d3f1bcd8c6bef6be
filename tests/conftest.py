"""What every test may use: a cache of its own, a tiny backbone, and a method set-up around it."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch
from torch import nn

from fedbench.backbone import Blocks
from fedbench.engine import sequential
from fedbench.plugins import Plugins
from fedbench.types import Client, Cohort, Scenario, Setup

torch.set_num_threads(1)
OF_OTHERS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"}  # pytest and torch set these for themselves
# Shared machines stall for a second now and then; and the suite must give the same verdict twice.
hypothesis.settings.register_profile("fedbench", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("fedbench")


@pytest.fixture(autouse=True)
def unchanged_environment():
    """No test may leave the process's environment other than it found it."""

    def environment() -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if key not in OF_OTHERS}

    before = environment()
    yield
    assert environment() == before


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("FEDBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def registry(own_cache):
    """The installed plugins."""
    return Plugins()


def tiny_vit(depth: int = 4, dim: int = 8) -> nn.Module:
    """A timm ViT for 8x8 images: four patches, weights from seed 0."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return VisionTransformer(
            img_size=8, patch_size=4, embed_dim=dim, depth=depth, num_heads=2, mlp_ratio=2.0, num_classes=0
        )


def tiny_mixer(depth: int = 4, dim: int = 8) -> nn.Module:
    """A timm MLP-Mixer of the same size."""
    from timm.models.mlp_mixer import MlpMixer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MlpMixer(img_size=8, patch_size=4, embed_dim=dim, num_blocks=depth, num_classes=0)


TRAIN = {
    "rounds": 3,
    "local_epochs": 1,
    "max_steps": None,
    "batch_size": 4,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "clip": 1.0,
}


def cohort_of(
    capacities: list[int], examples: list[int] | None = None, steps: int = 2, ids: list[int] | None = None
) -> Cohort:
    """A cohort with random images of its own for every client, 3 classes, float64."""
    examples = examples or [4] * len(capacities)
    ids = ids if ids is not None else list(range(len(capacities)))

    def batches(n):
        draw = torch.Generator().manual_seed(100 + ids[n])
        for _ in range(steps):
            yield (
                torch.randn(4, 3, 8, 8, generator=draw, dtype=torch.float64),
                torch.randint(3, (4,), generator=draw),
            )

    return Cohort(ids, torch.tensor(capacities), torch.tensor(examples), torch.full((len(capacities),), steps), batches)


def setup_of(registry, model: nn.Module, capacities: list[int], adapter: dict | None = None, **train) -> Setup:
    """A set-up in float64 with the sequential engine."""
    blocks = Blocks(model).double()
    clients = [Client(i, i, torch.arange(4).numpy()) for i in range(len(capacities))]
    options = {**TRAIN, **train}

    def component(kind, ref):
        if callable(ref):
            return ref
        return registry.make(kind, {"name": ref} if isinstance(ref, str) else ref, setup=setup)

    attach = registry.make("adapter", adapter or {"name": "lora", "rank": 2, "alpha": 4})

    def attach_in_double(model):
        attach(model)
        model.double()

    setup = Setup(
        backbone=blocks,
        adapter=attach_in_double,
        engine=sequential.train,
        scenario=Scenario(
            clients, torch.tensor([[c, c] for c in capacities]).numpy(), blocks.num_layers, options["rounds"]
        ),
        train=options,
        num_classes=3,
        image_size=8,
        seed=0,
        component=component,
    )
    return setup
