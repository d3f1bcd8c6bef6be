"""How often the CPU waits for a GPU, counted on the pretended one: not in every step, and once an evaluation."""

import dataclasses

import numpy as np
import pretended
import pytest
from engine.test_cohort import SGD

from fedbench.engine import cohort as fast
from fedbench.seeding import generator
from fedbench.simulation.batches import Pixels
from fedbench.simulation.evaluation import Evaluation
from fedbench.simulation.faults import Faults, Guard, received
from fedbench.simulation.federated_data import EvalSplit
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Images

pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture
def gpu():
    with pretended.gpu() as made:
        yield made


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
