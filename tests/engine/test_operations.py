"""A step's ATen operations do not grow with clients: at most 1.2 times as many for 100 as for 6, of equal depths."""

from collections import Counter

import pytest
from engine.test_cohort import FEDDYN, FEDPROX, SGD
from torch.utils._python_dispatch import TorchDispatchMode

from fedbench.engine import cohort as fast
from fedbench.engine import microbatching
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit

pytestmark = pytest.mark.usefixtures("counted_once")

LAYERS = 6


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found[str(func.overloadpacket)] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def operations(registry, monkeypatch):
    """How many operations the second step of a round takes, for so many clients in one pass."""
    monkeypatch.setattr(microbatching, "ROWS", 10**9)
    counted, made = [], fast.Step

    def counting(*given):
        step = made(*given)

        def one(inputs):
            with Counting() as seen:
                losses = step(inputs)
            del seen.found["aten.rand"]  # each client draws the numbers of its dropout by itself
            counted.append(seen.found)
            return losses

        return one

    monkeypatch.setattr(fast, "Step", counting)

    def count(clients, name, depth=LAYERS, dropout=0.0, ranks=None, **train):
        depths, ranks = [depth] * clients, None if ranks is None else [ranks] * clients
        adapter = {"name": "lora", "rank": 2, "alpha": 4, "dropout": dropout}
        train = {"optimizer": SGD, "clip": 0.5, **train}
        setup = setup_of(registry, tiny_vit(LAYERS), depths, adapter, ranks, engine=fast.train, **train)
        method = registry.make("method", {"name": name}, setup=setup)
        cohort = cohort_of(depths, steps=2, ranks=ranks)
        method.round(method.init(generator(0)), 0, cohort, generator(0, 0))
        assert len(counted) % 2 == 0  # one pass holds them all
        return counted[-1]

    return count


@pytest.mark.parametrize(
    ("name", "few", "options"),
    [
        # of few clients drawn at random, few end in each layer
        pytest.param("fedra", 32, {"depth": 3, "clip": None}, marks=pytest.mark.slow),
        ("inclusivefl", 6, {"depth": 3, "regularizer": FEDDYN}),
        ("depthfl", 6, {"dropout": 0.2, "regularizer": FEDPROX}),
        pytest.param("fedra", 6, {"dropout": 0.2, "regularizer": FEDPROX}, marks=pytest.mark.slow),
        pytest.param("allsmall", 6, {"clip": None, "dropout": 0.2}, marks=pytest.mark.slow),
        pytest.param("head_only", 6, {}, marks=pytest.mark.slow),
        pytest.param("hetlora", 6, {"ranks": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_step_takes_no_more_operations_for_more_clients(operations, name, few, options):
    few, many = (operations(clients, name, **options) for clients in (few, 100))
    grown = {kind: (few[kind], many[kind]) for kind in many if many[kind] > few[kind]}
    assert sum(many.values()) <= 1.2 * sum(few.values()), grown


def test_nor_does_one_of_few_layers_drawn_at_random_on_a_gpu(operations, monkeypatch):
    monkeypatch.setattr(fast, "pays_apart", lambda model: False)
    few, many = (operations(clients, "fedra", depth=LAYERS // 2) for clients in (6, 100))
    grown = {kind: (few[kind], many[kind]) for kind in many if many[kind] > few[kind]}
    assert sum(many.values()) <= 1.2 * sum(few.values()), (sum(few.values()), sum(many.values()), grown)
