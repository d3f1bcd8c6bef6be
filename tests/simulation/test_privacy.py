"""Differential privacy: against a Gaussian mechanism by hand, known epsilons, and what one client can move at most."""

import math

import pytest
import torch
from command import fedbench
from deployment.in_process import Here, deployed, same, simulated
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import NotApplicable, UserError
from fedbench.families.aggregation import weighted_mean
from fedbench.report.views.by_name import chosen
from fedbench.results import load as results_of
from fedbench.results.identity import identity
from fedbench.runner.runner import load
from fedbench.seeding import generator
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.privacy import Privacy, PrivacyLoss, epsilon
from fedbench.simulation.simulation import Simulation
from fedbench.types import Cohort, Exit, Plan, Uploads

SUITE = """
suite: private
defaults:
  backbone: {name: vit_tiny_patch16_224, pretrained: false, img_size: 32, embed_dim: 48, depth: 4}
  adapter: {name: lora, rank: 4, alpha: 4, dropout: 0.0}
  data: {name: strokes6, classes: 3, train_per_class: 3, test_per_class: 1}
  train: {rounds: 3, max_steps: 2, batch_size: 2}
  capacities: [4, 2, 1, 2, 1, 4]
  participation: {count: 4}
scenarios:
  plain: {}
  nothing: {privacy: null}
  central: {privacy: {clip: 0.5, noise: 0.8}}
  usual: {privacy: {clip: 0.5, noise: 0.8, delta: 1.0e-5, local: false}}
  local: {privacy: {clip: 0.5, noise: 0.8, local: true}}
  corrected: {privacy: {clip: 0.5, noise: 0.8}, train: {regularizer: {feddyn: 0.1}}}
methods: [fedra, fedit, fslora, depthfl, legend, flora, ditto, fedavg, fedv, hetlora, fedkseed, fwdllm, spry]
"""


@pytest.fixture(scope="module")
def configs(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "private.yaml"
    path.write_text(SUITE)
    return {(cell.scenario, cell.method): cell.config for cell in load(path, registry).points()}


def round_of(M, values, examples, masks=None, arrived=None):
    """(uploads, start, plan, cohort) of clients that hold a layer's two numbers where M is true, and started at 0."""
    N, L = M.shape
    r = [{"a": torch.stack([values[n][j] for n in range(N) if M[n, j]]) if M[:, j].any() else torch.zeros(0, 2)}
         for j in range(L)]  # fmt: skip
    coordinates = {} if masks is None else {
        f"r/{j}/a": torch.stack([masks[n][j] for n in range(N) if M[n, j]]) for j in range(L) if M[:, j].any()
    }  # fmt: skip
    ones = torch.ones(N, dtype=torch.int64)
    cohort = Cohort(list(range(N)), M.sum(1), torch.tensor(examples), ones, lambda n: iter(()))
    up = Uploads.of(cohort, r, {}, torch.ones(N), torch.ones(N), coordinates)
    up.arrived = torch.ones(N, dtype=torch.bool) if arrived is None else arrived
    start = {"r": [{"a": torch.zeros(2, dtype=torch.float64)} for _ in range(L)], "shared": {}}
    return up, start, Plan(M, [[Exit(1, "head")]] * N), cohort


def private(local=False, clip=1.0, noise=2.0, weights="examples"):
    return Privacy(clip, noise, local, 7, weights)


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_the_noise_of_the_server_is_that_of_a_gaussian_mechanism_by_hand():
    """Layer 0 is held by both, with 1 and 3 examples; layer 1 by the second alone. The first update, of norm 5, is
    scaled to 1; the second is short enough."""
    M = torch.tensor([[True, False], [True, True]])
    values = [doubles([3.0, 4.0], [0.0, 0.0]), doubles([0.3, 0.0], [0.0, 0.4])]
    up, start, plan, cohort = round_of(M, values, [1, 3])
    found = weighted_mean(start, private().of_server(up, start, plan, cohort, t=5), plan, cohort)
    chance = generator(7, 5, use="privacy")
    Z = [torch.randn(2, generator=chance, dtype=torch.float64) for _ in range(2)]
    first = 0.25 * doubles(0.6, 0.8) + 0.75 * doubles(0.3, 0.0) + 2.0 * 1.0 * 0.75 * Z[0]
    second = doubles(0.0, 0.4) + 2.0 * 1.0 * 1.0 * Z[1]
    torch.testing.assert_close(found["r"][0]["a"], first)
    torch.testing.assert_close(found["r"][1]["a"], second)


def test_a_client_that_did_not_come_back_has_no_share():
    M, values = torch.ones(2, 1, dtype=torch.bool), [doubles([3.0, 4.0]), doubles([0.3, 0.0])]
    up, start, plan, cohort = round_of(M, values, [3, 1], arrived=torch.tensor([False, True]))
    found = weighted_mean(start, private().of_server(up, start, plan, cohort, t=0), plan, cohort)
    Z = torch.randn(2, generator=generator(7, 0, use="privacy"), dtype=torch.float64)
    torch.testing.assert_close(found["r"][0]["a"], doubles(0.3, 0.0) + 2.0 * Z)


def test_each_client_adds_noise_of_its_own_to_what_it_trains():
    M, values = torch.ones(2, 1, dtype=torch.bool), [doubles([3.0, 4.0]), doubles([0.3, 0.0])]
    masks = [torch.tensor([[True, True]]), torch.tensor([[True, False]])]
    up, start, plan, cohort = round_of(M, values, [1, 1], masks)
    rows = private(local=True).of_clients(up, start, plan, cohort, t=2).r[0]["a"]
    Z = [torch.randn(2, generator=generator(7, 2, n, "privacy"), dtype=torch.float64) for n in range(2)]
    torch.testing.assert_close(rows[0], doubles(0.6, 0.8) + 2.0 * Z[0])
    torch.testing.assert_close(rows[1], torch.stack([0.3 + 2.0 * Z[1][0], torch.zeros((), dtype=torch.float64)]))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_client_moves_all_means_together_by_one_over_z_deviations_at_most(data):
    """Whoever holds what: masks, weights and lost clients are drawn; the deviations are those that are added."""
    N, L = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    M = torch.rand(N, L, generator=draw) < 0.6
    values = [3 * torch.randn(L, 2, generator=draw, dtype=torch.float64) for _ in range(N)]
    masks = [torch.rand(L, 2, generator=draw) < 0.7 for _ in range(N)]
    values = [value * mask for value, mask in zip(values, masks, strict=True)]
    examples = torch.randint(1, 50, (N,), generator=draw).tolist()
    arrived = torch.rand(N, generator=draw) < 0.8
    n, mechanism = data.draw(st.integers(0, N - 1)), private(clip=0.7, noise=1.3)

    def means(given, noisy=True):
        up, start, plan, cohort = round_of(M, given, examples, masks, arrived)
        up = mechanism.of_server(up, start, plan, cohort, 0) if noisy else mechanism._clipped(up, start, plan)
        return torch.cat([r_j["a"] for r_j in weighted_mean(start, up, plan, cohort)["r"]])

    chance = generator(7, 0, use="privacy")
    Z = torch.cat([torch.randn(2, generator=chance, dtype=torch.float64) if M[:, j].any() else torch.ones(2)
                   for j in range(L)])  # fmt: skip
    deviations = (means(values) - means(values, noisy=False)) / Z
    without = [torch.zeros(L, 2, dtype=torch.float64) if m == n else value for m, value in enumerate(values)]
    moved = means(values, noisy=False) - means(without, noisy=False)
    assert (moved[deviations.abs() < 1e-12] == 0).all()
    reached = deviations.abs() >= 1e-12
    assert (moved[reached] / deviations[reached]).norm() <= 1 / 1.3 + 1e-9


@pytest.mark.parametrize(
    ("sigma", "delta", "known"),
    [  # of one round with sensitivity 1
        (3.730632, 1e-5, 1.0),  # Balle and Wang's own code, https://github.com/BorjaBalle/analytic-gaussian-mechanism
        (1.0, 1e-5, 4.377178),  # dp-accounting 0.6.0, by privacy loss distributions
        (0.8, 1e-5, 5.679529),
    ],
)
def test_known_epsilons(sigma, delta, known):
    assert epsilon(1 / sigma, delta) == pytest.approx(known, abs=2e-4)


@pytest.mark.parametrize(("noise", "rounds"), [(0.8, 1), (0.8, 12), (4.0, 100), (20.0, 3)])
def test_epsilon_is_that_of_googles_library(noise, rounds):
    accounting = pytest.importorskip("dp_accounting")
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(noise), rounds)
    exact, renyi = accounting.pld.PLDAccountant(), accounting.rdp.RdpAccountant()
    own = epsilon(math.sqrt(rounds) / noise, 1e-5)
    assert own == pytest.approx(exact.compose(event).get_epsilon(1e-5), rel=1e-3, abs=1e-3)
    assert own <= renyi.compose(event).get_epsilon(1e-5)  # which is an upper bound


def test_nobody_who_sends_nothing_loses_anything():
    assert epsilon(0.0, 1e-5) == 0.0
    assert epsilon(0.5, 0.4) == 0.0  # so little is hidden in delta


def test_epsilon_is_of_the_client_that_sent_most_often_and_goes_on_after_a_stop():
    asked = {1: (0, 1), 2: (1, 2), 3: (0, 1)}
    rows = [{"round": t, "client": n, "arrived": (t, n) != (2, 1)} for t, own in asked.items() for n in own]
    whole, so_far, found = PrivacyLoss({"clip": 1.0, "noise": 2.0}), [], []
    for t in range(3):
        own = [row for row in rows if row["round"] == t + 1]
        so_far += own
        found += whole.rows(t, own, so_far)
    assert found == [{"round": t + 1, "epsilon": epsilon(math.sqrt(k) / 2.0, 1e-5)} for t, k in enumerate((1, 1, 2))]
    assert PrivacyLoss({"clip": 1.0, "noise": 2.0}).rows(2, own, so_far) == found[2:]


def test_two_other_data_sets_of_a_client_are_twice_as_far_apart_as_one_and_nothing():
    local = PrivacyLoss({"clip": 1.0, "noise": 2.0, "local": True, "delta": 1e-6})
    assert local.epsilon(4) == epsilon(2 * 2 / 2.0, 1e-6)


@pytest.mark.parametrize("scenario", ["central", "local"])
@pytest.mark.parametrize("method", ["fedra", "fedit", "fslora", "depthfl", "legend"])
def test_both_engines_add_the_same_noise(configs, registry, scenario, method):
    config, states = configs[scenario, method], []
    for engine in ("cohort", "sequential"):
        simulation, progress = Simulation({**config, "engine": engine}, registry), Progress()
        simulation.run(progress=progress)
        states.append((simulation.state, progress.tables["privacy"]))
    (together, lost), (alone, lost_too) = states
    assert lost == lost_too and len(lost) == 3
    for one, other in zip(together["r"], alone["r"], strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scenario", ["central", "local"])
def test_a_cell_on_nodes_has_the_noise_of_the_simulated_one(configs, registry, tmp_path, scenario):
    config = {**configs[scenario, "fedra"], "engine": "sequential", "participation": {"all": True}}
    same(deployed(config, registry, Here(tmp_path, plugins=())), simulated(config, registry))


@pytest.mark.parametrize(
    ("scenario", "method", "why"),
    [
        ("central", "flora", "weighted means of uploads alone"),
        ("central", "hetlora", "weighted means of uploads alone"),
        ("corrected", "fedra", "weighted means of uploads alone"),
        ("central", "ditto", "keep no tensors"),
        ("local", "fedavg", "one update of a model a round"),
        ("local", "fedv", "one update of a model a round"),
        ("local", "fedkseed", "adds noise to weights, and clients here send none"),
        ("central", "fedkseed", "adds noise to weights, and clients here send none"),
        ("local", "fwdllm", "adds noise to weights, and clients here send none"),
    ],
)
def test_a_method_that_is_not_covered_is_not_applicable_and_says_why(configs, registry, scenario, method, why):
    with pytest.raises(NotApplicable, match=why):
        Simulation(configs[scenario, method], registry)


@pytest.mark.parametrize("method", ["flora", "spry"])
def test_local_noise_goes_with_any_aggregator_and_way_to_train(configs, registry, method):
    Simulation(configs["local", method], registry)


def test_privacy_is_part_of_what_a_cell_is_and_saying_nothing_is_not(configs):
    def id(config):
        return identity(config, {}, {})

    assert configs["nothing", "fedra"] == configs["plain", "fedra"]
    assert configs["usual", "fedra"] == configs["central", "fedra"]
    assert len({id(configs[name, "fedra"]) for name in ("plain", "central", "local")}) == 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{clip: 1.0}", 'privacy needs "noise"'),
        ("{clip: 1.0, noise: 0.0}", "privacy.noise"),
        ("{clip: 1.0, noise: 1.0, delta: 1.0}", "privacy.delta"),
        ("{clip: 1.0, noise: 1.0}, train: {guard: {max_norm: 2.0}}", "no epsilon covers what train.guard"),
    ],
)
def test_mistakes_in_a_suite(registry, tmp_path, said, message):
    (tmp_path / "suite.yaml").write_text(SUITE.replace("plain: {}", f"plain: {{privacy: {said}}}"))
    with pytest.raises(UserError, match=message):
        load(tmp_path / "suite.yaml", registry).points()


def test_a_leaderboard_has_epsilon_beside_accuracy(tmp_path):
    (tmp_path / "suite.yaml").write_text(SUITE)
    asked = ("--scenario", "plain", "--scenario", "central", "--method", "fedra", "--results", "results")
    fedbench("run", "suite.yaml", *asked, cwd=tmp_path)
    results = results_of([tmp_path / "results"])
    board = chosen(results, "boards").set_index("scenario")
    (private,) = [one for one in results if one.entry.scenario == "central"]
    most = int(private.rounds.to_pandas()["client"].value_counts().max())
    assert board["epsilon"]["central"] == epsilon(math.sqrt(most) / 0.8, 1e-5)
    assert board["epsilon"].isna()["plain"]


@pytest.mark.parametrize("method", ["fedra", "depthfl", "legend"])
def test_a_plan_knows_how_few_clients_send_one_layer(configs, registry, method):
    """As they do in the rounds that follow, because every draw is seeded."""
    simulation, progress = Simulation(configs["plain", method], registry), Progress()
    planned = simulation.records.totals(simulation.method, 1)["fewest_holders"]
    simulation.run(progress=progress)
    holders = {}
    for row in progress.tables["rounds"]:
        for layer in row["trained_layers"]:
            holders[row["round"], layer] = holders.get((row["round"], layer), 0) + 1
    assert planned == min(holders.values())
