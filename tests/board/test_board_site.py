"""The site: every row and its state, files next to the pages, small pages, and nothing that axe calls serious."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
import time
from pathlib import Path

import pytest
from command import fedbench

from fedbench.board.entries import Home
from fedbench.board.site import build
from fedbench.registry.registry import Registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The site of the boards that ship, and the processor seconds that it took."""
    out, before = tmp_path_factory.mktemp("site"), time.process_time()
    build(Home(ROOT / "board"), out, Registry())
    return out, time.process_time() - before


def test_all_entries_take_ten_seconds_and_no_page_a_megabyte(shipped):
    out, seconds = shipped
    assert seconds < 10 and max(page.stat().st_size for page in out.rglob("*.html")) < 1_000_000
    entries = [f"{e.method}-{e.version}.html" for e in Home(ROOT / "board").entries.values()]
    assert sorted(page.name for page in (out / "entries").iterdir()) == sorted(entries) and len(entries) > 30


def test_rows_on_public_seeds_have_no_rank_and_no_letter(shipped):
    rows = list(csv.DictReader((shipped[0] / "images.csv").read_text().splitlines()))
    assert {row["state"] for row in rows} == {"submitted"} and {row["table"] for row in rows} == {"submitted"}
    names = [row["method"] for row in rows]
    assert names == sorted(names) and len(names) == 33 and not any(row["group"] for row in rows)
    assert json.loads((shipped[0] / "images.json").read_text())["version"] == 1
    assert "No entry is on this board yet." in (shipped[0] / "generation.html").read_text()


def test_every_row_has_a_key_that_its_bibtex_has(shipped):
    for board in ("lite", "images", "texts"):
        rows = csv.DictReader((shipped[0] / f"{board}.csv").read_text().splitlines())
        keys = re.findall(r"^@misc\{(fedbench-[^,]+),$", (shipped[0] / f"{board}.bib").read_text(), re.MULTILINE)
        assert sorted(row["key"] for row in rows) == sorted(keys)


def test_pages_fetch_nothing_and_run_nothing(shipped):
    for page in shipped[0].rglob("*.html"):
        text = html.unescape(page.read_text())
        assert "<script" not in text and "default-src 'none'" in text
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


def test_an_entry_shows_its_settings_its_cells_and_how_to_run_and_cite_it(shipped):
    text = (shipped[0] / "entries/fedra-1.html").read_text()
    assert "Settings found among 8 candidates" in text and "train.optimizer.lr" in text and "<polyline" in text
    assert "fedbench run quickstart --scenario skew --method fedra --seed 0 --seed 1 --seed 2" in text
    assert "@misc{fedbench-lite-1-fedra-1," in text and "Su et al., FedRA, ECCV 2024" in text
    assert "extends inclusivefl:" in (shipped[0] / "entries/inclusivefl_mean-1.html").read_text()


def test_ranked_older_and_withdrawn_rows_stand_apart(walked, tmp_path):
    folder = shutil.copytree(walked[0], tmp_path / "copy")
    board = folder / "board/boards/lite.yaml"
    entries = folder / "board/entries"
    for name, row in (("old", "version: 1, state: submitted"), ("gone", "version: 1, state: withdrawn")):
        shutil.copytree(entries / "mine", entries / name)
        file = entries / name / "1/entry.yaml"
        file.write_text(
            file.read_text().replace("method: mine", f"method: {name}").replace("version: 1, state: rerun", row)
        )
    assert fedbench("board", "build", cwd=folder).exit_code == 0
    rows = {row["method"]: row for row in csv.DictReader((folder / "site/lite.csv").read_text().splitlines())}
    assert rows["mine"]["table"] == "ranked" and rows["mine"]["group"] and rows["mine"]["state"] == "rerun"
    assert rows["head_only"]["state"] == "reference" and rows["majority"]["group"] == ""
    text = (folder / "site/lite.html").read_text()
    assert "<h2>Ranked</h2>" in text and "without network, in a test" in text
    board.write_text(board.read_text().replace("version: 1\ntitle", "version: 2\ntitle"))
    assert fedbench("board", "build", cwd=folder).exit_code == 0
    text = (folder / "site/lite.html").read_text()
    assert "<h2>Ranked</h2>" not in text and "<h2>Older</h2>" in text
    assert "an older one: version 2 is out" in (folder / "site/entries/mine-1.html").read_text()


def test_a_folder_with_another_site_is_left_alone(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("a blog")
    result = fedbench("board", "build", "--home", ROOT / "board", cwd=tmp_path)
    assert result.exit_code == 2 and "another site's page; nothing was written" in result.output
    assert [file.name for file in (tmp_path / "site").iterdir()] == ["index.html"]


def test_axe_finds_nothing_serious_and_nothing_scrolls_sideways(shipped):
    browsing = pytest.importorskip("report.html.browsing", reason="a file of tests")
    browser, axe = browsing.browser_there(), browsing.axe()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name in ("index.html", "images.html", "entries/fedra-1.html"):
            for theme, width in (("light", 390), ("dark", 1400)):
                context = window.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True
                )
                page = context.new_page()
                page.goto((shipped[0] / name).as_uri())
                page.evaluate(axe)
                found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
                assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], name
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                context.close()
        window.close()
