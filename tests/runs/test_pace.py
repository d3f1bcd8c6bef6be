"""fedbench/runs/pace.py, cell/news.py and results/live.py: how far a run is, written down and read by others."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from command import fedbench, run, write_suite
from factories import eval_rows

from fedbench.cell.events import read
from fedbench.cell.news import last_rows, news
from fedbench.commands.top import drawn
from fedbench.results.live import runs_in
from fedbench.runs import pace
from fedbench.runs.pace import Pace, Written

CELL = "s/mixed-a-0-000000000001"
OTHER = "s/mixed-b-0-000000000002"


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(pace.time, "monotonic", lambda: now.seconds)
    return now


def told(**event):
    return {"folder": CELL, **event}


def test_pace_is_of_what_was_computed_since_the_cell_began(clock):
    one = Pace({"000000000001": ("a · seed 0", 10), "000000000002": ("b · seed 0", 10)}, kept=3)
    one.note(told(event="started"))
    one.note(told(event="resumed", round=4))
    clock.seconds += 6
    one.note(told(event="round", round=6, images=600, metric="accuracy", score=0.5))
    at = one.at[CELL]
    assert (at.rate, at.left, at.score) == (100.0, 12.0, 0.5)  # two rounds in six seconds, four left
    assert (one.rounds, one.done, one.rate, one.left) == (20, 6, 100.0, 42.0)
    one.note(told(event="ended", status="failed"))
    assert (one.done, one.ended, one.at) == (10, {"failed": 1}, {})
    one.note({"event": "elsewhere", "folder": OTHER, "status": "finished"})
    assert one.done == 20 and one.to_json()["ended"] == {"failed": 1, "finished": 1}


def test_news_are_images_trained_on_and_the_test_score():
    usual = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "accuracy"}]}}
    tested = [*eval_rows({3: {"a": 0.5, "b": 0.7}}), *eval_rows({3: {"a": 9.0}}, "loss")]
    assert news(36, tested, usual) == {"images": 36, "metric": "accuracy", "score": pytest.approx(0.6)}
    assert news(36, [], usual) == {"images": 36}
    assert news(0, eval_rows({3: {"a": float("nan")}}), usual) == {"images": 0}
    others = {"evaluation": {"metrics": [{"name": "loss"}, {"name": "error"}]}}
    tested = [*eval_rows({3: {"a": 1.5}}, "loss"), *eval_rows({3: {"a": 0.2}}, "error")]
    assert news(0, tested, others) == {"images": 0, "metric": "loss", "score": 1.5}
    assert news(0, eval_rows({3: {"a": 0.2}}, "error/last"), others) == {"images": 0}


def test_the_last_rows_are_those_of_a_round_that_was_tested():
    rows = eval_rows({2: {"a": 0.1, "b": 0.2}, 3: {"a": 0.3, "b": 0.4}})
    assert last_rows(rows, 3) == rows[2:] and last_rows(rows, 4) == last_rows([], 1) == []


def test_what_goes_with_a_round_is_left_out_where_it_is_no_such_thing():
    said = b'{"event": "round", "round": 2, "images": "many", "score": 0.5}'
    assert read(said) == {"event": "round", "round": 2}


def test_what_is_written_down_from_another_cell_takes_no_rounds_unless_it_is_computed_after_all(clock):
    one = Pace({"000000000001": ("a", 10), "000000000002": ("b", 10)}, awaiting=["000000000002"])
    assert one.rounds == 10
    one.note({"event": "twin", "folder": OTHER, "status": "finished"})
    assert (one.rounds, one.done, one.ended) == (10, 0, {"finished": 1})
    one.note({"event": "started", "folder": OTHER})
    assert one.rounds == 20


def test_the_pace_is_written_once_a_second_and_gone_at_the_end(tmp_path, clock):
    cell = SimpleNamespace(id="000000000001", title="a\x1b[2J · seed 0", rounds=10, awaits=False)
    heard = []
    with Written(tmp_path, "s", [cell], 0, heard.append) as note:
        note(told(event="started"))
        note(told(event="round", round=1, images=10))
        (live,) = runs_in([tmp_path])
        assert live.told["at"][0]["round"] == 0 and not live.gone
        clock.seconds += 1
        note(told(event="round", round=2, images=10))
        note({"event": "of a stranger's"})
        assert runs_in([tmp_path])[0].told["at"][0]["round"] == 2
    assert len(heard) == 4 and list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_is_told_and_its_file_goes_with_the_next(tmp_path):
    with Written(tmp_path, "s", [], 0, lambda event: None) as note:
        note({"event": "waiting"})
        (file,) = tmp_path.iterdir()
        content = json.loads(file.read_text())
    dead = content | {"process": content["process"] | {"pid": 2**22 + 1}}
    (tmp_path / ".dead.progress").write_text(json.dumps(dead))
    assert runs_in([tmp_path])[0].gone
    with Written(tmp_path, "s", [], 0, lambda event: None):
        assert list(tmp_path.iterdir()) == []


def test_files_of_strangers_are_passed_over(tmp_path):
    for number, text in enumerate(['{"a": 1}', "[", "[" * 10_000, "3", '{"process": null}']):
        (tmp_path / f".{number}.progress").write_text(text)
    assert runs_in([tmp_path]) == []


@pytest.mark.parametrize("width", [60, 80, 120])
def test_top_fits_the_terminal_and_tells_cells_apart(tmp_path, clock, width):
    title = "extreme_hetero · fedra_with_cover [backbone=micro_vit; train.rounds=3] · seed"
    cells = [SimpleNamespace(id=f"{i:012}", title=f"{title} {i}", rounds=300, awaits=False) for i in (1, 2)]
    with Written(tmp_path, "s", cells, 7, lambda event: None) as note:
        for folder in (CELL, OTHER):
            note({"event": "started", "folder": folder})
        clock.seconds += 300
        note(told(event="round", round=2, images=10**6, metric="accuracy", score=0.8234))
        lines = [line.plain for line in drawn(runs_in([tmp_path]), width)]
    assert max(map(len, lines)) <= width and "7 kept from before" in lines[1]
    assert "82.3%" in lines[3] and "3,333 i/s" in lines[3] and "12 h left" in lines[3]
    assert lines[3].split(" 2/300")[0] != lines[4].split(" 0/300")[0]


def test_top_says_what_is_there_where_no_run_is_at_work(tmp_path):
    write_suite(tmp_path, "fedra")
    assert run("--quiet", cwd=tmp_path).exit_code == 0
    assert not list((tmp_path / "r").rglob(".*.progress"))
    done = fedbench("top", "r", cwd=tmp_path)
    assert done.exit_code == 0 and done.stdout == "No run is at work in r.\ntiny: 1 finished\n"
    assert json.loads(fedbench("top", "r", "--json", cwd=tmp_path).stdout) == []
    assert fedbench("top", "nowhere", cwd=tmp_path).exit_code == 2
