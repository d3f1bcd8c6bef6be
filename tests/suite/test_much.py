"""Huge suites, wrong or right, are told of in time: nothing is looked at more often than it must be."""

from __future__ import annotations

from made_up import SMALL

from fedbench.suite.validate import MOST
from fedbench.suite.values import distinct
from fedbench.suite.yaml import Node


def test_a_huge_grid_is_refused_before_it_is_built(faults_of):
    axes = "".join(
        f"  {key}: [{', '.join(map(str, range(1, 60)))}]\n"
        for key in ("train.rounds", "train.batch_size", "adapter.rank")
    )
    assert faults_of(SMALL + "sweep:\n" + axes) == [
        "s.yaml:9:1: this suite has 205,379 cells; at most 20,000 are taken"
    ]


def test_thousands_of_faults_are_not_looked_into_one_by_one(faults_of, monkeypatch):
    """Each costs a copy of its mapping: a suite of 1 MiB took minutes."""
    copies = []
    put = Node.put
    monkeypatch.setattr(Node, "put", lambda node, path, new: (copies.append(path), put(node, path, new))[1])
    *told, last = faults_of(SMALL + "".join(f"k{i}: 1\n" for i in range(3 * MOST)))
    assert 'unknown key "k0"' in told[0]
    assert last.endswith("more problems") and len(copies) < 2 * MOST


def test_whether_a_seed_is_listed_twice_takes_a_look_at_each(monkeypatch):
    looks = []

    class Seed(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            looks.append(other)
            return int(self) == other

    distinct([Seed(i) for i in range(1000)])
    assert len(looks) < 1000
