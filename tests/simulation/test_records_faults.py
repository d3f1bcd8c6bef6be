"""What the books say of faults, of uploads that were refused, and of what is no number."""

import copy
import json
import math

import pytest

from fedbench.results.tables import to_table
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.simulation import Simulation


def test_faults_are_recorded_and_the_same_for_every_method(registry, cells):
    """What is lost: steps, FLOPs and time are counted, no byte comes back, and no step leaves no loss."""
    stories = []
    for method in ("fedra", "depthfl"):
        _, rounds = Simulation(cells["faulty", method], registry).run()
        to_table("rounds", rounds)
        stories.append([(row["round"], row["client"], row["steps"], row["arrived"]) for row in rounds])
        for row in rounds:
            assert (row["bytes_up"] > 0) == row["arrived"] and row["bytes_down"] > 0
            assert (row["flops"] > 0) == (row["steps"] > 0) == math.isfinite(row["loss"])
    assert stories[0] == stories[1]
    assert {(steps < 3, arrived) for *_, steps, arrived in stories[0]} == {
        (False, True),  # as usual
        (True, True),  # late, with a part of its work
        (True, False),  # lost
    }
    assert min(steps for *_, steps, _ in stories[0]) == 0


def test_a_loss_that_is_no_number_is_a_divergence(registry, cells):
    config = json.loads(json.dumps(cells["skew", "fedra"]))
    config["train"]["optimizer"]["lr"], config["train"]["clip"] = 1e30, None
    with pytest.raises(Diverged, match="the training loss of client 0 in round 1 is (nan|inf)"):
        Simulation(config, registry).run()


def test_an_update_that_is_no_number_is_a_divergence_where_no_fault_made_it_so(registry, cells):
    """The loss before the only step is finite, and the step leads nowhere."""
    config = copy.deepcopy(cells["skew", "fedra"])
    config["train"]["optimizer"]["lr"], config["train"]["clip"], config["train"]["max_steps"] = 1e38, None, 1
    config["train"]["optimizer"]["weight_decay"] = 1e38
    with pytest.raises(Diverged, match="the update of client 0 in round 1 is not finite"):
        Simulation(config, registry).run()


def test_a_model_whose_answers_are_no_numbers_is_a_divergence_in_the_last_round_too(registry, cells):
    """Loss and update of the only step are finite, and no later loss tells what they have made of the model."""
    config = copy.deepcopy(cells["skew", "fedra"])
    config["train"]["optimizer"]["lr"], config["train"]["clip"], config["train"]["max_steps"] = 1e30, None, 1
    config["train"]["rounds"] = 1
    with pytest.raises(Diverged, match=r"[1-9]\d* of \d+ answers to test and validation examples are not finite"):
        Simulation(config, registry).run()


def test_spoilt_uploads_are_recorded_the_same_for_every_method(registry, cells):
    """A refused client has sent its bytes, a lost one has not; neither has arrived."""
    stories = []
    for method in ("fedra", "depthfl"):
        progress = Progress()
        evaluation, rounds = Simulation(cells["spoilt", method], registry).run(progress=progress)
        uploads = progress.tables["uploads"]
        to_table("uploads", uploads)
        stories.append(uploads)
        refused = [(row["round"], row["client"]) for row in rounds if row["bytes_up"] and not row["arrived"]]
        assert refused == [(row["round"], row["client"]) for row in uploads]
        assert {(row["corrupted"], row["rejected"]) for row in uploads} == {("nan", "not finite")}
        assert any(row["arrived"] for row in rounds) and not all(row["bytes_up"] for row in rounds)
    assert stories[0] == stories[1] != []


def test_a_refused_client_is_not_billed_what_it_would_have_got_back(registry, cells):
    """In a round that averages heads and tails: it has sent its own, and has never seen the mean."""
    simulation, progress = Simulation(cells["spoilt", "fedv"], registry), Progress()
    _, rounds = simulation.run(progress=progress)
    refused = {row["client"] for row in progress.tables["uploads"] if row["round"] == 1}
    first, price = [row for row in rounds if row["round"] == 1], simulation.method.cost(1, 0)
    own = next(sent.down_after for sent in price.sent if sent.what == "weights")
    for row in first:
        work = simulation.federation.work(row["client"], row["steps"])
        usual = sum(down for _, down, _ in price.exchange(work.images, work.last))
        if row["arrived"] or row["client"] in refused:
            assert row["bytes_down"] == usual - own * (row["client"] in refused)
    (weights,) = (row for row in progress.tables["exchange"] if row["round"] == 1 and row["what"] == "weights")
    arrived = sum(row["arrived"] for row in first)
    assert (weights["bytes_down"], weights["bytes_up"]) == (own * arrived, own * (arrived + len(refused)))
    assert refused and arrived
