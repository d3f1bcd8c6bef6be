"""The engines on a GPU against the oracle: the same numbers, graph or no graph, and no needless wait."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from engine.test_cohort import ADAMW, ADAPTERS, SGD, Scale, ragged
from torch import nn

from fedbench import pixels
from fedbench.checkpoint import Checkpoints, Progress
from fedbench.engine import cohort as fast
from fedbench.engine import graph, sequential, shortcuts
from fedbench.layerwise import head_at_end, layerwise
from fedbench.method import Method
from fedbench.objective import cross_entropy
from fedbench.pixels import Pixels, ahead
from fedbench.runner import load
from fedbench.seeding import generator
from fedbench.state import taken_apart
from fedbench.testing.world import setup_of, tiny_mixer, tiny_vit
from fedbench.trial import Trial
from fedbench.types import Cohort, Images, Job, Plan

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
LONG = graph.EAGER + 4  # steps, some of which are replayed
NEVER = -1  # bytes up to which steps are replayed

SUITE = """
suite: small
defaults:
  backbone: {name: micro_vit, pretrained: false}
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0}
  data: {name: strokes6, classes: 3, train_per_class: 8, test_per_class: 1}
  train: {rounds: 2, batch_size: 4}
  evaluation: {every: 1}
scenarios:
  skew: {capacities: [12, 4, 3, 2, 1, 1]}
methods: [fedra, depthfl, inclusivefl, exclusive, allsmall, alllarge, head_only]
"""


def close(one, two, tolerance=1e-9):
    torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance, check_device=False)


def moved(cohort: Cohort, device: str, dtype: torch.dtype = torch.float64) -> Cohort:
    """The same round, its batches on a device."""

    def batches(n: int) -> Iterator:
        return ((x.to(device, dtype), y.to(device)) for x, y in cohort.batches(n))

    return dataclasses.replace(cohort, batches=batches)


def two_rounds(method: Method, cohort: Cohort) -> list:
    """The state after two rounds, and what clients sent."""
    state, sent = method.init(generator(0)), []
    for t in range(2):
        state, report = method.round(state, t, cohort, generator(0, t))
        sent.append([report.uploads.r, report.uploads.shared, report.uploads.loss])
    return [state["r"], state["shared"], state["scores"], sent]


def rounds(
    registry, engine, device: str, cohort: Cohort, adapter="plain", model=tiny_vit, ref="fedra", single=False, **train
) -> list:
    """single: in float32."""
    setup = setup_of(registry, model(), cohort.capacities.tolist(), ADAPTERS[adapter], **train)
    setup = dataclasses.replace(setup, engine=engine, device=device)
    method = registry.make("method", {"name": ref}, setup=setup)
    if single:
        setup.backbone.float()
    return two_rounds(method, moved(cohort, device, torch.float32 if single else torch.float64))


@pytest.fixture
def replays(monkeypatch) -> list[None]:
    """Grows by one with every replay of a graph."""
    seen: list[None] = []
    real = graph.Replayed._replay

    def counted(self, inputs):
        seen.append(None)
        return real(self, inputs)

    monkeypatch.setattr(graph.Replayed, "_replay", counted)
    return seen


def mixed(steps=(3, 2, 3, 1), sizes=(4, 4, 2)) -> Cohort:
    return ragged([4, 3, 3, 1], steps=list(steps), sizes=list(sizes))


# --- against the oracle -------------------------------------------------------------------------------------------


def with_an_engine(registry) -> list[str]:
    """The methods that train by an engine; the others have tests of their own below."""
    names = [component.name for component in registry.catalogue if component.kind == "method"]
    return [
        name
        for name in names
        if not registry.make("method", {"name": name}, setup=setup_of(registry, tiny_vit(), [4])).alone
    ]


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_two_rounds_of_every_method_equal_the_oracle_on_the_cpu(registry, model):
    for name in with_an_engine(registry):
        options = {"model": model, "ref": name, "optimizer": SGD, "clip": 0.5}
        one = rounds(registry, fast.train, DEVICE, mixed(), **options)
        close(one, rounds(registry, sequential.train, "cpu", mixed(), **options))


@pytest.mark.parametrize("adapter", ["dropout", "reference"])
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_with_dropout_they_equal_the_oracle_on_the_gpu(registry, model, adapter):
    """One seed draws other masks on a CPU."""
    for name in with_an_engine(registry):
        options = {"model": model, "adapter": adapter, "ref": name, "optimizer": SGD, "clip": 0.5}
        one = rounds(registry, fast.train, DEVICE, mixed(), **options)
        close(one, rounds(registry, sequential.train, DEVICE, mixed(), **options))


def test_an_adapter_that_cannot_be_stacked_is_exact_all_the_same(registry):
    def attach(blocks):
        for block in blocks.blocks:
            block.mlp.fc2 = Scale(block.mlp.fc2)

    def final(engine, device):
        setup = dataclasses.replace(setup_of(registry, tiny_vit(), [4, 2]), adapter=attach, engine=engine)
        cohort = moved(ragged([4, 2], steps=[LONG, LONG], sizes=[4]), device)
        return two_rounds(layerwise(dataclasses.replace(setup, device=device)), cohort)

    close(final(fast.train, DEVICE), final(sequential.train, "cpu"))


def test_groups_cut_by_memory_equal_one_group(registry, monkeypatch):
    calls, real = [], fast.train_group

    def counted(*arguments):
        calls.append(arguments[5])
        return real(*arguments)

    monkeypatch.setattr(fast, "train_group", counted)
    whole = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2  # a group a round
    monkeypatch.setattr(fast, "OF_FREE_MEMORY", 1e-8)
    cut = rounds(registry, fast.train, DEVICE, mixed(), ref="depthfl", adapter="dropout")
    assert len(calls) == 2 + 2 * 4  # every client alone
    close(whole, cut)


# --- graphs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_replayed_steps_equal_those_run_eagerly(registry, monkeypatch, replays, model, optimizer, adapter, clip):
    cohort = ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4])
    options = {"model": model, "adapter": adapter, "ref": "depthfl", "optimizer": optimizer, "clip": clip}
    replayed = rounds(registry, fast.train, DEVICE, cohort, **options)
    assert len(replays) == 2 * (LONG - graph.EAGER)
    monkeypatch.setattr(fast, "REPLAYED_BYTES", NEVER)
    close(replayed, rounds(registry, fast.train, DEVICE, cohort, **options))
    assert len(replays) == 2 * (LONG - graph.EAGER)
    close(replayed, rounds(registry, sequential.train, DEVICE, cohort, **options))


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_a_graph_is_recorded_anew_when_a_client_has_finished(registry, replays, optimizer):
    """And then keeps the finished client's values still."""
    cohort = mixed(steps=[3 * LONG, 2 * LONG, LONG, LONG], sizes=[4])
    options = {"ref": "depthfl", "optimizer": optimizer, "clip": 0.5}
    one = rounds(registry, fast.train, DEVICE, cohort, **options)
    assert len(replays) == 2 * 3 * (LONG - graph.EAGER)
    close(one, rounds(registry, sequential.train, "cpu", cohort, **options))


def test_short_batches_at_the_end_of_an_epoch_are_run_eagerly(registry, replays):
    cohort = mixed(steps=[2 * LONG] * 4, sizes=[4] * (LONG - 1) + [2])
    one = rounds(registry, fast.train, DEVICE, cohort, adapter="dropout", optimizer=SGD)
    close(one, rounds(registry, sequential.train, DEVICE, cohort, adapter="dropout", optimizer=SGD))


def test_batches_that_always_differ_are_never_replayed(registry, replays):
    cohort = mixed(steps=[LONG] * 4, sizes=[4, 2])
    one = rounds(registry, fast.train, DEVICE, cohort, optimizer=SGD)
    assert not replays
    close(one, rounds(registry, sequential.train, "cpu", cohort, optimizer=SGD))


def test_memory_does_not_grow_from_round_to_round(registry):
    cohort = moved(ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4]), DEVICE)
    setup = dataclasses.replace(setup_of(registry, tiny_vit(), [4, 3, 3, 1]), engine=fast.train, device=DEVICE)
    method = layerwise(setup)
    state = method.init(generator(0))
    held = []
    for t in range(12):
        state, _ = method.round(state, t, cohort, generator(0, t))
        held.append(torch.cuda.memory_allocated())
    assert max(held[6:]) <= max(held[:6]) + 2**20


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, whatever makes the CPU wait for the GPU raises RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def stepping(registry, model, adapter) -> tuple[Callable, dict]:
    """The step function of a group of three clients, and a batch for each of them."""
    setup = setup_of(registry, model(), [4], ADAPTERS[adapter])
    state = layerwise(dataclasses.replace(setup, device=DEVICE)).init(generator(5))
    M = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 0]]).bool()
    plan = Plan(M, [head_at_end(depth) for depth in M.sum(1).tolist()])
    cohort = moved(ragged(M.sum(1).tolist(), [1, 1, 1], [4]), DEVICE)
    leaves = fast.Leaves(setup.backbone, state, plan, range(3))
    draws = {n: generator(0, 0, n, "dropout", setup.backbone.device) for n in range(3)}
    step = fast.stepping(setup.backbone, leaves, plan, Job(0, 0, SGD, 0.5, cross_entropy), draws)
    return step, {n: next(cohort.batches(n)) for n in range(3)}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
@pytest.mark.parametrize("active", [[0, 1, 2], [0, 2]], ids=["all", "one has finished"])
def test_a_step_never_waits_for_the_gpu(registry, model, adapter, active):
    """Or it could not be recorded."""
    step, inputs = stepping(registry, model, adapter)
    step(inputs)
    with no_waiting():
        step({n: inputs[n] for n in active})


# --- compiled blocks ----------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    shortcuts._compiled.cache_clear()
    yield lambda: monkeypatch.setattr(shortcuts, "COMPILED_FROM", 1)
    shortcuts._compiled.cache_clear()
    torch._dynamo.reset()


@pytest.mark.parametrize("bytes_replayed", [NEVER, fast.REPLAYED_BYTES], ids=["eager", "replayed"])
@pytest.mark.parametrize("adapter", ["plain", "dropout"])
@pytest.mark.parametrize("model", [tiny_vit, tiny_mixer])
def test_compiled_blocks_equal_plain_ones(registry, monkeypatch, compiled, model, adapter, bytes_replayed):
    monkeypatch.setattr(fast, "REPLAYED_BYTES", bytes_replayed)
    cohort = ragged([4, 3, 3, 1], steps=[LONG] * 4, sizes=[4])
    options = {"model": model, "adapter": adapter, "single": True, "optimizer": SGD}
    plain = rounds(registry, fast.train, DEVICE, cohort, **options)
    compiled()
    close(plain, rounds(registry, fast.train, DEVICE, cohort, **options), 1e-4)
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0


# --- images -------------------------------------------------------------------------------------------------------


def some_pixels(device: str) -> Pixels:
    draw = np.random.default_rng(0)
    images = Images(draw.integers(0, 256, (90, 3, 8, 8), np.uint8), draw.integers(0, 3, 90), np.zeros(90, np.int64))
    return Pixels(images, (0.5, 0.4, 0.3), (0.2, 0.5, 0.7), device)


def test_images_that_travel_equal_those_that_stay(monkeypatch):
    resident = some_pixels(DEVICE)
    monkeypatch.setattr(pixels, "RESIDENT", 0)
    far = some_pixels(DEVICE)
    assert far.far and not resident.far
    asked = [np.array([89, 3, 3]), np.arange(90), np.array([0])]
    for indices, (x, y) in zip(asked, ahead(far(indices) for indices in asked), strict=True):
        near, labels = resident(indices)
        assert near.device.type == y.device.type == DEVICE
        assert torch.equal(x, near) and torch.equal(y, labels)
        close(x, some_pixels("cpu")(indices)[0], 1e-6)


def test_resident_images_are_picked_without_waiting():
    resident, indices = some_pixels(DEVICE), np.arange(30)
    resident(indices)
    with no_waiting():
        resident(indices)


# --- whole cells --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "small.yaml"
    path.write_text(SUITE)
    return {cell.method: cell.config for cell in load(path, registry).cells()}


def trained(registry, config, device: str) -> tuple[list[float], list]:
    """The losses of a cell's clients, and what else is recorded of its rounds."""
    evaluation, rows = Trial(config, registry, device).run()
    assert all(0 <= row["value"] <= 1 for row in evaluation)
    return [row.pop("loss") for row in rows], [{**row, "seconds": 0} for row in rows]


@pytest.mark.parametrize(
    "method", ["fedra", "depthfl", "inclusivefl", "exclusive", "allsmall", "alllarge", "head_only"]
)
@pytest.mark.parametrize("engine", ["sequential", "cohort"])
def test_a_cell_tells_the_same_story_on_both_devices(registry, configs, engine, method):
    config = {**configs[method], "engine": engine}
    (losses, facts), (on_cpu, facts_on_cpu) = (trained(registry, config, device) for device in (DEVICE, "cpu"))
    assert losses == pytest.approx(on_cpu, rel=1e-3)
    assert facts == facts_on_cpu


def test_a_cell_whose_images_travel_tells_the_same_story(registry, configs, monkeypatch):
    near, _ = trained(registry, configs["fedra"], DEVICE)
    monkeypatch.setattr(pixels, "RESIDENT", 0)
    far, _ = trained(registry, configs["fedra"], DEVICE)
    assert far == pytest.approx(near, rel=1e-4)


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
    Trial(configs[method], registry, DEVICE).run(progress=whole)
    Trial(configs[method], registry, DEVICE).run(
        lambda t, rows: checkpoints.write(progress) if t == 1 else None, progress=progress
    )
    found, refused = checkpoints.latest()
    assert (found.round, refused) == (1, [])
    assert places(found.state) == places(progress.state) and DEVICE in places(found.state).values()
    Trial(configs[method], registry, DEVICE).run(progress=found)
    losses = [[row["loss"] for row in each.tables["rounds"]] for each in (found, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_fp32_means_fp32(registry, configs):
    """No product or convolution of a cell is rounded to TF32, whose errors are about 3e-4."""
    draw = torch.Generator(DEVICE).manual_seed(0)
    a, b = (torch.randn(256, 256, generator=draw, device=DEVICE) for _ in range(2))
    x, w = a.view(1, 16, 64, 64), b.view(256, 16, 4, 4)
    errors = []

    def on_round(t, rows):
        for one, two in ((a @ b, a.double() @ b.double()), (conv(x, w), conv(x.double(), w.double()))):
            errors.append(float((one - two).norm() / two.norm()))

    conv = nn.functional.conv2d
    Trial(configs["fedra"], registry, DEVICE).run(on_round)
    assert len(errors) == 4 and max(errors) < 1e-5


# --- methods without an engine ------------------------------------------------------------------------------------

ALONE = ["fedavg", "ditto", "fedrod", "fedv", "fedvz", "festa"]


def alone(registry, name: str, device: str, single: bool) -> list:
    """Two rounds, the second on what the first has put away: states, losses, and every client's own tensors."""
    setup = setup_of(registry, tiny_vit(), [4] * 3, optimizer=SGD, clip=0.5)
    if single:
        setup.backbone.float()
    setup = dataclasses.replace(setup, device=device)
    options = {"epsilon": 1e-2, "server_lr": 1e-3} if name == "fedvz" else {}
    method = registry.make("method", {"name": name, **options}, setup=setup)
    cohort = moved(ragged([4] * 3, steps=[3, 2, 3], sizes=[4, 2]), device, torch.float32 if single else torch.float64)
    state, seen = method.init(generator(0)), []
    for t in range(2):
        state, report = method.round(state, t, cohort, generator(0, t))
        seen.append([state["shared"], state.get("encoder", {}), report.uploads.loss])
    own = [setup.store.get(key) for _, key in sorted(state.get("clients", {}).items())]
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    x = x.to(device, torch.float32 if single else torch.float64)
    with torch.no_grad():
        answers = [method.predictor(state, client=client)(x) for client in (None, 0, 2)]
    return [seen, own, answers]


@pytest.mark.parametrize("name", sorted(set(ALONE) - {"fedvz"}))  # whose z is drawn on the device
@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_methods_without_an_engine_equal_themselves_on_the_cpu(registry, name, single):
    close(alone(registry, name, DEVICE, single), alone(registry, name, "cpu", single), 1e-3 if single else 1e-9)


def test_fedvz_on_the_gpu_is_the_same_twice_and_trains_heads_and_tails_as_on_the_cpu(registry):
    """Before the server's first step no z has mattered."""
    one, again, on_cpu = (alone(registry, "fedvz", device, False) for device in (DEVICE, DEVICE, "cpu"))
    close(one, again, 0)
    close([one[0][0][0], one[0][0][2]], [on_cpu[0][0][0], on_cpu[0][0][2]])


@pytest.mark.parametrize("name", ALONE)
def test_clients_go_on_from_their_store_on_the_gpu(registry, name, tmp_path):
    """As if there had been no end: in a trial made anew, from files alone."""
    path = tmp_path / "small.yaml"
    path.write_text(
        SUITE.replace("[fedra, depthfl, inclusivefl, exclusive, allsmall, alllarge, head_only]", f"[{name}]")
    )
    (config,) = (cell.config for cell in load(path, registry).cells())
    config = {**config, "train": {**config["train"], "max_steps": 2}}
    checkpoints, progress, whole = Checkpoints(tmp_path, "0" * 12, DEVICE), Progress(), Progress()
    Trial(config, registry, DEVICE).run(progress=whole)
    Trial(config, registry, DEVICE, store=checkpoints.store).run(
        lambda t, rows: checkpoints.write(progress) if t == 1 else None, progress=progress
    )
    again = Checkpoints(tmp_path, "0" * 12, DEVICE)
    found, refused = again.latest()
    assert (found.round, refused) == (1, [])
    Trial(config, registry, DEVICE, store=again.store).run(progress=found)
    losses = [[row["loss"] for row in each.tables["rounds"]] for each in (found, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
