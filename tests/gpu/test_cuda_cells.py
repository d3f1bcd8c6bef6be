"""Tiny cells of every method on a GPU, in which most that can happen does: FedDyn, lost and late clients, clients that
are tested by themselves; as on the CPU, and taken up again from their checkpoints."""

from __future__ import annotations

import pytest
import torch
from every_method import METHODS, changed, tiny_cells
from rounds import DEVICE, sampled
from torch import nn

from fedbench.errors import NotApplicable
from fedbench.seeding import generator
from fedbench.simulation.checkpoint import Checkpoints, Progress
from fedbench.simulation.simulation import Simulation

pytestmark = pytest.mark.gpu

FEW = {"allsmall", "fedra", "fedv"}
ENGINES = ("cohort", "sequential")
DRAWS_THERE = {"fedvz", "zero_round"}  # z, on the device, where one seed draws other numbers


@pytest.fixture(scope="module")
def cells(plugins, tmp_path_factory):
    return tiny_cells(tmp_path_factory.mktemp("suite"), plugins)


def configured(cells, method: str, engine: str, scenario: str = "rough", dropout: float = 0.0, **more) -> dict:
    config = changed(cells[scenario, method], scenario, engine)
    parts = {"adapter": {**config["adapter"], "dropout": dropout}, "train": {**config["train"], "rounds": 2}}
    return {**config, **parts, **more}


def told(config, plugins, device: str = DEVICE, **given) -> tuple[list[float], list[dict]]:
    """The losses of a cell's clients, and what else is recorded of its rounds."""
    progress = given.pop("progress", None) or Progress()
    try:
        Simulation(config, plugins, device, store=given.pop("store", None)).run(progress=progress, **given)
    except NotApplicable:
        pytest.skip("the method has no meaning in this scenario")
    rows = progress.tables["rounds"]
    return [row["loss"] for row in rows], [{**row, "loss": 0, "seconds": 0} for row in rows]


def near(one: list[float], two: list[float], tolerance: float = 1e-3) -> None:
    torch.testing.assert_close(torch.tensor(one), torch.tensor(two), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", sampled(METHODS, FEW))
def test_a_rough_cell_is_as_on_the_cpu_and_goes_on_from_its_checkpoint(cells, plugins, tmp_path, method, engine):
    config = configured(cells, method, engine)
    losses, facts = told(config, plugins)
    on_cpu, facts_on_cpu = told(config, plugins, "cpu")
    if method not in DRAWS_THERE:
        near(losses, on_cpu)
    assert facts == facts_on_cpu
    checkpoints, progress = Checkpoints(tmp_path, "0" * 12, DEVICE), Progress()

    def keep(t, rows):
        if t == 1:
            checkpoints.write(progress)

    told(config, plugins, on_round=keep, progress=progress, store=checkpoints.store)
    again = Checkpoints(tmp_path, "0" * 12, DEVICE)
    found, refused = again.latest()
    assert (found.round, refused) == (1, [])
    near(told(config, plugins, progress=found, store=again.store)[0], losses)


@pytest.mark.parametrize("method", sampled(METHODS, FEW))
def test_with_dropout_and_in_bf16_both_engines_agree(cells, plugins, method):
    exact, rounded = (
        [told(configured(cells, method, engine, dropout=0.1, precision=one), plugins)[0] for engine in ENGINES]
        for one in ("fp32", "bf16")
    )
    near(*exact)
    near(*rounded, 0.05)
    near(rounded[0], exact[0], 0.05)
    assert rounded != exact


def test_fp32_means_fp32(cells, plugins):
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
        with Simulation(configured(cells, "fedra", "cohort"), plugins, DEVICE).precision():
            assert max(errors()) < 1e-5
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision
