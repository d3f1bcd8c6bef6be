"""fedbench reproduce: from a page to a verdict on each cell."""

from __future__ import annotations

import json
import shutil

import pytest
from command import TINY, fedbench, run, write_suite

from fedbench.report.html.origin import BEGIN, END


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of a tiny suite with names that two methods and two sweep points share, and the page on them."""
    folder = tmp_path_factory.mktemp("made")
    own = "fedra, {name: mine, extends: fedra, aggregator: {weights: uniform}}"
    changes = {"methods:": "seeds: [0, 1]\nsweep: {train.batch_size: [2, 3]}\nmethods:", "max_steps: 1": "max_steps: 1"}
    write_suite(folder, own, changes)
    assert run("--quiet", cwd=folder).exit_code == 0
    assert fedbench("report", "r", "--plugin", TINY, cwd=folder).exit_code == 0
    return folder


def reproduce(folder, source, *words):
    done = fedbench("reproduce", source, "--plugin", TINY, "--format", "json", "--quiet", *words, cwd=folder)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.slow
def test_a_page_is_run_again_to_the_bit_from_the_page_alone(made, tmp_path):
    page = shutil.copy(made / "report.html", tmp_path)
    code, told = reproduce(tmp_path, page)
    assert (code, told["reproduced"], told["counts"]) == (0, True, {"equal": 8})
    assert told["differs_here"] == []
    names = {(c["scenario"], c["variant"], c["method"], c["seed"]) for c in told["rows"]}
    assert len(names) == 8 and {c["method"] for c in told["rows"]} == {"fedra", "mine"}
    again = fedbench("compare", made / "r", tmp_path / "reproduced", "--fail-on", "different", cwd=tmp_path)
    assert again.exit_code == 0, again.output  # the same cells under the same names


def test_a_sample_of_a_folder_is_run_and_a_changed_number_found(made, tmp_path):
    """Scores on the page are 20 points higher: far beyond what the seeds do."""
    text = (made / "report.html").read_bytes()
    before, data, after = text.partition(BEGIN)[0], text.partition(BEGIN)[2].partition(END)[0], text.rpartition(END)[2]
    found = json.loads(data)
    for row in found["origin"]["cells"]["rows"]:
        row[-1]["scores"] = {"accuracy": row[-1]["scores"]["accuracy"] + 5.0}
    page = tmp_path / "page.html"
    page.write_bytes(before + BEGIN + json.dumps(found).encode() + END + after)
    code, told = reproduce(tmp_path, page, "--cells", "2", "--seed", "1")
    assert (code, told["counts"], told["reproduced"]) == (1, {"different": 2}, False)
    assert told["rows"][0]["difference"] == pytest.approx(-5.0) and told["rows"][0]["noise"] < 5
    code, told = reproduce(tmp_path, made / "r", "--cells", "2", "--seed", "1")  # kept from before
    assert (code, told["counts"]) == (0, {"equal": 2})


def test_what_differs_here_is_said_before_anything_runs(made, tmp_path):
    text = (made / "report.html").read_text()
    done = fedbench("reproduce", made / "report.html", "--no-run", "--plugin", TINY, cwd=tmp_path)
    assert done.exit_code == 0 and "are those of the source" in done.stdout and "8 cells" in done.stdout
    elsewhere = tmp_path / "elsewhere.html"
    elsewhere.write_text(text.replace('"python":"3.', '"python":"2.'))
    code, told = reproduce(tmp_path, elsewhere, "--no-run")
    (setting,) = told["differs_here"]
    assert code == 0 and setting["what"] == "machine.python" and setting["before"].startswith("2.")


def test_the_source_is_not_written_over(made):
    done = fedbench("reproduce", "r", "--results", "r", "--plugin", TINY, cwd=made)
    assert done.exit_code == 2 and "r is SOURCE" in done.stderr
