"""Totals of cells in the cache: one file for the cells of a method, however many there are."""

import pytest

from fedbench.cell.totals import Totals
from fedbench.disk import cache_dir
from fedbench.errors import Broke, NotApplicable


class Facts:
    def __init__(self, test):
        self.test = test

    def stamp(self, kind, ref):
        return [kind, ref["name"], self.test]


class Counting(Totals):
    """Totals whose prices are the seeds; those it has computed are in `asked`."""

    asked: list[int] = []

    def _computed(self, config):
        self.asked.append(config["seed"])
        return {"images": config["seed"]}


def config(seed, method="fedra"):
    return {"seed": seed, "method": {"name": method}, "data": {"name": "dots", "partition": {"name": "iid"}}}


@pytest.fixture
def totals(own_cache, monkeypatch, request):
    monkeypatch.setattr(Counting, "asked", [])
    return lambda kind=Counting: kind(Facts(request.node.name))


def files():
    return len(list((cache_dir() / "totals").glob("*")))


def test_cells_of_a_method_are_kept_together_and_computed_once(totals):
    before = files()
    for _ in range(2):
        with totals() as known:
            assert [known.of(f"a{seed}", config(seed)) for seed in (1, 2)] == [{"images": 1}, {"images": 2}]
            assert known.of("b", config(3, "depthfl")) == {"images": 3}
    assert Counting.asked == [1, 2, 3] and files() == before + 2


def test_what_another_process_kept_meanwhile_stays(totals):
    with totals() as one, totals() as other:
        one.of("a", config(1))
        other.of("b", config(2))
    with totals() as known:
        assert known.of("a", config(1)) == {"images": 1} and known.of("b", config(2)) == {"images": 2}
    assert Counting.asked == [1, 2]


def test_what_breaks_is_not_kept_and_a_reason_is(totals):
    class Price:
        def totals(self, config):
            raise {1: NotApplicable("not here"), 2: RuntimeError("broke"), 3: torch_says}[config["seed"]]

    torch_says = RuntimeError("Tensor.item() cannot be called on meta tensors")
    known = totals(Totals)
    known._prices, known._blamed = Price(), lambda config, error: "; whose"
    with known:
        assert known.of("a", config(1)) == {"not_applicable": "not here"}
        with pytest.raises(Broke, match=r"RuntimeError: broke .*; whose"):
            known.of("b", config(2))
        assert "on meta tensors" in known.of("c", config(3))["unknown"]  # a run has values
    with totals() as again:
        assert again.of("a", config(1)) == {"not_applicable": "not here"}
        assert again.of("b", config(2)) == {"images": 2} and again.of("c", config(3)) == {"images": 3}
