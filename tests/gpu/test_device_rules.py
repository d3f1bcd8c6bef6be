"""Rules of a GPU on the pretended one: they are torch's, faults against them are found, and training keeps them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from device_rules import pretended
from engine.test_cohort import ADAMW, ADAPTERS, SGD, ragged
from rounds import DEVICE, moved, no_waiting
from torch import nn

from fedbench.engine import cohort as fast
from fedbench.families.layerwise import head_at_end, layerwise
from fedbench.seeding import generator
from fedbench.simulation.batches import Pixels
from fedbench.simulation.evaluation import Evaluation
from fedbench.simulation.faults import Faults, Guard, received
from fedbench.simulation.federated_data import EvalSplit
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Images, Job, Plan
from fedbench_plugins.objectives import cross_entropy

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture
def gpu():
    with pretended() as made:
        yield made


MIXED = "Expected all tensors to be on the same device"
x, y = (lambda: torch.ones(3, device="cuda")), (lambda: torch.ones(3))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: x() + y(), MIXED),
        (lambda: torch.stack([x()[0], y()[0]]), MIXED),
        (lambda: torch.where(y() > 0, x(), 0.0), MIXED),
        (lambda: y()[torch.tensor([1, 0]).cuda()], "indices should be"),
        (lambda: torch.rand(4, generator=torch.Generator(), device="cuda"), "device type for generator"),
        (lambda: nn.init.normal_(x(), generator=torch.Generator()), "device type for generator"),
    ],
)
def test_two_sides_do_not_mix(gpu, wrong, says):
    with pytest.raises(RuntimeError, match=says):
        wrong()


def test_tensors_are_where_they_were_made_or_sent(gpu):
    on_gpu = [x() + 1, x()[0], torch.zeros_like(x()), y().cuda(), y().to("cuda", torch.int64), x() * torch.tensor(2.0)]
    on_cpu = [x().cpu(), x().to(y()), torch.zeros_like(x(), device="cpu"), torch.tensor([x()[0]])]
    assert all(one.is_cuda for one in on_gpu) and not any(one.is_cuda for one in on_cpu)
    layer = nn.Linear(3, 2).to("cuda")
    layer(x()).sum().backward()
    assert layer.weight.grad.is_cuda
    here, there = (torch.Generator(device).manual_seed(0) for device in ("cpu", "cuda"))
    assert not torch.equal(torch.rand(4, generator=here), torch.rand(4, generator=there, device="cuda").cpu())


@pytest.mark.parametrize(
    ("waits", "does"),
    [
        (1, lambda: x().sum().item()),
        (1, lambda: x().tolist()),
        (1, lambda: x().cpu()),
        (1, lambda: torch.tensor([1.0], device="cuda")),
        (1, lambda: x()[x() > 0]),
        (1, lambda: x()[torch.tensor([1, 0])]),
        (0, lambda: torch.ones(3).pin_memory().to("cuda", non_blocking=True)),
        (0, lambda: (x() * 2).sum().sqrt()),
    ],
)
def test_waits_are_counted_and_may_be_refused(gpu, waits, does):
    does()
    assert gpu.waits.total() == waits and all(place.startswith("test_device_rules.py:") for _, place in gpu.waits)
    if waits:
        with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
            does()


def losses(registry, objective=cross_entropy, optimizer=SGD, labels=DEVICE):
    """Of two clients' steps, each with another batch, with dropout and clipping."""
    setup = dataclasses.replace(setup_of(registry, tiny_vit(), [2], ADAPTERS["dropout"]), device=DEVICE)
    state = layerwise(setup).init(generator(5))
    plan = Plan(torch.tensor([[1, 1, 0, 0], [0, 1, 0, 0]]).bool(), [head_at_end(2), head_at_end(1)])
    cohort = moved(ragged([2, 1], [2] * 2, [2]), DEVICE)
    leaves = fast.StackedParams(setup.backbone, state, plan, range(2))
    own = {n: fast.Draws(fast.generator(0, 0, n, "dropout", setup.backbone.device)) for n in range(2)}
    take = fast.Step(setup.backbone, leaves, plan, Job(0, 0, optimizer, 0.5, objective), own)
    batches = {n: cohort.batches(n) for n in range(2)}
    steps = ({n: next(own) for n, own in batches.items()} for _ in range(2))
    return torch.stack([take({n: (x, y.to(labels)) for n, (x, y) in inputs.items()}) for inputs in steps]).cpu()


def on_the_cpu(logits, y, t):
    return cross_entropy(logits, y, t) + (logits[0].mean(1) * torch.ones(len(y))).sum()


def as_numpy(logits, y, t):
    return cross_entropy(logits, y, t) * float(y.numpy().mean())


def waiting(logits, y, t):
    return cross_entropy(logits, y, t) * (1 if logits[0].sum().item() else 1)


def test_faults_that_only_a_gpu_would_show_are_found(registry, gpu, monkeypatch):
    assert losses(registry, optimizer=ADAMW).isfinite().all()
    for given in ({"objective": on_the_cpu}, {"labels": "cpu"}):
        with pytest.raises(RuntimeError, match=MIXED):
            losses(registry, **given)
    with pytest.raises(TypeError, match="numpy"):
        losses(registry, objective=as_numpy)
    with pytest.raises(RuntimeError, match="synchronizing"), no_waiting():
        losses(registry, objective=waiting)
    monkeypatch.setattr(fast, "generator", lambda seed, t, n, use, device: generator(seed, t, n, use))
    with pytest.raises(RuntimeError, match=MIXED):
        losses(registry)


def checked(*of_a_round):
    """What arrives of uploads in a cell without faults."""
    return received(*of_a_round, Faults({}, 0), Guard())


@pytest.mark.parametrize(
    "name",
    [  # each training loop once; what the others add to it is slow
        *("fedra", "fedvz"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ditto", "fedrod", "heterofl")),
    ],
)
def test_a_round_waits_no_more_often_for_more_steps(registry, gpu, name):
    """Without clipping: torch's own asks below Python where tensors are, and finds that these are on the CPU."""

    def waits(steps):
        setup = setup_of(registry, tiny_vit(depth=2), [2] * 2, engine=fast.train, optimizer=SGD, clip=None)
        setup = dataclasses.replace(setup, device="cuda", receive=checked)
        method = registry.make("method", {"name": name}, setup=setup)
        cohort = cohort_of([2] * 2, steps=steps)
        there = [[(x.to("cuda"), y.to("cuda")) for x, y in cohort.batches(n)] for n in range(2)]
        state = method.init(generator(0))
        gpu.waits.clear()
        method.round(state, 0, dataclasses.replace(cohort, batches=lambda n: iter(there[n])), generator(0, 0))
        return dict(gpu.waits)

    few, many = waits(2), waits(3)
    assert sum(few.values()) == sum(many.values()), {place: (few.get(place, 0), many[place]) for place in many}


@pytest.mark.parametrize("batch_size", [2, 7])
def test_an_evaluation_waits_once_however_many_passes_it_has(gpu, batch_size):
    x = np.arange(7, dtype=np.uint8).reshape(7, 1, 1, 1).repeat(3, 1)
    test = Pixels(Images(x, np.arange(7) % 2, np.zeros(7, np.int64)), (0.0,) * 3, (1 / 255,) * 3, "cuda")
    one = Evaluation(
        test, [EvalSplit("a", np.arange(4)), EvalSplit("b", np.arange(4, 7))], {}, batch_size, mixed=False, classes=2
    )
    gpu.waits.clear()
    found = one.answers(lambda client: lambda x: {"first": x[:, :2, 0, 0], "second": x[:, 1:, 0, 0] + 1})
    assert gpu.waits.total() == 1, gpu.waits
    assert [part[:, 0].tolist() for part in found[""]] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [part.shape for part in found["second"]] == [(4, 2), (3, 2)]
