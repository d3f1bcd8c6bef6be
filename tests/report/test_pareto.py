"""fedbench compare pareto: who is on the front, who is beaten, and of whom neither can be told."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import pytest
from boards import ROLES
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.errors import UserError
from fedbench.report.frames import records
from fedbench.report.leaderboards import leaderboards
from fedbench.report.statistics.pairs import INCONCLUSIVE
from fedbench.report.views.costs import BEATEN, ON, judged, pareto
from fedbench.results import load
from fedbench.results.pack import pack

MB = 1_000_000
NOISE = (0.0, 0.006, -0.004, 0.003, -0.005)


def method(folder, name, mean, cost, seeds=5, wave=1.0):
    """Seeds around a mean; cost: MB that one client is sent in each of two rounds. The score of round 1 is half."""
    for seed in range(seeds):
        rows = eval_rows({1: {"a": mean / 2}, 2: {"a": mean + wave * NOISE[seed]}})
        rounds = [round_row(t, 0, [0] * cost, bytes_down=cost * MB, bytes_up=0, flops=10**9 // cost) for t in (1, 2)]
        write_cell(folder / "s", name, seed, evaluation=rows, rounds=rounds)


def front(folder, what="bytes", **options):
    found = pareto(leaderboards(load([folder]), roles=ROLES, **options), what)
    return {row["method"]: SimpleNamespace(**row) for row in records(found)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of six methods, the last of them a ceiling."""
    folder = tmp_path_factory.mktemp("made")
    method(folder, "cheap", 0.50, 1)
    method(folder, "middle", 0.70, 2, wave=-1)
    method(folder, "waste", 0.60, 3, wave=0.5)  # worse than middle and dearer, and that is sure
    method(folder, "dear", 0.701, 4)  # a hair above middle, which is not significant in five seeds
    method(folder, "below", 0.699, 5)  # a hair below both
    method(folder, "alllarge", 0.90, 9)
    pack(folder / "s")
    return folder


def test_front_of_means_and_what_tests_make_of_it(folder):
    found = front(folder)
    assert list(found) == ["cheap", "middle", "waste", "dear", "below", "alllarge"]  # by cost, the ceiling last
    assert {name for name, p in found.items() if p.front} == {"cheap", "middle", "dear"}
    assert {name: p.verdict for name, p in found.items()} == {
        "cheap": ON,
        "middle": ON,
        "waste": BEATEN,
        "dear": INCONCLUSIVE,
        "below": INCONCLUSIVE,
        "alllarge": "",
    }
    assert (found["waste"].beaten_by, found["waste"].ahead) == (["middle"], ["middle"])
    assert (found["below"].beaten_by, found["below"].ahead) == ([], ["middle", "dear"])
    assert found["middle"].spent == 4 * MB and found["alllarge"].spent == 18 * MB


def test_another_cost_has_another_front(folder):
    """FLOPs fall as bytes rise here: the best of the ranked ones is nearly the cheapest."""
    found = front(folder, "flops")
    assert list(found) == ["below", "dear", "waste", "middle", "cheap", "alllarge"]
    assert {name for name, p in found.items() if p.front} == {"below", "dear"}
    assert {name for name, p in found.items() if p.verdict == BEATEN} == {"waste", "cheap"}
    assert front(folder, "memory")["dear"].spent == 40 * MB  # the largest of any client, as factories have it


def test_equal_costs_leave_the_better_mean_and_equal_means_the_cheaper(tmp_path):
    method(tmp_path, "good", 0.7, 2, seeds=1)
    method(tmp_path, "bad", 0.6, 2, seeds=1)
    method(tmp_path, "dearer", 0.7, 3, seeds=1)
    found = front(tmp_path)
    assert {name: (p.front, p.verdict) for name, p in found.items()} == {
        "good": (True, INCONCLUSIVE),
        "bad": (False, INCONCLUSIVE),
        "dearer": (False, INCONCLUSIVE),
    }
    assert found["dearer"].ahead == ["good"]  # of one seed everything is inconclusive


def test_means_and_costs_that_differ_by_rounding_alone_are_equal():
    one = {"method": "one", "ranked": True, "mean": 0.3, "spent": 0.1 + 0.2}
    two = {"method": "two", "ranked": True, "mean": 0.1 + 0.2, "spent": 0.3}
    found = judged([one, two], [], higher=True)
    assert [(row["method"], row["front"], row["ahead"]) for row in found] == [("one", True, []), ("two", True, [])]


def test_costs_are_those_until_the_round_that_counts(folder):
    assert {n: p.spent / MB for n, p in front(folder, at="bytes=7MB").items()} == {
        "cheap": 2,
        "middle": 4,
        "waste": 6,
        "dear": 4,
        "below": 5,
    }


def test_what_nobody_knows_is_refused(folder):
    with pytest.raises(UserError, match="no simulated seconds, because the scenario gives its clients no devices"):
        front(folder, "seconds")


def test_the_view_in_every_format(folder):
    text = fedbench("compare", "pareto", "bytes", "s", cwd=folder, columns=80).output
    assert max(map(len, text.splitlines()[2:])) <= 80
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "beaten" in lines["waste"] and lines["waste"].rstrip().endswith("middle")
    assert lines["below"].rstrip().endswith("middle, dear") and "4.00 MB" in lines["middle"]
    rows = csv.DictReader(
        io.StringIO(fedbench("compare", "pareto", "bytes", "s", "--format", "csv", cwd=folder).stdout)
    )
    by_name = {row["method"]: row for row in rows}
    assert (by_name["below"]["ahead"], by_name["waste"]["beaten_by"]) == ("middle;dear", "middle")
    assert (by_name["middle"]["front"], by_name["alllarge"]["role"]) == ("True", "ceiling")
    told = json.loads(fedbench("compare", "pareto", "bytes", "s", "--format", "json", cwd=folder).stdout)["rows"]
    assert told[4]["ahead"] == ["middle", "dear"] and told[0]["spent"] == 2 * MB
    refused = fedbench("compare", "pareto", "bytes", "s", "--baseline", "cheap", cwd=folder)
    assert refused.exit_code == 2 and "No such option" in refused.output
