"""Robust aggregators and server steps: against plain numpy, and under attack."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.families.layerwise import head_at_end
from fedbench.models.param_paths import places
from fedbench.seeding import generator
from fedbench.simulation import state as on_disk
from fedbench.testing import check_aggregator
from fedbench.testing.setups import cohort_of, same, setup_of, tiny_vit
from fedbench.types import Plan, Uploads

pytestmark = pytest.mark.usefixtures("counted_once")


def drawn(M, arrived, examples, seed):
    """An invented round in float64; what did not arrive holds NaN."""
    draw = torch.Generator().manual_seed(seed)

    def tensors(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    def rows(held, *shape):
        value = tensors(int(held.sum()), *shape)
        value[~arrived[held]] = math.nan
        return value

    N, L = M.shape
    state = {"r": [{"A": tensors(2, 3), "B": tensors(3)} for _ in range(L)], "shared": {"head.weight": tensors(4)}}
    r = [{"A": rows(M[:, j], 2, 3), "B": rows(M[:, j], 3)} for j in range(L)]
    shared = {"head.weight": rows(torch.ones(N) > 0, 4)}
    up = Uploads(r, shared, arrived, torch.zeros(N), torch.ones(N), torch.zeros(N))
    plan = Plan(M, [head_at_end(depth) for depth in M.sum(1).tolist()])
    return {**state, "memory": {}}, up, plan, cohort_of(M.sum(1).tolist(), examples)


def each_tensor(state, up, plan, new):
    """(old, rows that came back, who sent them, new) of every tensor, as numpy arrays."""
    everybody = torch.ones(len(plan.M)) > 0
    places = [(j_old, j_up, plan.M[:, j], j_new) for j, (j_old, j_up, j_new) in
              enumerate(zip(state["r"], up.r, new["r"], strict=True))]  # fmt: skip
    for old, rows, held, now in [*places, (state["shared"], up.shared, everybody, new["shared"])]:
        who = (held & up.arrived).nonzero().flatten().numpy()
        for name in old:
            yield old[name].numpy(), rows[name][up.arrived[held]].numpy(), who, now[name].numpy()


@st.composite
def a_round(draw):
    N, L = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    bits = st.lists(st.booleans(), min_size=N, max_size=N)
    M = torch.tensor([draw(bits) for _ in range(L)]).T
    examples = draw(st.lists(st.integers(1, 50), min_size=N, max_size=N))
    return drawn(M, torch.tensor(draw(bits)), examples, draw(st.integers(0, 1000)))


@given(a_round())
def test_the_median_is_numpys_over_those_that_returned_a_tensor(registry, case):
    state, up, plan, cohort = case
    new = registry.make("aggregator", {"name": "coordinate_median"})(*case)
    for old, rows, _, now in each_tensor(state, up, plan, new):
        np.testing.assert_allclose(now, np.median(rows, axis=0) if len(rows) else old, rtol=1e-12)


@given(a_round(), st.sampled_from([0.0, 0.1, 0.2, 0.34, 0.49]))
def test_the_trimmed_mean_sorts_cuts_and_averages(registry, case, trim):
    state, up, plan, cohort = case
    new = registry.make("aggregator", {"name": "trimmed_mean", "trim": trim})(*case)
    for old, rows, _, now in each_tensor(state, up, plan, new):
        n = len(rows)
        k = min(math.ceil(round(trim * n, 6)), (n - 1) // 2)
        expected = np.sort(rows, axis=0)[k : n - k].mean(axis=0) if n else old
        np.testing.assert_allclose(now, expected, rtol=1e-10, atol=1e-12)


@given(a_round(), st.sampled_from([None, 0.3, 2.0, 1e9]), st.sampled_from(["examples", "uniform"]))
def test_clipped_updates_are_averaged_by_weight(registry, case, max_norm, weights):
    state, up, plan, cohort = case
    aggregate = registry.make("aggregator", {"name": "norm_clipping", "max_norm": max_norm, "weights": weights})
    new = aggregate(*case)
    squares = np.zeros(len(plan.M))
    for old, rows, who, _ in each_tensor(state, up, plan, new):
        for n, row in zip(who, rows, strict=True):
            squares[n] += ((row - old) ** 2).sum()
    norms = np.sqrt(squares)
    came = up.arrived.numpy()
    limit = (np.median(norms[came]) if came.any() else 0) if max_norm is None else max_norm
    for old, rows, who, now in each_tensor(state, up, plan, new):
        D = cohort.num_examples.numpy()[who] if weights == "examples" else np.ones(len(who))
        steps = [min(1, limit / norms[n]) * (row - old) for n, row in zip(who, rows, strict=True)]
        expected = old + sum(d * step for d, step in zip(D, steps, strict=True)) / D.sum() if len(who) else old
        np.testing.assert_allclose(now, expected, rtol=1e-10, atol=1e-12)


@given(a_round())
def test_below_its_limit_clipping_is_the_weighted_mean_to_the_bit(registry, case):
    clipped = registry.make("aggregator", {"name": "norm_clipping", "max_norm": 1e9})
    plain = registry.make("aggregator", {"name": "weighted_mean"})
    assert same(clipped(*case), plain(*case))


@given(
    honest=st.lists(st.floats(-1, 1), min_size=3, max_size=9), bad=st.lists(st.booleans(), max_size=4),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_fewer_bad_clients_than_half_cannot_leave_the_range_of_the_honest(registry, honest, bad, seed):
    """Each of k bad clients sends 1e6 or -1e6; with trim = k / n just as many are cut as there are."""
    bad = bad[: (len(honest) - 1) // 2]
    sent = [*honest, *(1e6 if up else -1e6 for up in bad)]
    n, order = len(sent), torch.randperm(len(sent), generator=torch.Generator().manual_seed(seed))
    M = torch.ones(n, 1) > 0
    state, up, plan, cohort = drawn(M, torch.ones(n) > 0, [1] * n, 0)
    state["r"], state["shared"] = [{"A": torch.zeros(1, dtype=torch.float64)}], {}
    up.r, up.shared = [{"A": torch.tensor(sent, dtype=torch.float64)[order, None]}], {}
    for ref in ({"name": "coordinate_median"}, {"name": "trimmed_mean", "trim": len(bad) / n}):
        value = registry.make("aggregator", ref)(state, up, plan, cohort)["r"][0]["A"].item()
        assert min(honest) - 1e-12 <= value <= max(honest) + 1e-12
    limited = registry.make("aggregator", {"name": "norm_clipping", "max_norm": 0.5})(state, up, plan, cohort)
    assert abs(limited["r"][0]["A"].item()) <= 0.5
    plain = registry.make("aggregator", {"name": "weighted_mean"})(state, up, plan, cohort)["r"][0]["A"].item()
    assert sum(bad) * 2 == len(bad) or abs(plain) > 1e4


@pytest.mark.parametrize(
    ("n", "trim", "expected"),
    [(1, 0.4, 0), (2, 0.4, 0), (3, 0.1, 1), (6, 0.1, 1), (6, 0.34, 2), (10, 0.1, 1), (100, 0.07, 7), (9, 0.0, 0)],
)
def test_how_many_are_cut_at_either_end(n, trim, expected):
    from fedbench_plugins.aggregators import cut

    assert cut(n, trim) == expected


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ({"name": "trimmed_mean", "trim": 0.5}, "trim: expected a number of at least 0 and below 0.5, got 0.5"),
        ({"name": "trimmed_mean", "trim": -0.1}, "trim: expected a number of at least 0 and below 0.5, got -0.1"),
        ({"name": "norm_clipping", "max_norm": 0}, "max_norm: expected a number above 0, or null, got 0"),
        ({"name": "norm_clipping", "max_norm": "much"}, 'max_norm: expected a number above 0, or null, got "much"'),
        ({"name": "norm_clipping", "weights": "even"}, 'weights: expected "examples" or "uniform", got "even"'),
    ],
)
def test_options_that_mean_nothing(registry, ref, told):
    with pytest.raises(UserError, match=told):
        registry.make("aggregator", ref)


RULES = ["avgm", "adagrad", "adam", "yogi"]
GIVEN = {"lr": 0.3, "beta1": 0.6, "beta2": 0.8, "tau": 0.05}


def stepped(x, delta, m, v, rule, lr, beta1, beta2, tau):
    """Algorithm 2 of Reddi et al. for one tensor."""
    if rule == "avgm":
        m = beta1 * m + delta
        return x + lr * m, m, v
    m = beta1 * m + (1 - beta1) * delta
    if rule == "adagrad":
        v = v + delta**2
    if rule == "adam":
        v = beta2 * v + (1 - beta2) * delta**2
    if rule == "yogi":
        v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
    return x + lr * m / (np.sqrt(v) + tau), m, v


def with_setup(registry, ref):
    return registry.make("aggregator", ref, setup=setup_of(registry, tiny_vit(), [3, 2, 2]))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("inner", ["weighted_mean", "coordinate_median"])
def test_the_server_steps_as_the_equations_say_and_goes_on_from_its_kept_state(registry, tmp_path, rule, inner):
    aggregate = with_setup(registry, {"name": "server_optimizer", "rule": rule, "aggregator": inner, **GIVEN})
    plain = registry.make("aggregator", {"name": inner})
    M = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 1, 0]]) > 0
    state, *_ = drawn(M, torch.ones(3) > 0, [4, 1, 3], 0)
    moments = {}
    for t, came in enumerate([(1, 1, 1), (0, 1, 1), (1, 1, 0)]):  # nobody returns layer 2 in the second round
        _, up, plan, cohort = drawn(M, torch.tensor(came) > 0, [4, 1, 3], t + 1)
        target = dict(places(plain(state, up, plan, cohort)))
        (tmp_path / f"{t}").mkdir()
        on_disk.save(tmp_path / f"{t}", state)
        new = aggregate(state, up, plan, cohort)
        assert same(aggregate(on_disk.load(tmp_path / f"{t}"), up, plan, cohort), new), "to the bit after a restart"
        for place, x in places(state):
            m, v = moments.get(place, (0.0, GIVEN["tau"] ** 2))
            expected = x.numpy()
            if not (t == 1 and place.startswith("r/2/")):
                expected, *moments[place] = stepped(x.numpy(), (target[place] - x).numpy(), m, v, rule, **GIVEN)
            np.testing.assert_allclose(dict(places(new))[place].numpy(), expected, rtol=1e-12, atol=1e-12)
        state = new


def test_at_rate_one_without_momentum_the_server_takes_the_inner_model(registry):
    case = drawn(torch.ones(3, 2) > 0, torch.ones(3) > 0, [4, 1, 3], 0)
    new = with_setup(registry, {"name": "server_optimizer", "rule": "avgm", "beta1": 0.0})(*case)
    mean = registry.make("aggregator", {"name": "weighted_mean"})(*case)
    for (_, one), (_, other) in zip(places(new), places(mean), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-14, atol=1e-14)


def test_terms_that_nobody_returned_keep_their_value_and_their_moments(registry):
    state, up, plan, cohort = drawn(torch.ones(2, 1) > 0, torch.ones(2) > 0, [1, 1], 0)
    up.coordinates = {"r/0/A": torch.tensor([[True, False, False], [False, True, False]])[:, None, :]}
    new = with_setup(registry, {"name": "server_optimizer", **GIVEN})(state, up, plan, cohort)
    moved, m = new["r"][0]["A"] != state["r"][0]["A"], new["memory"]["server_optimizer"]["r/0/A"]["m"]
    assert moved.all(0).tolist() == [True, True, False] == (m != 0).all(0).tolist()


# --- in whole methods ---------------------------------------------------------------------------------------------


def test_a_server_step_keeps_the_contract_around_another_aggregator(registry):
    """testing/test_kit.py checks aggregators as they are."""
    ref = {"name": "server_optimizer", "rule": "yogi", "aggregator": {"name": "trimmed_mean", "trim": 0.4}}
    check_aggregator(with_setup(registry, ref))


def test_every_size_may_keep_its_own_last_layer(registry):
    ref = {"name": "inclusivefl", "own_last_layer": True, "aggregator": {"name": "norm_clipping"}}
    method = registry.make("method", ref, setup=setup_of(registry, tiny_vit(), [3, 2, 2]))
    state, _ = method.round(method.init(generator(0)), 0, cohort_of([3, 2, 2]), generator(0, 0))
    assert set(state["memory"]["own"]) == {"2", "3"}
