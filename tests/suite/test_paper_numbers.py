"""A paper's numbers in a suite: inline or from a file, each of a scenario, a method and a sweep point that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import SMALL

HEADER = "paper,table,scenario,variant,dataset,backbone,method,metric,value_percent,std,rounds,setting,source\n"
NUMBER = "FedRA,1,skew,,nicopp,vit,fedra,average,86.48,,100,anything,FedRA Table 1\n"
REQUEST = "expected: {file: numbers/t.csv, paper: FedRA, table: '1'}\n"
INLINE = "{dataset: nicopp, backbone: vit, method: fedra, metric: average, value_percent: 1}"
TWO = SMALL.replace("skew: {}", "skew: {}\n  flat: {}")
CSV = "numbers/t.csv"


@pytest.fixture
def file(tmp_path):
    """file(text): the CSV file that REQUEST names."""

    def write(text: str | bytes) -> None:
        (tmp_path / "numbers").mkdir(exist_ok=True)
        (tmp_path / CSV).write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


def test_rows_of_the_paper_and_table_are_taken_and_no_others(suite_of, file):
    file(HEADER + NUMBER + NUMBER.replace("FedRA,1", "FedRA,2") + NUMBER.replace("FedRA,1", "FedV,1"))
    assert suite_of(SMALL + REQUEST).expected == (
        {
            **dict(scenario="skew", variant="", dataset="nicopp", backbone="vit", method="fedra", metric="average"),
            **dict(value_percent=86.48, rounds=100, source="FedRA Table 1"),
        },
    )
    assert len(suite_of(SMALL + "expected: {file: numbers/t.csv, paper: FedV}\n").expected) == 1
    file(HEADER + NUMBER + NUMBER.replace("nicopp", "domainnet").replace("86.48", "1"))
    (one,) = suite_of(SMALL + REQUEST.replace("}", ", dataset: domainnet}")).expected
    assert (one["dataset"], one["value_percent"]) == ("domainnet", 1)


def test_a_number_may_be_of_one_of_a_methods_answers(suite_of, faults_of, file):
    file(HEADER + NUMBER.replace(",fedra,", ",fedra/last,"))
    assert [row["method"] for row in suite_of(SMALL + REQUEST).expected] == ["fedra/last"]
    file(HEADER + NUMBER.replace(",fedra,", ",fedar/last,"))
    told = f'{CSV}:2:1: no method of this suite is called "fedar"; did you mean "fedra"?'
    assert faults_of(SMALL + REQUEST) == [told]


def test_a_file_is_looked_for_beside_the_suite_not_where_one_stands(tmp_path, catalogue, monkeypatch):
    from fedbench.suite import load

    (tmp_path / "deep").mkdir()
    (tmp_path / "t.csv").write_text(HEADER + NUMBER)
    (tmp_path / "deep/s.yaml").write_text(SMALL + "expected: {file: ../t.csv, paper: FedRA}\n")
    monkeypatch.chdir("/")
    assert load(tmp_path / "deep/s.yaml", catalogue).expected[0]["value_percent"] == 86.48
    (tmp_path / "deep/s.yaml").write_text(SMALL + "expected: {file: ~/t.csv, paper: FedRA}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path / "deep/s.yaml", catalogue).expected[0]["value_percent"] == 86.48


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", f"{CSV}:1:1: needs the columns paper, backbone, dataset, method, metric, value_percent"),
        (HEADER, f"s.yaml:9:18: {CSV}: has no row with paper \"FedRA\", table \"1\""),
        (HEADER.replace("std", "sdt") + NUMBER, f'{CSV}:1:1: unknown column "sdt"; did you mean "std"?'),
        (HEADER.replace("std", "rounds") + NUMBER, f'{CSV}:1:1: the column "rounds" appears twice'),
        (HEADER + NUMBER + "a,b\n", f"{CSV}:3:1: expected 13 values, one for each column, got 2"),
        (HEADER + NUMBER + '"', f"{CSV}:3:1: not valid CSV: unexpected end of data"),
        (HEADER + NUMBER.replace("86.48", "high"), f'{CSV}:2:1: expected[0].value_percent: expected a number, got "high"'),
        (HEADER + NUMBER.replace("86.48", ""), f'{CSV}:2:1: expected[0] needs "value_percent"'),
        (HEADER + NUMBER.replace("100", "1.5"), f"{CSV}:2:1: expected[0].rounds: expected a whole number of at least 1, got 1.5"),
        (HEADER + NUMBER.replace("skew", "skow"), f'{CSV}:2:1: no scenario of this suite is called "skow"; did you mean "skew"?'),
        (HEADER + NUMBER.replace("fedra", "fedar"), f'{CSV}:2:1: no method of this suite is called "fedar"; did you mean "fedra"?'),
        (HEADER + NUMBER.replace("skew,", "skew,a=1"), f'{CSV}:2:1: no sweep point of this suite is called "a=1"'),
        (HEADER + NUMBER + NUMBER, f"{CSV}:3:1: this number is given twice, first on line 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told_with_its_line(faults_of, file, text, line):
    file(text)
    assert faults_of(SMALL + REQUEST) == [line]


def test_a_file_that_is_no_text_is_told_at_the_suite(faults_of, file):
    file(b"\xff\xfe")
    (line,) = faults_of(SMALL + REQUEST)
    assert line.startswith(f"s.yaml:9:18: {CSV}: cannot be read: ")


def test_all_faults_of_file_and_suite_come_at_once_each_in_its_order(faults_of, file):
    file(HEADER + NUMBER.replace("fedra", "x") + NUMBER.replace("skew", "y"))
    places = [line.split(": ")[0] for line in faults_of(SMALL.replace("[12,", "[99,") + REQUEST)]
    assert places == [f"{CSV}:2:1", f"{CSV}:3:1", "s.yaml:5:16"]


def test_inline_numbers_name_the_scenario_where_there_are_several(suite_of, faults_of):
    assert suite_of(SMALL + f"expected: [{INLINE}]\n").expected[0]["scenario"] == "skew"
    assert faults_of(TWO + f"expected: [{INLINE}]\n") == [
        "s.yaml:10:12: this number names no scenario, and there are skew, flat"
    ]
    named = INLINE.replace("{", "{scenario: flat, ")
    assert suite_of(TWO + f"expected: [{named}]\n").expected[0]["scenario"] == "flat"
    wrong = INLINE.replace("{", "{scenario: flut, ")
    assert faults_of(TWO + f"expected: [{wrong}]\n") == [
        's.yaml:10:23: no scenario of this suite is called "flut"; did you mean "flat"?'
    ]


def test_a_variant_is_of_points_of_the_sweep_also_where_an_overlay_replaces_it(suite_of, faults_of):
    text = SMALL + "sweep: {adapter.rank: [4, 8], backbone: [micro_vit, micro_mixer]}\n"
    row = INLINE.replace("{", "{variant: adapter.rank=4; backbone=micro_mixer, ")
    for data in (None, "embedded"):
        assert suite_of(text + f"expected: [{row}]\n", data=data).expected[0]["variant"]
    wrong = row.replace("rank=4", "rank=5")
    (line,) = faults_of(text + f"expected: [{wrong}]\n")
    assert 'no sweep point of this suite is called "adapter.rank=5"; did you mean' in line


def test_numbers_change_no_cell(suite_of):
    plain, told = suite_of(SMALL), suite_of(SMALL + f"expected: [{INLINE}]\n")
    assert plain.expected == () and Path("s.yaml").exists()
    assert [cell.config for cell in plain.points()] == [cell.config for cell in told.points()]
