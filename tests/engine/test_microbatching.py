"""Who steps with whom, how much a pass holds, and what is done where that was too much."""

import dataclasses

import pytest
import torch
from engine.test_cohort import ADAPTERS, SGD
from hypothesis import given
from hypothesis import strategies as st
from ragged import ragged, same

from fedbench import machine
from fedbench.engine import cohort as fast
from fedbench.engine import microbatching, sequential
from fedbench.engine.microbatching import grouped, joined
from fedbench.families.layerwise import head_at_end
from fedbench.models.backbone import Blocks
from fedbench.models.param_paths import holders
from fedbench.seeding import generator
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench.types import Job, Plan
from fedbench_plugins.objectives import cross_entropy

PLAN = Plan(torch.ones(2, 1, dtype=torch.bool), [head_at_end(1)] * 2)
JOB = Job(0, 0, SGD, None, cross_entropy)


@pytest.fixture
def gpu(monkeypatch):
    """Sets what torch says of a GPU's memory: free and all of it, a process's share, reserved and used, in bytes."""

    def has(free, total, share=1.0, reserved=0, used=0):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (free, total))
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device=None: share)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: used)
        return machine.gpu_room("cuda")

    return has


def test_room_is_what_is_free_of_the_gpu_and_of_the_process_s_share(gpu):
    assert gpu(900, 1000) == 900
    assert gpu(900, 1000, share=0.25) == 250
    assert gpu(100, 1000, share=0.25) == 100  # others have taken more than theirs
    assert gpu(600, 1000, share=0.5, reserved=400, used=150) == 100 + 250  # what its allocator keeps unused is its own
    assert gpu(600, 1000, share=0.25, reserved=300, used=300) == 0


class Told:
    """Batches that say how many images the first of each client has, and are not to be drawn."""

    image_size = 8

    def __call__(self, n):
        pytest.fail("a batch was drawn")

    def first(self, n):
        return [3, 2][n]


def test_first_batches_are_told_without_being_drawn_or_looked_into():
    model, cohort = Blocks(tiny_vit()), ragged([1, 1], [1, 1], [3, 2])
    told, nobody = (dataclasses.replace(cohort, batches=batches) for batches in (Told(), lambda n: iter(())))
    assert microbatching.passes(model, PLAN, told, JOB) == ([15, 10], microbatching.ROWS)  # 5 tokens an image
    assert microbatching.passes(model, PLAN, cohort, JOB) == ([15, 10], microbatching.ROWS)
    assert microbatching.passes(model, PLAN, nobody, JOB) == ([0, 0], microbatching.ROWS)


def a_round(registry, engine):
    setup = setup_of(registry, tiny_vit(), [4, 3, 3, 1], ADAPTERS["dropout"], optimizer=SGD, clip=0.5)
    method = registry.make("method", {"name": "depthfl"}, setup=dataclasses.replace(setup, engine=engine))
    cohort = ragged([4, 3, 3, 1], steps=[3, 2, 3, 1], sizes=[4, 4, 2])
    state, report = method.round(method.init(generator(0)), 0, cohort, generator(0, 0))
    return state, vars(report.uploads) | {"seconds": None}


def test_a_group_that_does_not_fit_goes_on_in_halves_with_the_same_numbers(registry, monkeypatch):
    """With dropout, amid a round: nobody's draws or batches are used up by what was tried."""
    tried, real = [], fast.train_group

    def small(model, start, plan, cohort, job, group):
        tried.append(len(group))
        part = real(model, start, plan, cohort, job, group)
        if len(group) > 1:
            raise torch.cuda.OutOfMemoryError("no room")
        return part

    monkeypatch.setattr(fast, "train_group", small)
    one = a_round(registry, fast.train)
    assert tried == [4, 2, 1, 1, 2, 1, 1]
    same(one, a_round(registry, sequential.train))


def test_a_client_that_does_not_fit_alone_is_out_of_memory(registry, monkeypatch):
    def none(*arguments):
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(fast, "train_group", none)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="no room"):
        a_round(registry, fast.train)


def test_later_passes_on_a_gpu_are_no_larger_than_what_fitted(monkeypatch, gpu):
    gpu(1000, 1000)
    model, cohort = Blocks(tiny_vit()), ragged([1, 1], [1, 1], [3, 2])
    monkeypatch.setattr(microbatching, "per_image", lambda *arguments: (0, 10))
    monkeypatch.setattr(Blocks, "device", torch.device("cuda"))
    assert microbatching.passes(model, PLAN, cohort, JOB) == ([30, 20], 600)
    assert microbatching.halved(model, [0, 1, 2], [50, 10, 40]) == [[0, 1], [2]]
    assert microbatching.passes(model, PLAN, cohort, JOB) == ([30, 20], 50)
    assert microbatching.passes(Blocks(tiny_vit()), PLAN, cohort, JOB) == (
        [30, 20],
        600,
    )  # other models are not concerned


def test_six_unequal_clients_make_two_groups_of_equal_work():
    """Depths 12, 10, 8, 6, 4, 3 and 544 rows each: three fit into 2,080."""
    assert grouped([12, 10, 8, 6, 4, 3], [544] * 6, 2080) == [[0, 3, 4], [1, 2, 5]]


def test_clients_that_fill_a_pass_stand_alone():
    assert grouped([3, 2, 1], [2080] * 3, 2080) == [[0], [1], [2]]
    assert grouped([1, 1], [9999, 10], 2080) == [[0], [1]]


def test_nobody_makes_no_group():
    assert grouped([], [], 2080) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3000)), max_size=12))
def test_everyone_is_in_one_group_and_no_group_is_too_large(clients):
    groups = grouped([work for work, _ in clients], [rows for _, rows in clients], 2080)
    assert sorted(n for group in groups for n in group) == list(range(len(clients)))
    for group in groups:
        assert len(group) == 1 or sum(clients[n][1] for n in group) <= 2080


M = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.bool)


def test_parts_are_joined_in_the_order_of_the_clients():
    plan, groups = Plan(M, [head_at_end(1)] * 4), [[1, 3], [0, 2]]

    def part(group):
        places = {"r/0/a": "r/0", "r/1/a": "r/1", "shared/head.bias": "shared/head.bias"}
        rows = {name: torch.tensor([[float(n)] for n in holders(plan, at, group)]) for name, at in places.items()}
        return rows | {"loss": torch.tensor(group).double(), "seconds": torch.tensor(group).double()}

    up = joined([part(group) for group in groups], groups, plan, cohort_of([1, 2, 1, 2]))
    assert up.r[0]["a"].flatten().tolist() == [0, 1, 3] and up.r[1]["a"].flatten().tolist() == [1, 2, 3]
    assert up.shared["head.bias"].flatten().tolist() == up.loss.tolist() == [0, 1, 2, 3]
