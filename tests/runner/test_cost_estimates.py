"""Cost estimates in the cache: one file for the cells of a method, however many there are."""

from __future__ import annotations

import pytest

from fedbench.disk import cache_dir
from fedbench.runner import estimate
from fedbench.runner.estimate import cost_estimates

REASONS = {4: {"failed": "it hangs"}, 5: {"refused": "no", "option": ""}, 6: {"broke": "KeyError"}}


class Facts:
    """In the place of facts."""

    def __init__(self, test: str) -> None:
        self.test = test

    def stamp(self, kind, ref):
        return [kind, ref["name"], self.test]


class Counting:
    """In the place of `Asking`: a cell's images are its seed, and some seeds have no answer."""

    asked: list[int] = []

    def __init__(self, function, facts, timeout, groups, given):
        self.groups, self.found = groups, {}

    def run(self):
        for id, config in (cell for group in self.groups for cell in group):
            self.asked.append(config["seed"])
            self.found[id] = REASONS.get(config["seed"], {"images": config["seed"]})
            yield


def config(seed, method="fedra", lr=0.1):
    data = {"name": "dots", "partition": {"name": "iid"}}
    return {"seed": seed, "method": {"name": method}, "data": data, "train": {"optimizer": {"name": "sgd", "lr": lr}}}


@pytest.fixture
def estimates(own_cache, monkeypatch, request):
    monkeypatch.setattr(Counting, "asked", [])
    monkeypatch.setattr(estimate, "Asking", Counting)
    return lambda *cells, **more: cost_estimates(cells, Facts(request.node.name), **more)


def files():
    return len(list((cache_dir() / "totals").glob("*")))


def test_cells_of_a_method_are_kept_together_and_computed_once(estimates):
    before, cells = files(), [("a1", config(1)), ("b", config(3, "depthfl")), ("a2", config(2))]
    for _ in range(2):
        assert estimates(*cells) == {"a1": {"images": 1}, "b": {"images": 3}, "a2": {"images": 2}}
    assert sorted(Counting.asked) == [1, 2, 3] and files() == before + 2


def test_candidates_for_a_learning_rate_are_of_one_method(estimates):
    before = files()
    estimates(("a", config(1, lr=0.1)), ("b", config(2, lr=0.2)))
    assert files() == before + 1


def test_what_was_kept_before_stays(estimates):
    estimates(("a", config(1)))
    estimates(("b", config(2)))
    assert estimates(("a", config(1)), ("b", config(2))) == {"a": {"images": 1}, "b": {"images": 2}}
    assert Counting.asked == [1, 2]


@pytest.mark.parametrize("seed", REASONS)
def test_what_fails_is_not_kept(estimates, seed):
    for _ in range(2):
        assert estimates(("a", config(seed)), ("b", config(1))) == {"a": REASONS[seed], "b": {"images": 1}}
    assert Counting.asked.count(seed) == 2 and Counting.asked.count(1) == 1


def test_progress_begins_with_what_is_known(estimates):
    estimates(("a", config(1)))
    heard = []
    estimates(("a", config(1)), ("b", config(2)), preparing=lambda done, of: heard.append((done, of)))
    assert heard == [(1, 2), (2, 2)]
