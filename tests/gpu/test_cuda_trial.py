"""Whole cells on a GPU tell the same story as on a CPU, and go on from their checkpoints."""

from __future__ import annotations

import pytest
import torch
from rounds import DEVICE, SUITE, sampled
from torch import nn

from fedbench.runner.runner import load
from fedbench.seeding import generator
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import taken_apart

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE)
    return {cell.method: cell.config for cell in load(path, registry).points()}


def trained(registry, config, device: str) -> tuple[list[float], list]:
    """The losses of a cell's clients, and what else is recorded of its rounds."""
    evaluation, rows = Simulation(config, registry, device).run()
    assert all(0 <= row["value"] <= 1 for row in evaluation)
    return [row.pop("loss") for row in rows], [{**row, "seconds": 0} for row in rows]


@pytest.mark.parametrize(
    "method",
    sampled(
        ["fedra", "depthfl", "inclusivefl", "exclusive", "allsmall", "alllarge", "head_only"], {"fedra", "head_only"}
    ),
)
@pytest.mark.parametrize("engine", ["sequential", "cohort"])
def test_a_cell_tells_the_same_story_on_both_devices(registry, configs, engine, method):
    config = {**configs[method], "engine": engine}
    (losses, facts), (on_cpu, facts_on_cpu) = (trained(registry, config, device) for device in (DEVICE, "cpu"))
    assert losses == pytest.approx(on_cpu, rel=1e-3)
    assert facts == facts_on_cpu


@pytest.mark.parametrize("method", ["fedra", "depthfl"])
def test_bf16_stays_near_fp32_on_both_engines(registry, configs, method):
    exact, _ = trained(registry, configs[method], DEVICE)
    for engine in ("cohort", "sequential"):
        rounded, _ = trained(registry, {**configs[method], "engine": engine, "precision": "bf16"}, DEVICE)
        assert rounded != exact
        assert rounded == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("method", ["fedra", "inclusivefl"])
def test_a_cell_goes_on_from_its_checkpoint_on_the_gpu(registry, configs, method, tmp_path):
    def places(state):
        return {name: tensor.device.type for name, tensor in taken_apart(state)[0].items()}

    checkpoints, progress, whole = Checkpoints(tmp_path, "0" * 12, DEVICE), Progress(), Progress()
    Simulation(configs[method], registry, DEVICE).run(progress=whole)
    Simulation(configs[method], registry, DEVICE).run(
        lambda t, rows: checkpoints.write(progress) if t == 1 else None, progress=progress
    )
    found, refused = checkpoints.latest()
    assert (found.round, refused) == (1, [])
    assert places(found.state) == places(progress.state) and DEVICE in places(found.state).values()
    Simulation(configs[method], registry, DEVICE).run(progress=found)
    losses = [[row["loss"] for row in each.tables["rounds"]] for each in (found, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_fp32_means_fp32(registry, configs):
    """No product or convolution of a cell is rounded to TF32, whose errors are about 3e-4."""
    draw, conv = generator(0, device=DEVICE), nn.functional.conv2d
    a, b = (torch.randn(256, 256, generator=draw, device=DEVICE) for _ in range(2))
    x, w = a.view(1, 16, 64, 64), b.view(256, 16, 4, 4)

    def errors() -> list[float]:
        pairs = ((a @ b, a.double() @ b.double()), (conv(x, w), conv(x.double(), w.double())))
        return [float((one - two).norm() / two.norm()) for one, two in pairs]

    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "tf32"
        assert min(errors()) > 1e-4 or torch.cuda.get_device_capability() < (8, 0)  # older ones cannot round so
        with Simulation(configs["fedra"], registry, DEVICE).precision():
            assert max(errors()) < 1e-5
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision
