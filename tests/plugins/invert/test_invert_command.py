"""`fedbench invert` on finished cells: what it attacks and prints, the same every time, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from command import TINY, fedbench, write_suite

from fedbench_plugins.invert.inversion_report import CSV_COLUMNS, NUMBERS

METHODS = "fedv, fedvz, festa, {name: frozen, extends: fedv, server_lr: 0}, fedra"
ROWS = {("features", "match"), ("gradient", "span"), ("gradient", "cosine")}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("invert")
    write_suite(folder, METHODS)
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "results", "--quiet", cwd=folder)
    assert (done.exit_code, done.output) == (0, "")
    return folder


def invert(ran, *words, columns=80):
    return fedbench("invert", *words, "--steps", 4, "--victims", 2, "--plugin", TINY, cwd=ran, columns=columns)


@pytest.fixture(scope="module")
def rows(ran):
    """What all attacks on all cells come to."""
    done = invert(ran, "results", "--format", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["rows"]


def test_every_split_method_is_attacked_through_what_its_server_has(rows):
    seen = {}
    for row in rows:
        seen.setdefault(row["method"], set()).add((row["seen"], row["attack"]))
        assert row["victims"] == 2 == len(row["by_victim"]["psnr_db"])
        assert row["psnr_db"] == pytest.approx(sum(row["by_victim"]["psnr_db"]) / 2)
    assert seen == {"fedv": ROWS, "fedvz": ROWS, "festa": ROWS, "frozen": {("features", "match")}}


def test_some_attacks_can_be_had_alone(ran, rows):
    words = ("results", "--method", "fedv", "--attack", "span", "--format", "json")
    (row,) = json.loads(invert(ran, *words).stdout)["rows"]
    assert row["attack"] == "span" and row in rows


def test_equal_commands_give_equal_numbers_and_leave_the_cells_alone(ran, rows):
    def files():
        return {p: p.read_bytes() for p in (ran / "results").rglob("*") if p.is_file()}

    before = files()
    told = invert(ran, "results", "--method", "fedvz", "--format", "csv").stdout
    found = list(csv.DictReader(io.StringIO(told)))
    assert tuple(found[0]) == (*CSV_COLUMNS, *NUMBERS) and len(found) == 3
    first = [row for row in rows if row["method"] == "fedvz"]
    assert [[float(row[name]) for name in NUMBERS] for row in found] == [
        [row[name] for name in NUMBERS] for row in first
    ]
    assert files() == before


def test_every_csv_column_stands_on_the_page():
    page = (Path(__file__).parents[3] / "docs/privacy.md").read_text()
    assert not {*CSV_COLUMNS, *NUMBERS} - set(re.findall(r"`(\w+)`", page))


def test_methods_meet_the_same_victims(rows):
    found = [row for row in rows if row["method"] in ("fedv", "fedvz")]
    guesses = {(row["method"], tuple(row["by_victim"]["mean_psnr_db"])) for row in found}
    assert len({scores for _, scores in guesses}) == 1 and len(guesses) == 2


def test_a_table_fits_a_terminal_and_says_what_its_columns_are(ran):
    lines = invert(ran, "results", "--method", "fedv").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["method", "seen", "attack", "PSNR", "mean", "blind", "corr.", "mean", "blind"]
    assert sum(line.startswith("fedv ") for line in lines) == 3
    markdown = invert(ran, "results", "--method", "festa", "--format", "markdown").stdout
    assert "| festa | gradient | cosine |" in markdown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("results", "--method", "fedra"), "wanted is one of fedv, fedvz or festa"),
        (("results", "--method", "frozen", "--attack", "span"), "these servers have features alone"),
        (("results", "--victims", 99), "99 victims of 8 training images"),
        (("results", "--images", "all.gif"), "pictures end in .png, .svg or .pdf"),
        (("nowhere",), "no such folder"),
    ],
)
def test_what_cannot_be_attacked_is_refused_with_a_sentence(ran, words, said):
    done = fedbench("invert", "--steps", 1, "--plugin", TINY, *words, cwd=ran)
    assert done.exit_code == 2 and said in " ".join(done.stderr.split())


def test_a_picture_has_a_row_for_each_attack(ran, tmp_path):
    pytest.importorskip("matplotlib")
    done = invert(ran, "results", "--method", "fedv", "--images", tmp_path / "rebuilt.png")
    assert done.exit_code == 0 and (tmp_path / "rebuilt.png").read_bytes().startswith(b"\x89PNG")
