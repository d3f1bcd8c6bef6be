"""fedbench export SUITE METHOD: which cell is meant."""

from __future__ import annotations

import pytest
from command import fedbench as on_the_line
from factories import eval_rows, write_cell

import fedbench.export as fedbench_export
from fedbench.export import Export
from fedbench.results import load


@pytest.fixture
def folder(tmp_path):
    """results/s with two seeds of one method, one in two scenarios, and one that has failed."""
    for method, seed, scenario, status in (
        ("fedra", 1, "mixed", "finished"), ("fedra", 2, "mixed", "finished"), ("depthfl/last", 0, "mixed", "finished"),
        ("depthfl/last", 0, "all_6", "finished"), ("flora", 0, "mixed", "failed"),
    ):  # fmt: skip
        rows = eval_rows({12: {"a": 0.5, "b": 0.5}}) if status == "finished" else ()
        write_cell(tmp_path / "results/s", method, seed, scenario=scenario, status=status, evaluation=rows)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "names", "out"),
    [
        (("s", "fedra"), ("mixed", "fedra", 1), "s-fedra-1-peft"),
        (("s", "fedra", "--seed", 2), ("mixed", "fedra", 2), "s-fedra-2-peft"),
        (("results/s", "depthfl/last", "--scenario", "all_6"), ("all_6", "depthfl/last", 0), "s-depthfl-last-0-peft"),
    ],
)
def test_a_cell_is_found_by_its_names(folder, monkeypatch, words, names, out):
    asked = []
    monkeypatch.setattr(fedbench_export, "export", lambda *given: asked.append(given) or Export(folder, {}, "", None))
    done = on_the_line("export", *words, "--format", "peft", cwd=folder)
    assert done.exit_code == 0, done.output
    cell, form, where, *_ = asked[0]
    (entry,) = [
        r.entry for r in load([folder / "results"]) if str(r.folder.resolve()) == str((folder / cell).resolve())
    ]
    assert (entry.scenario, entry.method, entry.seed) == names and (form, where) == ("peft", out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("s", "fedrra"), "no method is called 'fedrra'; did you mean \"fedra\"?"),
        (("s", "fedra", "--seed", 7), "--seed 7: fedra has finished 1, 2"),
        (("s", "depthfl/last"), "depthfl/last has 2 scenarios; choose --scenario: all_6, mixed"),
        (("s", "flora"), "no cell of flora has finished"),
        (("nowhere", "fedra"), "nowhere: no such folder"),
    ],
)
def test_what_names_no_cell_is_told(folder, words, said):
    done = on_the_line("export", *words, "--format", "peft", cwd=folder)
    assert done.exit_code == 2 and said in done.output, done.output
