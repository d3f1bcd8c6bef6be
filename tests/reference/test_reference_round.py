"""Rounds under `profile: reference`, in float64, against plain loops written from notes on the released code.

The suite below leaves the profile as it is, but for two rounds, batches of two images, and, where a test says so, no
dropout. With dropout, the masks come from the seeds that fedbench documents, in the order of the forward pass.
"""

from __future__ import annotations

import functools
import math

import pytest
import torch
from loops import Looped, Rules, plain_loops
from recorded import BATCH, CAPACITIES, EXAMPLES, METHODS, ROUNDS, SEED, Ran, in_double, recorded

from fedbench.runner.runner import load

pytestmark = pytest.mark.usefixtures("never_counted")

SUITE = f"""
suite: reference_round
profile: reference
defaults:
  backbone: {{name: micro_vit, pretrained: false}}  # stands for a tiny ViT, which has 12 layers too
  data: strokes6  # stands for images of 8x8, in six domains too
  train: {{rounds: {ROUNDS}, batch_size: {BATCH}}}
scenarios:
  all: {{capacities: {list(CAPACITIES["all"])}}}
  some: {{capacities: {list(CAPACITIES["some"])}, participation: {{count: 3}}}}
methods: [{", ".join(METHODS)}]
seeds: [{SEED}]
"""


@pytest.fixture(scope="module")
def fedbench_ran(registry, tmp_path_factory):
    """fedbench_ran(scenario, method, dropout, engine) -> Ran; dropout None leaves the profile's."""
    path = tmp_path_factory.mktemp("suite") / "reference_round.yaml"
    path.write_text(SUITE)

    @functools.cache
    def suite(dropout):
        return load(path, registry, sets=[] if dropout is None else [f"adapter.dropout={dropout}"])

    @functools.cache
    def ran(scenario: str, method: str, dropout: float | None = 0.0, engine: str = "cohort") -> Ran:
        (cell,) = suite(dropout).points(scenarios=[scenario], methods=[method])
        return recorded(in_double({**cell.config, "engine": engine}, registry))

    return ran


def same(ran: Ran, looped: Looped) -> None:
    """Equal steps, and all numbers to 1e-12. Raises AssertionError."""
    close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
    assert ran.steps == looped.steps
    for t, (one, two) in enumerate(zip(ran.states, looped.states, strict=True)):
        assert one.keys() == two.keys()
        for name in one:
            close(one[name], two[name], msg=lambda text, at=f"after {t} rounds, {name}": f"{at}: {text}")
    close(*(torch.tensor(losses, dtype=torch.float64) for losses in (ran.losses, looped.losses)))
    close(ran.answer, looped.answer)


@pytest.fixture(scope="module")
def looped(fedbench_ran):
    """looped(scenario, method, rules) -> Looped, from the state and the draws of fedbench's own run."""

    @functools.cache
    def run(scenario: str, method: str, rules: Rules) -> Looped:
        dropout = None if rules.dropout else 0.0
        return plain_loops(fedbench_ran(scenario, method, dropout), method, CAPACITIES[scenario], rules)

    return run


BY_ALL = ("cohort", "some", 0.0)
WITH_DROPOUT = ("cohort", "some", None)  # which every layerwise method applies in one place
EVERYBODY = ("cohort", "all", 0.0)
ONE_BY_ONE = ("sequential", "some", None)  # engine/test_cohort.py compares the engines under every method
# What would be another rule, and a method and scenario in which it shows.
OTHER_RULES = {
    "weights by examples": (dict(by_examples=True), "alllarge", "some"),
    "no batch beyond the smallest client's": (dict(extra_batches=0), "fedra", "some"),
    "a whole epoch": (dict(extra_batches=math.inf), "fedra", "some"),
    "no momentum": (dict(momentum=0.0), "allsmall", "some"),
    "no weight decay": (dict(weight_decay=0.0), "allsmall", "some"),
    "no clipping": (dict(clip=math.inf), "inclusivefl", "some"),
    "colours as the backbone's": (dict(mean=(0.5,) * 3, std=(0.5,) * 3), "allsmall", "some"),
    "patch embedding without client 0": (dict(patch_needs_client_0=False), "fedra", "some"),
    "exits after every third layer": (dict(exit_blocks=(2, 5, 8)), "depthfl", "some"),
    "ramp-up over the run": (dict(ramp=ROUNDS), "depthfl", "some"),
    "no epsilon": (dict(epsilon=0.0), "depthfl", "some"),
    "the ensemble answers": (dict(ensemble=True), "depthfl", "some"),
    "other masks": (dict(dropout=0.2), "allsmall", "some"),
}


@pytest.mark.parametrize(
    ("method", "engine", "scenario", "dropout"),
    [
        *((method, *BY_ALL) for method in METHODS),
        ("depthfl", *ONE_BY_ONE),
        *(
            pytest.param(method, *WITH_DROPOUT, marks=() if method == "allsmall" else pytest.mark.slow)
            for method in METHODS
        ),
        *(pytest.param(method, *EVERYBODY, marks=pytest.mark.slow) for method in METHODS),
    ],
)
def test_two_rounds_equal_plain_loops(fedbench_ran, looped, method, engine, scenario, dropout):
    rules = Rules() if dropout is None else Rules(dropout=dropout)
    same(fedbench_ran(scenario, method, dropout, engine), looped(scenario, method, rules))


# Of the loops that every method shares; the others are of one method each.
RARELY = (
    *("a whole epoch", "no momentum", "no weight decay", "no clipping", "no epsilon", "the ensemble answers"),
    *("weights by examples", "colours as the backbone's", "other masks"),
)


@pytest.mark.parametrize(
    "other", [pytest.param(other, marks=pytest.mark.slow if other in RARELY else ()) for other in OTHER_RULES]
)
def test_one_rule_changed_is_noticed(fedbench_ran, looped, other):
    changes, method, scenario = OTHER_RULES[other]
    rules = Rules(**{"dropout": 0.0, **changes})
    with pytest.raises(AssertionError):
        same(fedbench_ran(scenario, method, None if rules.dropout else 0.0), looped(scenario, method, rules))


def test_the_rounds_meet_what_the_rules_are_about(fedbench_ran, looped):
    """Client 0 away and there, the smallest client never there, layers nobody holds, gradients to clip and not to."""
    some = fedbench_ran("some", "fedra")
    assert [0 in ids for ids in some.ids] == [False, True]
    assert all(EXAMPLES.index(min(EXAMPLES)) not in ids for ids in some.ids)
    assert all(not M.any(0).all() and M.any() for M in some.M)
    for method in METHODS:
        norms = looped("some", method, Rules(dropout=0.0)).norms
        assert min(norms) < Rules.clip < max(norms)
