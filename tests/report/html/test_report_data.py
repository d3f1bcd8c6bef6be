"""The page's file: its numbers are those of compare, its names cannot act, and it replaces nothing by accident."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import fedbench
from factories import cell_of, eval_rows, write_cell, write_suite
from reports import HOSTILE, SHOWN

from fedbench.report.html.page_data import _diagram, rounded, thinned
from fedbench.report.html.page_file import embedded
from fedbench.report.style import _escape_markdown as escaped
from fedbench.results import read_manifest
from fedbench.results.packed_tables import folder_of

ASSETS = [file for file in files("fedbench.report.html").joinpath("assets").iterdir() if file.is_file()]


def data_of(page: Path) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())[1])


def texts_of(page: Path) -> dict:
    packed = re.search(r'<script type="text/plain" id="texts">(.*?)</script>', page.read_text())[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def written(folder: Path, *words: object, code: int = 0) -> Path:
    file = folder / "report.html"
    done = fedbench("report", folder / "results", "-o", file, *words, cwd=folder)
    assert done.exit_code == code, done.output
    return file


@pytest.fixture
def results(tmp_path) -> Path:
    write_suite(tmp_path / "results" / "made_up")
    return tmp_path


def piped(table: dict) -> list[str]:
    """A table of the page's as lines of Markdown."""
    cells = [[cell if isinstance(cell, str) else " ".join(cell) for cell in c["cells"]] for c in table["columns"]]
    return [f"| {' | '.join(map(escaped, row))} |" for row in zip(*cells, strict=True)]


def test_every_figure_of_the_page_is_one_that_compare_prints(page):
    data, texts = data_of(page), texts_of(page)
    printed = fedbench("compare", *SHOWN, "--format", "markdown", cwd=Path.cwd()).output.replace("**", "")
    boards = data["suites"][0]["boards"]
    assert len(boards) == 2
    for board in boards:
        (table,) = board["page"]["tables"]
        lines = piped(table)
        assert lines and all(line in printed for line in lines)
        assert all(line in texts[board["key"]]["markdown"].replace("**", "") for line in lines)
        assert "fedra" in texts[board["key"]]["csv"] and r"\toprule" in texts[board["key"]]["latex"]
    for view in ("summary", "ranks"):
        markdown = fedbench("compare", view, *SHOWN, "--format", "markdown", cwd=Path.cwd())
        for table in data["suites"][0][view]["tables"]:
            assert all(line in markdown.output for line in piped(table))


def test_the_columns_of_one_seed_are_what_compare_has_of_its_cells_alone(results):
    data = data_of(written(results))
    alone = data_of(written(results, "--seed", "1"))
    (of_all,), (of_one,) = data["suites"][0]["boards"], alone["suites"][0]["boards"]
    assert sorted(of_all["seeds"]) == ["0", "1", "2"] and not of_one["seeds"]
    assert of_all["seeds"]["1"] == of_one["page"]["tables"][0]["columns"]


def test_the_numbers_of_one_seed_stand_in_the_rows_of_all_seeds(tmp_path):
    """Of one seed the order may be another, and a method may be missing."""
    for method, values in {"fedra": (0.9, 0.1), "depthfl": (0.5, 0.6), "allsmall": (0.3,)}.items():
        for seed, value in enumerate(values):
            evaluation = eval_rows({12: {"a": value, "b": value}})
            write_cell(tmp_path / "results" / "s", method, seed, evaluation=evaluation)
    (board,) = data_of(written(tmp_path))["suites"][0]["boards"]
    averages = {c["title"]: c["cells"] for c in board["seeds"]["1"]}["average"]
    assert dict(zip((row["label"] for row in board["rows"]), averages, strict=True)) == {
        "depthfl": "60.0",
        "fedra": "10.0",
        "allsmall": "",
    }


def test_bars_of_mean_ranks_end_where_the_ranks_are_drawn():
    means = {"a": 7 / 3, "b": 2.5, "c": 25 / 6}
    standing = SimpleNamespace(methods=[*means], mean_ranks=means, groups={}, cd=2.0, ranks=range(6), crossing={})
    found = _diagram(standing)
    assert found["bars"] == [[found["ranks"]["a"], found["ranks"]["c"]]] and not found["crossing"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_what_is_sorted_is_the_score_and_not_the_letters_of_its_group():
    shown = {"79.4 h": 79.4, "76.7 kl": 76.7, "1.18 MB": 1.18e6, "5.21 kJ": 5210, "12,345": 12345, "8/12/9": 8}
    shown |= {"3 min 05 s": 185, "2 h 07 min": 7620, "8.20 s": 8.2, "81.5–92.6": 81.5, "–": None}
    script = next(file for file in ASSETS if file.name == "numbers.js").read_text()
    asked = f"{script}\nconsole.log(JSON.stringify({json.dumps([*shown])}.map(worth)));"
    done = subprocess.run(["node", "-e", asked], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [*shown.values()]


def test_cells_without_a_result_and_configurations_are_all_there(results):
    suite = results / "results" / "made_up"
    write_cell(suite, "fedra", 7, scenario="mixed", status="failed", reason="out of memory\nand more")
    origin = data_of(written(results))["origin"]
    cells = [dict(zip(origin["cells"]["fields"], row, strict=True)) for row in origin["cells"]["rows"]]
    failed = [cell for cell in cells if cell["status"] == "failed"]
    assert [(cell["method"], cell["seed"], cell["reason"]) for cell in failed] == [("fedra", 7, "out of memory")]
    assert sum(cell["status"] == "not_applicable" for cell in cells) == 3
    for cell in cells:
        manifest = read_manifest(folder_of(suite, cell["id"]))
        places = dict(zip(origin["configs"], cell["config"], strict=True))
        assert {name: origin["configs"][name][at] for name, at in places.items()} == manifest["config"]
        assert origin["origins"][cell["origin"]]["versions"] == manifest["versions"]


def test_no_name_ends_the_data_or_turns_the_writing(hostile):
    text = hostile.read_text(encoding="utf-8")
    assert text.count("</script>") == 3 and text.count("<script") == 3
    assert HOSTILE not in text and not re.search("[\u2028\u2029\u202e]", text)
    assert data_of(hostile)["suites"][0]["boards"][0]["scenario"] == HOSTILE


def test_json_in_a_script_is_still_the_same_json():
    value = {"</script>": ["<!--", "&amp;", "\u2028\u2029\u202e", "\ud800", "é"]}
    text = embedded(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029\u202e\ud800]", text) and "é" in text


def test_a_report_is_replaced_by_an_equal_one_and_another_file_is_not(results):
    file = written(results)
    first = file.read_bytes()
    assert written(results).read_bytes() == first
    file.write_text("mine")
    done = fedbench("report", results / "results", "-o", file, cwd=results)
    assert done.exit_code == 2 and "is no report" in done.output and file.read_text() == "mine"
    written(results, "--force")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "no such folder"),
        (("results", "--metric", "accurcy"), "Did you mean 'accuracy'?"),
        (("results", "--method", "fedr"), "Did you mean 'fedra'?"),
        (("results", "--at", "bst"), "Did you mean 'best'?"),
    ],
)
def test_mistakes_end_with_2_and_say_what_would_be_right(results, words, said):
    done = fedbench("report", *words, cwd=results)
    assert done.exit_code == 2 and said in done.output
    assert not (results / "report.html").exists()


def test_what_is_damaged_is_left_out_and_told(tmp_path):
    suite = write_suite(tmp_path / "results" / "made_up", packed=False)
    victim = cell_of(suite, "fedra")
    (victim / "manifest.json").write_text("{}")
    data = data_of(written(tmp_path, code=1))
    assert any(victim.name in line for line in data["wrong"])


def test_results_without_a_finished_cell_have_a_page(tmp_path):
    write_cell(tmp_path / "results" / "s", "fedra", status="failed", reason="no")
    data = data_of(written(tmp_path))
    assert data["statuses"] == {"failed": 1} and data["suites"][0]["boards"][0]["lines"] == {}


def test_lines_thin_out_evenly_and_keep_both_ends():
    assert thinned(range(1, 1001), 5) == [1, 251, 500, 750, 1000] or len(thinned(range(1, 1001), 5)) == 5
    kept = thinned(list(range(1, 1001)), 40)
    assert (kept[0], kept[-1], len(set(kept))) == (1, 1000, 40)
    assert thinned([1, 2, 3], 40) == [1, 2, 3]
    assert rounded(0.123456789) == 0.12346 and rounded(float("nan")) is None and rounded(3.0) == 3


def test_many_rounds_thin_out_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.report.html.page_data.POINTS", 1)
    values = {t: {"a": t / 100, "b": 0.5} for t in range(1, 60)}
    write_cell(tmp_path / "results" / "s", "fedra", evaluation=eval_rows(values))
    data = data_of(written(tmp_path))
    (line,) = data["suites"][0]["boards"][0]["lines"]["fedra"]
    assert data["thinned"] == 12 == len(line["average"]) and line["of"] == 59


def test_of_very_many_leaderboards_details_and_single_seeds_are_left_out(results, monkeypatch):
    whole = data_of(written(results))
    monkeypatch.setattr("fedbench.report.html.page_data.DETAILED", 0)
    brief = data_of(written(results))
    assert whole["detailed"] and not brief["detailed"]
    (one,), (less,) = whole["suites"][0]["boards"], brief["suites"][0]["boards"]
    assert one["details"] and one["seeds"] and not less["details"] and not less["seeds"]
    assert one["page"] == less["page"]


def test_fronts_are_those_of_compare(results):
    (board,) = data_of(written(results))["suites"][0]["boards"]
    told = fedbench("compare", "pareto", "bytes", results / "results", "--format", "json", cwd=results).output
    assert [(p["method"], p["front"], p["verdict"]) for p in json.loads(told)["rows"]] == [
        (p["label"], p["front"], p["verdict"]) for p in board["fronts"]["bytes"]
    ]


@pytest.mark.parametrize("asset", ASSETS, ids=lambda file: file.name)
def test_scripts_read_no_text_as_markup_and_fetch_nothing(asset):
    text = asset.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|fetch\(|XMLHttp|import\(", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(text.splitlines()) <= 300


@pytest.mark.slow
def test_a_page_of_all_reference_results_takes_less_than_1400_bytes_a_cell(tmp_path):
    file = tmp_path / "all.html"
    assert fedbench("report", "results/reference", "-o", file, cwd=Path.cwd()).exit_code == 0
    assert file.stat().st_size < 1400 * sum(data_of(file)["statuses"].values())
