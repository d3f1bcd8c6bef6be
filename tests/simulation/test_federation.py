"""Who takes part, with what capacity and which batches: functions of seed, round and client alone."""

import dataclasses

import numpy as np
import pytest
import torch
from federations import federation

from fedbench.engine.microbatching import inputs_of
from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench.seeding import numpy_generator
from fedbench.suite.setting_layers import EACH_EPOCH
from fedbench.testing.setups import tiny_vit
from fedbench.types import MIXED, Exit, Plan


def labels(cohort, n):
    return [y.tolist() for _, y in cohort.batches(n)]


def test_everybody_takes_part_with_capacity_examples_and_steps():
    cohort = federation(capacities={"by_client": [12, 3]}).cohort(0)
    assert cohort.ids == [0, 1]
    assert cohort.capacities.tolist() == [12, 3]
    assert cohort.num_examples.tolist() == [10, 4]
    assert cohort.steps.tolist() == [2 * 3, 2 * 1]


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own():
    batches = labels(federation().cohort(0), 0)
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    first, second = sum(batches[:3], []), sum(batches[3:], [])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_batches_depend_on_round_client_and_seed_and_on_nothing_else():
    one = federation().cohort(1)
    assert labels(one, 0) == labels(federation().cohort(1), 0)
    assert labels(one, 0) != labels(federation().cohort(2), 0)
    assert labels(one, 0) != labels(federation(seed=1).cohort(1), 0)
    alone = one.only([1])
    assert alone.ids == [1] and labels(alone, 0) == labels(one, 1)


def test_the_pool_has_the_images_of_all_clients_each_once_before_any_comes_again():
    """14 images in batches of 4, of clients of whom one takes part."""
    cohort = federation(participation={"count": 1}).cohort(0)
    pool = cohort.batches.pooled
    batches = [y.tolist() for _, (_, y) in zip(range(8), pool(0), strict=False)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 2] * 2 and pool.first(0) == 4
    first, second = sum(batches[:4], []), sum(batches[4:], [])
    assert sorted(first) == sorted(second) == list(range(14)) and first != second
    again, later = (federation().cohort(t).batches.pooled(0) for t in (0, 1))
    assert next(again)[1].tolist() == batches[0] != next(later)[1].tolist()
    picked = pool.only([0])
    assert next(picked(0))[1].tolist() == batches[0] and len(picked.labels(0)) == 14


def test_max_steps_bounds_the_work_of_a_round():
    assert federation(max_steps=5).cohort(0).steps.tolist() == [5, 2]


def test_steps_beside_have_the_same_limit_and_are_the_same_part_of_their_own_epochs():
    """Client 0 has 3 batches, client 1 has one; usual are 2 epochs."""

    def beside(*given, **train):
        one, other = federation(**train), federation(**train).cohort(0).only([given[0]]).batches
        assert one.personal_steps(*given) == other.personal_steps(0, *given[1:])
        return one.personal_steps(*given)

    assert [beside(0, epochs, 6) for epochs in (0, 1, 2, 5)] == [0, 3, 6, 15]
    assert [beside(0, 1, done) for done in range(7)] == [0, 1, 1, 1, 2, 2, 3]
    assert [beside(0, epochs, 2, max_steps=2) for epochs in (1, 5)] == [2, 2]
    assert [beside(1, 1, 4, local_epochs=5, max_steps=4), beside(1, 9, 2, max_steps=4)] == [1, 4]
    assert beside(0, 7, 2, max_steps="smallest") == 2


def test_smallest_is_the_reference_codes_bound():
    """At most one batch more than the smallest client has: mmm = 1, so that the larger client makes 2."""
    assert federation(max_steps="smallest", local_epochs=1).cohort(0).steps.tolist() == [2, 1]


def as_released(sizes, epochs, seed=0, t=0, size=4):
    """What the FedRA authors' code has each client see: in each local epoch a new order of its images, left when more
    than mmm batches have been taken, mmm being the smallest number of batches of any registered client."""
    mmm = min(-(-n // size) for n in sizes)
    first = np.cumsum((0, *sizes))
    for i, n in enumerate(sizes):
        seen = []
        for epoch in range(epochs):
            order = numpy_generator(seed, t, i, f"shuffle/{epoch}").permutation(np.arange(first[i], first[i] + n))
            for batch_idx in range(-(-n // size)):
                if batch_idx > mmm:
                    break
                seen.append(order[batch_idx * size : (batch_idx + 1) * size].tolist())
        yield seen


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(9, 40, 16, 13, 14, 25), (4, 4), (3, 5, 9)])
def test_smallest_bounds_every_local_epoch_as_the_released_code_does(epochs, sizes):
    f = federation(sizes=sizes, max_steps="smallest" if epochs == 1 else EACH_EPOCH, local_epochs=epochs)
    cohort, expected = f.cohort(0), list(as_released(sizes, epochs))
    assert [labels(cohort, n) for n in range(len(sizes))] == expected
    assert cohort.steps.tolist() == [len(seen) for seen in expected]
    for i, seen in enumerate(expected):  # whatever part of them a straggler does
        assert [f.images(i, done) for done in range(len(seen) + 1)] == [
            sum(map(len, seen[:done])) for done in range(len(seen) + 1)
        ]
    if (sizes[0], epochs) == (9, 2):
        assert cohort.steps.tolist() == [6, 8, 8, 8, 8, 8]


def test_smallest_lets_a_model_beside_do_no_more_than_the_largest_client():
    """Batches 1 and 3, so that an epoch is 1 and 2 and no round of two epochs is above 4."""
    f = federation(max_steps=EACH_EPOCH)
    assert f.cohort(0).steps.tolist() == [4, 2]
    assert [f.personal_steps(0, epochs, 4) for epochs in (1, 2, 7)] == [2, 4, 4]
    assert [f.personal_steps(1, epochs, 2) for epochs in (1, 2, 7)] == [1, 2, 4]
    once = federation(max_steps="smallest", local_epochs=1)
    assert [once.personal_steps(0, epochs, 2) for epochs in (1, 7)] == [2, 2]


def test_images_counts_short_batches_as_they_are():
    f = federation()
    assert [f.images(0, steps) for steps in (1, 3, 4, 6)] == [4, 10, 14, 20]


def test_capacities_by_domain_follow_the_clients_domain():
    f = federation(sizes=(4, 4, 4), domains=(1, 0, 1), capacities={"by_domain": [9, 5]})
    assert f.cohort(0).capacities.tolist() == [5, 9, 5]


def test_dynamic_capacities_are_drawn_anew_for_each_round_and_client():
    """1,200 uniform draws from 1..12: each value within 4.5 standard deviations of 100 (false alarm 12 * 6.8e-6)."""
    f = federation(sizes=(4,) * 6, capacities={"uniform": [1, 12]})
    drawn = torch.stack([f.cohort(t).capacities for t in range(200)])
    counts = torch.bincount(drawn.flatten(), minlength=13)
    assert counts[0] == 0 and (counts[1:] - 100).abs().max() < 4.5 * (1200 / 12 * 11 / 12) ** 0.5
    assert len({tuple(row) for row in drawn.tolist()}) > 190
    assert f.cohort(7).capacities.tolist() == drawn[7].tolist()
    assert f.scenario.capacities.tolist() == [[1, 12]] * 6


@pytest.mark.parametrize(
    ("participation", "number"),
    [({"count": 3}, 3), ({"fraction": 0.5}, 3), ({"fraction": 0.01}, 1), ({"count": 99}, 6)],
)
def test_sampling_takes_that_many_different_clients(participation, number):
    f = federation(sizes=(4,) * 6, participation=participation)
    sampled = [f.cohort(t).ids for t in range(20)]
    assert all(len(set(ids)) == number and ids == sorted(ids) for ids in sampled)
    assert number == 6 or len({tuple(ids) for ids in sampled}) > 1


def test_one_client_of_each_domain():
    f = federation(sizes=(4,) * 6, domains=(0, 0, 0, 1, 1, 1), participation={"per_domain": 1})
    sampled = [f.cohort(t).ids for t in range(20)]
    assert all(len(ids) == 2 and ids[0] < 3 <= ids[1] for ids in sampled)
    assert {ids[0] for ids in sampled} == {0, 1, 2}


def test_a_fraction_of_the_clients_takes_everybody_in_turn():
    """300 rounds of 3 out of 6: each client within 4.5 standard deviations of 150."""
    f = federation(sizes=(4,) * 6, participation={"fraction": 0.5})
    counts = np.bincount([i for t in range(300) for i in f.cohort(t).ids])
    assert (abs(counts - 150) < 4.5 * (300 * 0.25) ** 0.5).all()


def test_clients_of_several_domains_are_a_group_of_their_own():
    f = federation(sizes=(4,) * 5, domains=(MIXED, 0, MIXED, 0, MIXED), participation={"per_domain": 2})
    sampled = [f.cohort(t).ids for t in range(20)]
    assert all(len({0, 2, 4} & set(ids)) == 2 and {1, 3} < set(ids) for ids in sampled)
    assert {i for ids in sampled for i in ids} == set(range(5))
    assert f.clients[0].domain == MIXED and f.clients[1].domain == 0


def test_a_client_of_several_domains_has_no_capacity_by_domain():
    with pytest.raises(UserError, match="client 1 has examples of several domains; give each"):
        federation(domains=(0, MIXED), capacities={"by_domain": [9, 5]})


SLOW = {"probability": 0.5, "slowdown": 2, "deadline": 1, "late": "partial"}


def test_faults_cut_the_steps_and_say_who_arrives():
    f = federation(sizes=(32,) * 40, faults={"stragglers": SLOW}, local_epochs=1)
    cohort = f.cohort(0)
    assert set(cohort.steps.tolist()) == {4, 8} and cohort.arrives.all()
    lost = federation(sizes=(32,) * 40, faults={"stragglers": {**SLOW, "late": "lost"}}, local_epochs=1).cohort(0)
    assert lost.steps.tolist() == cohort.steps.tolist() and lost.arrives.tolist() == (lost.steps == 8).tolist()


def test_who_is_lost_depends_on_round_and_client_and_not_on_who_else_takes_part():
    sizes, faults = (32,) * 40, {"dropout": 0.5}
    everybody = [federation(sizes=sizes, faults=faults).cohort(t) for t in range(2)]
    assert 8 < everybody[0].arrives.sum() < 32 and not torch.equal(everybody[0].arrives, everybody[1].arrives)
    some = federation(sizes=sizes, faults=faults, participation={"count": 7}).cohort(1)
    assert some.arrives.tolist() == everybody[1].arrives[some.ids].tolist()
    assert some.steps.tolist() == everybody[1].steps[some.ids].tolist()
    part = everybody[0].only([3, 30])
    assert part.arrives.tolist() == everybody[0].arrives[[3, 30]].tolist()


def test_without_faults_everybody_arrives():
    assert federation().cohort(0).arrives.tolist() == [True, True]


def test_ranks_are_given_as_depths_are_and_drawn_apart_from_them():
    assert federation().cohort(0).ranks is None and federation().scenario.ranks is None
    f = federation(sizes=(4, 4, 4), domains=(1, 0, 1), ranks={"by_domain": [9, 5]}, participation={"count": 2})
    cohort = f.cohort(0)
    assert cohort.ranks.tolist() == [[5, 9, 5][i] for i in cohort.ids] == cohort.only([0, 1]).ranks.tolist()
    assert f.scenario.ranks.tolist() == [[5, 5], [9, 9], [5, 5]]
    both = federation(sizes=(4,) * 6, capacities={"uniform": [1, 12]}, ranks={"uniform": [1, 12]})
    drawn = torch.stack([both.cohort(t).ranks for t in range(50)])
    assert set(drawn.flatten().tolist()) == set(range(1, 13)) and both.cohort(7).ranks.tolist() == drawn[7].tolist()
    assert (drawn != torch.stack([both.cohort(t).capacities for t in range(50)])).any()


def test_widths_are_given_as_ranks_are_and_drawn_between_their_ends():
    assert federation().cohort(0).widths is None and federation().scenario.widths is None
    f = federation(sizes=(4, 4, 4), domains=(1, 0, 1), widths={"by_domain": [1, 0.5]}, participation={"count": 2})
    cohort = f.cohort(0)
    assert cohort.widths.tolist() == [[0.5, 1.0, 0.5][i] for i in cohort.ids] == cohort.only([0, 1]).widths.tolist()
    assert cohort.widths.dtype == torch.float64 and f.scenario.widths.tolist() == [[0.5, 0.5], [1, 1], [0.5, 0.5]]
    drawn = federation(sizes=(4,) * 6, widths={"uniform": [0.25, 1]})
    values = torch.stack([drawn.cohort(t).widths for t in range(50)])
    assert 0.25 <= values.min() < 0.3 and 0.95 < values.max() <= 1 and len(values.unique()) == 300
    assert drawn.cohort(7).widths.tolist() == values[7].tolist()


def test_a_cycle_of_sizes_is_dealt_over_and_over():
    f = federation(
        sizes=(4,) * 5, domains=(0, 0, 1, 1, 1), capacities={"cycle": [12, 3]}, widths={"cycle": [1, 0.5, 0.25]}
    )
    assert f.scenario.capacities[:, 0].tolist() == [12, 3, 12, 3, 12]
    assert f.scenario.widths[:, 0].tolist() == [1, 0.5, 0.25, 1, 0.5]


def test_too_few_ranks_say_how_many_are_needed():
    with pytest.raises(UserError, match="ranks: 1 value for 2 clients"):
        federation(ranks={"by_client": [3]})


def test_too_few_capacities_say_how_many_are_needed():
    with pytest.raises(UserError, match="1 value for 2 clients"):
        federation(capacities={"by_client": [3]})


def test_a_client_without_images_is_refused():
    with pytest.raises(UserError, match=r"clients \[1\] no training examples"):
        federation(sizes=(4, 0))


def test_a_plugin_gets_images_and_an_engine_may_ask_for_features():
    f = federation(sizes=(5, 3))
    f.pixels.keep_features(lambda x: x.flatten(1))
    cohort = f.cohort(0).only([1])
    for (x, y), (features, labels) in zip(cohort.batches(0), cohort.batches.features(0), strict=True):
        assert x.dim() == 4 and torch.equal(features, x.flatten(1)) and torch.equal(y, labels)


def test_batches_that_a_method_puts_in_their_place_are_what_clients_train_on():
    cohort = federation(sizes=(5, 3)).cohort(0)
    flipped = dataclasses.replace(cohort, batches=lambda n: ((x.flip(-1), y) for x, y in cohort.batches(n)))
    model = Blocks(tiny_vit())
    plan = Plan(torch.ones(2, model.num_layers) > 0, [[Exit(model.num_layers, "head")]] * 2)
    x, _ = next(iter(inputs_of(model, plan, flipped)(0)))
    assert torch.equal(x.flip(-1), next(iter(cohort.batches(0)))[0])
