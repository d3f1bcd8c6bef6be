"""fedbench compare sizes: what clients can run of each method's model, by hand."""

from __future__ import annotations

import csv
import io
import json
import math

import pandas
import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.leaderboards import leaderboards
from fedbench.report.results import result_frame
from fedbench.report.views.sizes import deployable
from fedbench.results import load
from fedbench.results.pack import pack

NO_SIZE = dict.fromkeys(("capacity", "rank", "width"))


def at(capacity, a, b, memory=None, alone=True, metric="accuracy", **size):
    """Rows of sizes.parquet: what a size scores in two domains."""
    size = {"rank": None, "width": None} | size
    facts = {"round": 12, "capacity": capacity, **size, "memory_bytes": memory, "alone": alone}
    shares = zip("ab", (a, b), strict=True)
    return [{**facts, "domain": d, "client": -1, "metric": metric, "value": v, "examples": 300} for d, v in shares]


def runs(*clients, metric="accuracy", device=""):
    """Rows of deployed.parquet: (capacity or None, value) of client 0, 1, ... in domains a, b, a, ..."""
    return [
        {
            **({**NO_SIZE, "capacity": capacity} if capacity else NO_SIZE),
            "round": 12,
            "client": n,
            "domain": "ab"[n % 2],
            "device": device,
            "metric": metric,
            "value": value if capacity else math.nan,
        }
        for n, (capacity, value) in enumerate(clients)
    ]


def cell(folder, method, seed, sizes=None, clients=None):
    write_cell(
        folder / "s",
        method,
        seed,
        evaluation=eval_rows({12: {"a": 0.8, "b": 0.6 + seed / 100}}),
        sizes=sizes,
        deployed=clients,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """FedRA: one of three clients runs all 12 layers, one 3, one nothing. DepthFL: all run something."""
    folder = tmp_path_factory.mktemp("made")
    for seed in range(3):
        v = 0.6 + seed / 100
        cell(
            folder,
            "fedra",
            seed,
            at(3, 0.1, 0.2, 2**20) + at(12, 0.8, v, 2**22),
            runs((12, 0.8), (3, 0.2), (None, 0)),
        )
        cell(folder, "depthfl", seed, at(3, 0.5, v, 2**20) + at(12, 0.8, v, 2**22), runs((12, 0.8), (3, v), (3, 0.5)))
        cell(folder, "fedv", seed, at(12, 0.7, v, alone=False), runs(*[(None, 0)] * 3))
        cell(folder, "allsmall", seed)
    pack(folder / "s")
    return folder


def rows_of(folder, metric="accuracy"):
    return result_frame(deployable(leaderboards(load([folder]), metric))).set_index("method")


def test_deployable_is_the_mean_over_clients_and_nothing_counts_as_0(folder):
    fedra, depthfl, fedv = (rows_of(folder).loc[name] for name in ("fedra", "depthfl", "fedv"))
    assert fedra["mean"] == pytest.approx((0.8 + 0.2 + 0) / 3) and fedra["worst"] == 0
    assert (fedra["run_any"], fedra["run_largest"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert depthfl["mean"] == pytest.approx((1.3 + 0.61) / 3) and depthfl["std"] == pytest.approx(0.01 / 3)
    assert depthfl["worst"] == 0.5 and depthfl["run_any"] == 1
    assert (fedv["mean"], fedv["run_any"], fedv["run_largest"]) == (0, 0, 0)
    assert depthfl["model"] == pytest.approx(0.705)  # (0.8 + 0.61) / 2: what other tables show


def test_a_size_is_scored_over_domains_and_tells_its_memory_and_who_runs_it(folder):
    found = rows_of(folder).loc["depthfl"]
    assert found["layers 3"] == pytest.approx((0.5 + 0.61) / 2) and found["layers 3 memory"] == 2**20
    assert (found["layers 3 clients"], found["layers 12 clients"]) == (2, 1)


def test_what_is_deployable_has_the_tests_of_a_leaderboard(folder):
    found = rows_of(folder)
    assert found["group"].loc[["depthfl", "fedra"]].tolist() == ["a", "b"]
    assert found["ci_low"].loc["depthfl"] < found["mean"].loc["depthfl"] < found["ci_high"].loc["depthfl"]


def test_a_loss_has_no_mean_where_a_client_can_run_nothing(tmp_path):
    evaluation = eval_rows({12: {"a": 0.8, "b": 0.6}}, "loss")
    for method, clients in (("fedra", [(12, 0.8), (None, 0)]), ("depthfl", [(12, 0.8), (3, 1.2)])):
        sizes = at(3, 1.0, 1.2, metric="loss") + at(12, 0.8, 0.6, metric="loss")
        told = {"sizes": sizes, "deployed": runs(*clients, metric="loss")}
        write_cell(tmp_path / "s", method, evaluation=evaluation, **told)
    found = rows_of(tmp_path, "loss")
    assert math.isnan(found["mean"].loc["fedra"])
    assert found["mean"].loc["depthfl"] == pytest.approx(1.0) and found["worst"].loc["depthfl"] == 1.2


def test_each_device_has_a_mean(tmp_path):
    strong, weak = (
        runs((12, 0.8), (12, 0.6), device="laptop"),
        runs((12, 0.8), (12, 0.6), (None, 0), device="phone")[2:],
    )
    write_cell(
        tmp_path / "s",
        "fedra",
        evaluation=eval_rows({12: {"a": 0.8, "b": 0.6}}),
        sizes=at(12, 0.8, 0.6),
        deployed=strong + weak,
    )
    found = rows_of(tmp_path).loc["fedra"]
    assert found["on laptop"] == pytest.approx(0.7) and pandas.isna(found["on phone"])


def test_people_read_who_can_run_what(folder):
    text = fedbench("compare", "sizes", "s", cwd=folder, columns=60).output
    assert max(map(len, text.splitlines())) <= 60
    words = " ".join(text.split())
    assert "fedv: no client can answer without the server" in words
    assert "allsmall: not scored at sizes" in words
    assert "67%" in words and "33%" in words and "4.19 MB" in words and "run largest" in words


def test_programs_read_every_number(folder):
    rows = list(csv.DictReader(io.StringIO(fedbench("compare", "sizes", "s", "--format", "csv", cwd=folder).stdout)))
    told = {row["method"]: row for row in rows}
    assert float(told["fedra"]["mean"]) == pytest.approx(1 / 3) and told["fedra"]["worst"] == "0.0"
    assert float(told["fedra"]["run_any"]) == pytest.approx(2 / 3)
    sizes = [told["depthfl"][name] for name in ("layers 3 clients", "layers 3 memory", "layers 12 clients")]
    assert sizes == ["2.0", "1048576", "1.0"] and float(told["depthfl"]["layers 3"]) == pytest.approx(0.555)
    in_order = [name for name in rows[0] if name.startswith("layers ") and len(name.split()) == 2]
    assert in_order == sorted(in_order, key=lambda name: int(name.split()[1])) and len(in_order) > 1
    assert told["fedv"]["layers 12"] == "", "no client can answer with it alone"
    found = json.loads(fedbench("compare", "sizes", "s", "--format", "json", cwd=folder).stdout)["rows"]
    assert {one["method"]: one["group"] for one in found}["depthfl"] == "a"


@pytest.mark.parametrize("options", [("--at", "best"), ("--baseline", "fedra")])
def test_what_means_nothing_to_it_is_refused(folder, options):
    assert fedbench("compare", "sizes", "s", *options, cwd=folder).exit_code == 2


def test_results_without_sizes_say_how_to_get_them(tmp_path):
    cell(tmp_path, "fedra", 0)
    told = fedbench("compare", "sizes", "s", cwd=tmp_path)
    assert told.exit_code == 2 and "evaluation: {sizes: true}" in told.output
