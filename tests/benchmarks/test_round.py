"""One FedRA round of the quickstart on each engine: `tox -e bench`, or pytest tests/benchmarks --benchmark-enable."""

import pytest

from fedbench.runner import load
from fedbench.seeding import generator
from fedbench.trial import ENGINES, Trial


@pytest.mark.parametrize("engine", ENGINES)
def test_a_round(benchmark, registry, engine):
    (cell,) = load("suites/quickstart.yaml", registry, sets=["train.max_steps=2"]).cells(methods=["fedra"])
    trial = Trial({**cell.config, "engine": engine}, registry)
    state, cohort = trial.method.init(generator(0)), trial.federation.cohort(0)

    def one():
        with trial.kernels():
            return trial.method.round(state, 0, cohort, generator(0, 0))

    _, report = benchmark.pedantic(one, rounds=5, warmup_rounds=1)
    assert report.uploads.arrived.all()
