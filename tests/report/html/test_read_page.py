"""Reading a page back: it may be anybody's file, and is refused in one sentence."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from command import fedbench
from factories import eval_rows, write_cell

from fedbench.commands.reproduce import read_source, recovered
from fedbench.errors import UserError
from fedbench.report.html import origin
from fedbench.report.html.origin import BEGIN, END


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page on three cells, and the data in it."""
    folder = tmp_path_factory.mktemp("page")
    for method, seed in (("fedra", 0), ("fedra", 1), ("depthfl", 0)):
        write_cell(folder / "s", method, seed, evaluation=eval_rows({1: {"a": 0.5 + seed / 10, "b": 0.7}}))
    write_cell(folder / "s", "broken", status="failed", reason="it broke")
    assert fedbench("report", "s", cwd=folder).exit_code == 0
    text = (folder / "report.html").read_bytes()
    return folder, json.loads(text.partition(BEGIN)[2].partition(END)[0])


def written(tmp_path, data) -> str:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    (tmp_path / "page.html").write_bytes(b"<html>" + BEGIN + text + END)
    return str(tmp_path / "page.html")


def test_a_page_and_its_results_folder_tell_the_same(page):
    folder, _ = page
    there, folders = read_source([str(folder / "report.html")]), read_source([str(folder / "s")])
    assert there == folders and [c.method for c in there] == ["fedra", "fedra", "depthfl"]
    assert there[1].scores.scores == {"accuracy": pytest.approx(0.65)} and there[1].seed == 1


def damaged(data, where, value):
    """The data with one value replaced, found by a path of keys."""
    found = deepcopy(data)
    place = found
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return found


ROW = ("origin", "cells", "rows", 0)
CASES = {
    "no origin": (("origin",), 3, "origin is 3"),
    "cells": (("origin", "cells"), [], "cells is []"),
    "rows": (("origin", "cells", "rows"), {"a": 1}, "rows is {'a': 1}"),
    "a short row": (ROW, [1, 2], "a row has 2 fields"),
    "a place outside": ((*ROW, 10), 7, "list index out of range"),
    "a place before": ((*ROW, 10), -1, "place -1"),
    "a seed": ((*ROW, 4), "zero", "seed is 'zero'"),
    "another id": ((*ROW, 8), "000000000000", "has another id than its configuration"),
    "another configuration": (("origin", "configs", "train", 0, "rounds"), 99, "has another id"),
    "a score": ((*ROW, 12, "scores"), {"accuracy": "much"}, "scores.accuracy is 'much'"),
    "a digest": ((*ROW, 12, "digest"), "../../etc", "digest is"),
    "a version": (("origin", "origins", 0, "result_version"), 9, "result version 9"),
    "versions": (("origin", "origins", 0, "versions"), {"torch": 2}, "versions.torch is 2"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_page_cannot_hold_is_refused(page, tmp_path, case):
    where, value, reason = CASES[case]
    with pytest.raises(UserError, match="not those of a page of `fedbench report`") as raised:
        read_source([written(tmp_path, damaged(page[1], where, value))])
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[" * 100_000, b'{"a": 1, "a": 2}', b'{"origin": NaN}', b"\xff", b'{"origin": "\\ud800"}']
)
def test_neither_is_what_is_no_json(tmp_path, text):
    with pytest.raises(UserError, match="not those of a page"):
        read_source([written(tmp_path, text)])


def test_nor_are_files_of_others_large_ones_and_pages_from_before(page, tmp_path, monkeypatch):
    (tmp_path / "other.html").write_text("<html></html>")
    with pytest.raises(UserError, match="neither a page"):
        read_source([str(tmp_path / "other.html")])
    old = damaged(page[1], ("origin", "cells", "fields"), page[1]["origin"]["cells"]["fields"][:-1])
    with pytest.raises(UserError, match="an older fedbench wrote this page"):
        read_source([written(tmp_path, old)])
    monkeypatch.setattr(origin, "MOST_BYTES", 100)
    with pytest.raises(UserError, match="larger than"):
        read_source([written(tmp_path, page[1])])


def test_what_is_not_there_is_told_with_what_may_be(tmp_path):
    with pytest.raises(UserError, match=r"nope\.html: not there\. Wanted: a page of `fedbench report`, or results"):
        read_source([str(tmp_path / "nope.html")])


def test_a_name_from_a_page_is_read_as_any_suites(page, tmp_path):
    """It names no file, and a suite that cannot be is refused with its place."""
    hostile = deepcopy(page[1])
    for row in hostile["origin"]["cells"]["rows"]:
        row[0] = "../../evil"
    file = written(tmp_path, hostile)
    done = fedbench("reproduce", file, "--results", "out", "--no-run", cwd=tmp_path)
    assert done.exit_code == 2 and "recovered-1.yaml" in done.stderr and "suite" in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "page.html", "recovered-1.yaml"]


def test_a_component_that_is_not_here_is_said_and_the_others_run(page, tmp_path):
    cells = read_source([str(page[0] / "s")])
    (one,) = recovered(cells)
    assert list(one.methods) == ["fedra", "depthfl"] and len(one.scenarios) == 2  # depths rotate with the seed
    done = fedbench("reproduce", page[0] / "report.html", "--no-run", cwd=tmp_path)
    assert done.exit_code == 1 and "cannot run here: s · mixed" in done.stdout
