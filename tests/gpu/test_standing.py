"""Steps that stand from round to round, on the pretended GPU: recorded once, whoever holds what, and the oracle's
numbers."""

import dataclasses
import gc

import pretended
import pytest
from engine.test_cohort import ADAMW, ADAPTERS, FEDPROX, OTHERS, SGD, ragged
from rounds import LONG, close, moved

from fedbench.engine import cohort as fast
from fedbench.engine import sequential, standing
from fedbench.seeding import generator
from fedbench.testing.world import setup_of, tiny_mixer, tiny_vit

ROUNDS = 4
MIXED = {"optimizer": ADAMW, "clip": None, "regularizer": FEDPROX, "model": tiny_mixer}


@pytest.fixture
def gpu():
    with pretended.gpu() as made:
        yield made


def four_rounds(registry, engine, device, name, cohort, model=tiny_vit, adapter="plain", **train):
    options = {"optimizer": SGD, "clip": 0.5, **train}
    setup = setup_of(registry, model(), [4, 3, 3, 1], (ADAPTERS | OTHERS)[adapter], **options)
    method = registry.make("method", {"name": name}, setup=dataclasses.replace(setup, engine=engine, device=device))
    state, seen = method.init(generator(0)), []
    for t in range(ROUNDS):
        state, report = method.round(state, t, moved(cohort, device), generator(0, t))
        loss = report.uploads.loss.nan_to_num()  # of a client without a step
        seen.append([report.uploads.r, report.uploads.shared, loss])
    return [seen, state["r"], state["shared"]]


@pytest.mark.parametrize(
    ("name", "options", "recorded"),
    [
        ("fedra", {}, 1),  # M drawn anew in every round
        pytest.param("fedra", MIXED, 1, marks=pytest.mark.slow),
        pytest.param("inclusivefl", {"adapter": "bitfit"}, 1, marks=pytest.mark.slow),
        # Holds a factor that nobody trains, drawn once for all.
        pytest.param("ffa_lora", {}, 1, marks=pytest.mark.slow),
        # Its objective reads the round.
        pytest.param("depthfl", {}, ROUNDS, marks=pytest.mark.slow),
        # Holds more than it trains: recorded in each round, where it is long enough.
        pytest.param("fed_hello", {}, 0, marks=pytest.mark.slow),
    ],
    ids=["fedra", "adamw_fedprox_mixer", "bitfit", "ffa_lora", "depthfl", "fed_hello"],
)
def test_four_rounds_of_random_M_are_recorded_once(registry, gpu, name, options, recorded):
    """Though clients finish at different steps, and one takes none."""
    cohort = ragged([4, 3, 3, 1], steps=[LONG - 1, 3, 2, 0], sizes=[4])
    one = four_rounds(registry, fast.train, "cuda", name, cohort, **options)
    assert gpu.graphs.recorded == recorded
    close(one, four_rounds(registry, sequential.train, "cpu", name, cohort, **options))


def test_who_finishes_early_goes_on_in_the_shape_of_most_steps(registry, gpu):
    """Every client ends with a short batch, at a step of its own: five shapes a round, and one that is met often."""
    even = ragged([4, 3, 3, 1], steps=[9, 7, 5, 3], sizes=[4])

    def batches(n):
        left = int(even.steps[n])
        for x, y in even.batches(n):
            left -= 1
            yield (x, y) if left else (x[:3], y[:3])

    cohort = dataclasses.replace(even, batches=batches)
    one = four_rounds(registry, fast.train, "cuda", "fedra", cohort)
    assert gpu.graphs.recorded == 1 and gpu.graphs.replayed == 5 * ROUNDS - 2
    close(one, four_rounds(registry, sequential.train, "cpu", "fedra", cohort))


@pytest.mark.slow
def test_each_shape_of_batches_is_recorded_once(registry, gpu):
    cohort = ragged([4, 3, 3, 1], steps=[4] * 4, sizes=[4, 4, 4, 4, 2])
    one = four_rounds(registry, fast.train, "cuda", "fedra", cohort)
    assert gpu.graphs.recorded == 4 and gpu.graphs.replayed == 4 * (ROUNDS - 2)
    close(one, four_rounds(registry, sequential.train, "cpu", "fedra", cohort))


def test_a_step_that_stands_ends_with_its_model(registry, gpu):
    gc.collect()
    before = len(standing._standing)
    four_rounds(registry, fast.train, "cuda", "allsmall", ragged([4, 3, 3, 1], [2] * 4, [4]))
    gc.collect()
    assert len(standing._standing) == before


def test_drawing_adapters_leaves_frozen_weights_where_they_are(registry, gpu):
    setup = setup_of(registry, tiny_vit(), [4, 2], {"name": "lora", "rank": 2, "alpha": 2})
    method = registry.make("method", {"name": "fedra"}, setup=dataclasses.replace(setup, device="cuda"))
    model = setup.backbone
    before = {name: p.data_ptr() for name, p in model.named_parameters() if not p.requires_grad}
    method.init(generator(0))
    assert before == {name: p.data_ptr() for name, p in model.named_parameters() if not p.requires_grad}
