"""Pairs of fedbench/report/views/pairs.py: every two methods, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from boards import ROLES, board, write
from command import fedbench

from fedbench.errors import UserError
from fedbench.report.frames import probability
from fedbench.report.layout import laid_out
from fedbench.report.leaderboards import leaderboards
from fedbench.report.views.pairs import MATRIX_FROM, PAIRS, pairs
from fedbench.results import load
from fedbench.results.pack import pack

NOISE = (0.0, 0.006, -0.004, 0.003, -0.005)


def seeds(mean, spread=1.0):
    return [(mean + spread * e, mean + spread * e * e) for e in NOISE]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of four methods, the first of them a ceiling."""
    folder = tmp_path_factory.mktemp("made")
    write(folder / "s", "alllarge", *seeds(0.95))
    write(folder / "s", "allsmall", *seeds(0.60, -1))
    write(folder / "s", "fedra", *seeds(0.80))
    write(folder / "s", "depthfl", *seeds(0.80, 1.1))
    pack(folder / "s")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of these results."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def lines(text, *start):
    return next(line.split() for line in text.splitlines() if line.split()[: len(start)] == list(start))


def test_the_better_one_comes_first_and_ceilings_do_not_come(folder):
    text = fedbench("compare", "pairs", "s", cwd=folder, columns=80).output
    assert max(map(len, text.splitlines())) <= 80
    assert "alllarge" not in text.partition("difference:")[0]
    assert lines(text, "fedra", "allsmall")[2:] == ["better", "+20.0", "+19.4", "to", "+20.6", "<0.001"]
    assert "equal" in next(
        line for line in text.splitlines() if line.startswith(("fedra", "depthfl")) and " best" not in line
    )


def test_with_a_baseline_all_are_set_against_it_the_ceiling_too(folder):
    text = fedbench("compare", "pairs", "s", "--baseline", "depthfl", cwd=folder, columns=60).output
    assert "mean of 5 seeds · minus depthfl" in text
    assert lines(text, "allsmall")[1:3] == ["worse", "-20.0"] and lines(text, "alllarge")[1:3] == ["better", "+15.0"]
    assert not any(line.startswith("depthfl  ") for line in text.splitlines())


def test_many_pairs_are_a_matrix_of_signs(folder):
    names = ("exclusive", "fedv", "fedvz", "festa", "head_only", "inclusivefl")
    for i, name in enumerate(names):
        write(folder / "s", name, *seeds(0.1 + i / 20, 1 + i))
    text = fedbench("compare", "pairs", "s", cwd=folder, columns=60).output
    assert MATRIX_FROM <= 36 and "36 pairs" in text
    assert lines(text, "3", "allsmall")[2:] == ["<", "<", "-", *[">"] * 6]
    assert lines(text, "1")[2:5] == ["-", "=", ">"]


def test_csv_and_json_have_every_pair(folder):
    text = fedbench("compare", "pairs", "s", "--format", "csv", cwd=folder).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(PAIRS) and len(rows) == 3
    last = next(r for r in rows if r["other"] == "allsmall" and r["method"] == "fedra")
    assert float(last["difference"]) == pytest.approx(0.2, abs=1e-3) and last["verdict"] == "better"
    assert (last["n_seeds"], last["p_sign_flip"], last["within"]) == ("5", "0.0625", "False")
    found = json.loads(fedbench("compare", "pairs", "s", "--format", "json", cwd=folder).stdout)["rows"]
    assert [{k: str(v) if v is not None else "" for k, v in r.items()} for r in found] == rows


def test_the_margin_decides_what_is_equal(folder):
    for points, verdict in (("1", "equal"), ("0", "inconclusive")):
        text = fedbench("compare", "pairs", "s", "--equivalent", points, cwd=folder).output
        assert verdict in next(
            line for line in text.splitlines() if line.startswith(("fedra", "depthfl")) and " best" not in line
        )
    assert fedbench("compare", "s", "--equivalent", "-1", cwd=folder).exit_code == 2


def test_nothing_to_pair_is_a_mistake(tmp_path):
    write(tmp_path / "s", "fedra", (0.5, 0.5))
    with pytest.raises(UserError, match="no two methods"):
        pairs([board(tmp_path)])


def test_a_leaderboard_without_pairs_keeps_its_page(folder):
    write(folder / "t", "fedra", (0.5, 0.5))
    pages = laid_out(pairs(leaderboards(load([folder]), roles=ROLES))).pages
    assert [len(page.tables) for page in pages] == [1, 0]


def test_small_probabilities():
    assert [probability(p) for p in (None, 0.0, 0.0004, 0.0005, 0.05, 1.0)] == [
        *("", "<0.001", "<0.001", "0.001", "0.050", "1.000"),
    ]
