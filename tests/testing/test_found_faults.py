"""The contract kit against faulty plugins of every kind: each is found, with a sentence that says what to change."""

from __future__ import annotations

import re

import faulty_methods
import faulty_parts
import faulty_wholes
import pytest
from faults import plugin, why

pytestmark = pytest.mark.usefixtures("counted_once")

OF_KIND = {
    "allocation": faulty_parts.ALLOCATIONS,
    "aggregator": faulty_parts.AGGREGATORS,
    "objective": faulty_parts.OBJECTIVES,
    "metric": faulty_parts.METRICS,
    "partition": faulty_parts.PARTITIONS,
    "adapter": faulty_wholes.ADAPTERS,
    "backbone": faulty_wholes.BACKBONES,
    "dataset": faulty_wholes.DATASETS,
    "method": faulty_methods.METHODS,
}
CASES = [(kind, fault) for kind, faults in OF_KIND.items() for fault in faults]


@pytest.mark.parametrize(("kind", "fault"), CASES, ids=[f"{kind}-{fault}" for kind, fault in CASES])
def test_a_fault_is_found_and_told(tmp_path, kind, fault):
    body, told = OF_KIND[kind][fault]
    said = why(tmp_path, plugin(kind, body))
    assert said.startswith(("BROKEN: ", "skipped: it needs")) and re.search(told, said), said


def test_the_sound_ones_that_the_faulty_are_made_of_pass(tmp_path):
    sound = [*faulty_wholes.SOUND.items(), ("method", faulty_methods.SOUND), *faulty_wholes.SOUND_OF_TEXTS.items()]
    for kind, body in sound:
        assert why(tmp_path, plugin(kind, body)) == "ok: "


ROWS = f"def it(capacities, num_layers):\n    return {faulty_parts.ROW}"

PAIRS = """
from fedbench.families.adapter_ranks import arrived_adapters, with_pairs

def it(setup):
    def aggregate(state, uploads, plan, cohort):
        def factors(one):
            return one.A.mean(0), one.product() @ torch.linalg.pinv(one.A.mean(0)) / one.pair.scaling
        found = arrived_adapters(setup.backbone, uploads, plan, cohort)
        return with_pairs(state, uploads, plan, cohort, found, factors)
    return aggregate
"""


def test_an_aggregator_of_low_rank_pairs_passes(tmp_path):
    assert why(tmp_path, plugin("aggregator", PAIRS)) == "ok: "


WAITS = """
from fedbench.families import aggregation

def it():
    def aggregate(state, uploads, plan, cohort):
        if not uploads.arrived.any():
            return state
        waited = state["memory"].get("waited", 0)
        new = aggregation.weighted_mean(state, uploads, plan, cohort) if waited == 5 else state
        return {**new, "memory": {"waited": (waited + 1) % 6}}
    return aggregate
"""


def test_an_aggregator_with_a_mean_or_a_buffer_of_its_own_passes(tmp_path):
    assert why(tmp_path, plugin("aggregator", faulty_parts.OWN_MEAN)) == "ok: "
    assert why(tmp_path, plugin("aggregator", WAITS)) == "ok: "


def test_a_metric_that_is_shown_in_percent_is_a_fraction(tmp_path):
    hundred = faulty_parts._metric(f"return 100 * {faulty_parts.RIGHT}")
    told = "BROKEN: the metric of 1 images is 100, and is shown times 100: return a fraction, or register it with"
    assert why(tmp_path, plugin("metric", hundred, "unit='%'")).startswith(told)
    assert (
        why(tmp_path, plugin("metric", hundred, "unit='points'")) == why(tmp_path, plugin("metric", hundred)) == "ok: "
    )


def test_a_cache_is_no_memory(tmp_path):
    """A module may compute a table once, and may be asked twice."""
    body = "import functools\n\n@functools.cache\ndef row(n):\n    return torch.arange(n)\n\n"
    body += "def it(capacities, num_layers):\n    return row(num_layers) < capacities[:, None]"
    assert why(tmp_path, plugin("allocation", body)) == "ok: "


HONEST = {
    "objective": (
        "class Focal(nn.Module):\n"
        "    def __init__(self, gamma: float = 2.0):\n"
        "        super().__init__()\n"
        "        self.gamma = gamma\n\n"
        "    def forward(self, exits, y, t):\n"
        "        p = [torch.log_softmax(o, 1).gather(1, y[:, None]) for o in exits]\n"
        "        return torch.stack([(-(1 - q.exp()) ** self.gamma * q).mean() for q in p]).mean()\n\n"
        "it = Focal"
    ),
    "metric": (
        "def it():\n"
        "    def f1(logits, y):\n"
        "        p = logits.argmax(1)\n"
        "        return np.mean([(2 * ((p == c) & (y == c)).sum() / ((p == c).sum() + (y == c).sum())).item()\n"
        "                        for c in y.unique()])\n"
        "    return f1"
    ),
    "partition": (
        "from fedbench.types import MIXED, Client\n\n"
        "def it(clients: int = 4):\n"
        "    def partition(y, domain, num_domains, generator):\n"
        "        parts = [np.sort(part) for part in np.array_split(generator.permutation(len(y)), clients)]\n"
        "        owns = [np.unique(domain[part]) for part in parts]\n"
        "        return [Client(i, int(d[0]) if len(d) == 1 else MIXED, part) for i, (d, part) in "
        "enumerate(zip(owns, parts))]\n"
        "    return partition"
    ),
    "adapter": (
        "from fedbench.models.adapter import resolve_targets\n\n"
        "class Beside(nn.Module):\n"
        "    def __init__(self, frozen):\n"
        "        super().__init__()\n"
        "        self.frozen, self.up = frozen, nn.Linear(frozen.out_features, frozen.out_features)\n\n"
        "    def draw(self, generator):\n"
        "        nn.init.kaiming_uniform_(self.up.weight, generator=generator)\n"
        "        nn.init.zeros_(self.up.bias)\n\n"
        "    def forward(self, x):\n"
        "        return self.frozen(x) + self.up(torch.tanh(self.frozen(x)))\n\n"
        "def it():\n"
        "    def attach(blocks):\n"
        "        for parent, attribute in resolve_targets(blocks, 'last_fc'):\n"
        "            setattr(parent, attribute, Beside(getattr(parent, attribute)))\n"
        "    return attach"
    ),
    "dataset": (
        "from fedbench.types import Dataset, Images, Splits\n\n"
        "def it():\n"
        "    x = np.linspace(0, 1, 4 * 3 * 6 * 6, dtype=np.float32).reshape(4, 3, 6, 6)\n"
        "    train, test = (Images(one, np.arange(4) % 2, np.zeros(4, np.int64)) for one in (x, x[::-1] / 2))\n"
        "    return Dataset(('one',), ('a', 'b'), 'of one size', lambda: Splits(train, test))"
    ),
}


@pytest.mark.parametrize("kind", HONEST)
def test_an_unusual_one_that_is_honest_passes(kind, tmp_path):
    """A module whose class is what makes it; a number of NumPy's; clients of several domains; a module that torch draws
    when it is made; floats of one size."""
    assert why(tmp_path, plugin(kind, HONEST[kind])) == "ok: "


@pytest.mark.parametrize("name", ["my alloc!", "a,b", "-first", "käse", "x" * 81, "a b", "a=b"])
def test_a_name_that_no_suite_can_filter_by_is_found(tmp_path, name):
    source = plugin("allocation", ROWS).replace("register('it'", f"register({name!r}")
    assert why(tmp_path, source).startswith("BROKEN: suites and filters cannot name it: a name has letters, digits")


@pytest.mark.parametrize("name", ["it", "x" * 80, "v1.2+b_c-d", "0a"])
def test_a_name_that_suites_can_filter_by_passes(tmp_path, name):
    assert why(tmp_path, plugin("allocation", ROWS).replace("register('it'", f"register({name!r}")) == "ok: "
