"""fedbench/report/scenarios.py: methods over the scenarios of a suite."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil

import pytest
from boards import ROLES, texts, write
from command import fedbench
from factories import eval_rows, round_row, write_cell

from fedbench.commands.watch import show_end
from fedbench.report.layout import laid_out
from fedbench.report.leaderboards import leaderboards
from fedbench.report.standings import RANKS_FROM, standings
from fedbench.report.views.by_name import FEW
from fedbench.report.views.summary import WIDE, lettered, ranks, summary
from fedbench.results import load
from fedbench.results.pack import pack
from fedbench.runner.progress import RunSummary

LEVELS = {"alllarge": 0.9, "fedra": 0.7, "depthfl": 0.6, "allsmall": 0.5}
NOISE = (0.0, 0.006, -0.004, 0.003)
FIVE = ("one", "two", "three", "four", "five")


def scenario(folder, name, levels=LEVELS, seeds=3, **options):
    for method, level in levels.items():
        values = [(level + NOISE[s], level - NOISE[s] * len(method)) for s in range(seeds)]
        write(folder / "s", method, *values, scenario=name, rounds=[round_row(12, 0, [0])], **options)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Results of five scenarios, to be copied."""
    folder = tmp_path_factory.mktemp("five")
    for name in FIVE:
        scenario(folder, name)
    pack(folder / "s")
    return folder / "s"


def boards(folder, **options):
    return leaderboards(load([folder]), roles=ROLES, **options)


def standing(folder, **options):
    (found,) = standings(boards(folder, **options))
    return found


def starting(text, name):
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_six_scenarios_are_tested_by_wilcoxon_with_one_seed(tmp_path):
    for i in range(6):
        scenario(tmp_path, f"s{i}", {m: v + i * v / 50 for m, v in LEVELS.items()}, seeds=1)
    found = standing(tmp_path)
    assert found.methods == ["fedra", "depthfl", "allsmall"] and found.wilcoxon
    assert found.mean_ranks == {"fedra": 1.0, "depthfl": 2.0, "allsmall": 3.0}
    assert found.friedman == pytest.approx((12.0, 0.00248), abs=1e-4)
    assert found.cd == pytest.approx(2.3437 * (12 / 36) ** 0.5, abs=1e-3)
    assert {pair.p for pair in found.pairs} == {2 / 2**6}
    assert found.groups == {"fedra": "a", "depthfl": "b", "allsmall": "c"}


def test_few_scenarios_are_tested_over_seeds_and_one_seed_concludes_nothing(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path / "many", name, seeds=4)
        scenario(tmp_path / "single", name, seeds=1)
    assert standing(tmp_path / "many").groups == {"fedra": "a", "depthfl": "b", "allsmall": "c"}
    assert standing(tmp_path / "single").groups == {}
    text = fedbench("compare", "ranks", "single", cwd=tmp_path, columns=200).output
    assert "nothing is concluded about which method is better" in " ".join(text.split())


def test_below_five_scenarios_there_are_no_mean_ranks_and_no_critical_difference(tmp_path):
    for count, name in enumerate(FIVE, start=1):
        scenario(tmp_path, name, seeds=1)
        if count < RANKS_FROM - 1:
            continue
        found, enough = standing(tmp_path), count == RANKS_FROM
        assert bool(found.mean_ranks) == (found.cd is not None) == (found.friedman is not None) == enough
        for view in ("ranks", "summary"):
            text = " ".join(fedbench("compare", view, "s", cwd=tmp_path, columns=200).output.split())
            assert ("4 complete scenarios: no mean ranks, which take at least 5" in text) != enough
            assert ("mean rank" in text.replace("no mean ranks", "")) == enough


def test_no_group_over_scenarios_where_methods_are_better_here_and_worse_there(tmp_path):
    """Over both scenarios their means are equal, which says nothing: the interaction is significant."""
    scenario(tmp_path, "one", {"fedra": 0.8, "depthfl": 0.6, "allsmall": 0.1}, seeds=4)
    scenario(tmp_path, "two", {"fedra": 0.6, "depthfl": 0.8, "allsmall": 0.1}, seeds=4)
    found = standing(tmp_path)
    assert found.crossing == {("depthfl", "fedra"): ("two", "one")} and found.groups == {}
    for view in ("ranks", "summary"):
        printed = fedbench("compare", view, "s", cwd=tmp_path, columns=200).output
        text = " ".join(printed.split())
        assert "depends on the scenario" in text and "depthfl and fedra (two and one)" in text
        assert "group" not in starting(printed, "method")


def test_an_incomplete_scenario_is_blank_and_named(tmp_path):
    for name in ("one", "two"):
        scenario(tmp_path, name)
    scenario(tmp_path, "three", {"fedra": 0.1, "depthfl": 0.6})
    found = standing(tmp_path)
    assert list(found.ranks) == ["one", "two"] and found.left_out == {"three": ["allsmall"]}
    text = fedbench("compare", "ranks", "s", cwd=tmp_path, columns=80).output
    assert starting(text, "method")[-2:] == ["one", "two"]
    assert "three: incomplete, no score of allsmall" in text and "2 complete scenarios" in text


def test_one_or_no_complete_scenario(tmp_path):
    scenario(tmp_path, "one")
    assert "nothing is concluded over scenarios" in " ".join(laid_out(ranks([standing(tmp_path)])).pages[0].notes)
    write(tmp_path / "s", "festa", (0.1, 0.1), scenario="two")
    found = standing(tmp_path)
    assert not found.ranks and found.cd is None
    assert "--method" in " ".join(laid_out(ranks([found])).pages[0].notes)


def test_ties_share_ranks_and_a_low_loss_is_first(tmp_path):
    for name in FIVE:
        for method, value in (("fedra", 0.5), ("depthfl", 0.5), ("allsmall", 0.1)):
            write_cell(tmp_path / "s", method, scenario=name, evaluation=eval_rows({1: {"a": value}}, "loss"))
    found = standing(tmp_path, metric="loss")
    assert found.mean_ranks == {"fedra": 2.5, "depthfl": 2.5, "allsmall": 1.0}


def test_the_diagram_reaches_as_far_as_the_critical_difference(tmp_path):
    for i in range(8):
        scenario(tmp_path, f"s{i}", {method: LEVELS[method] for method in ("fedra", "depthfl", "allsmall")}, seeds=1)
    found = standing(tmp_path)
    frame = ranks([found])
    first, second, third = frame["diagram"]
    assert {len(first), len(second), len(third)} == {WIDE}
    assert (first.index("o"), third.index("o")) == (0, WIDE - 1)
    assert first.count("=") == round(found.cd / 2 * (WIDE - 1))
    text = fedbench("compare", "ranks", "s", cwd=tmp_path).output
    assert "Benavoli et al. 2016" in " ".join(text.split()) and f"critical difference {found.cd:.2f}" in text


def test_means_letters_and_mean_ranks_stand_together(tmp_path):
    for name in FIVE[1:]:
        scenario(tmp_path, name)
    scenario(tmp_path, "one", LEVELS | {"fedra": 0.55, "depthfl": 0.552})
    text = fedbench("compare", "summary", "s", cwd=tmp_path, columns=120).output
    assert starting(text, "method") == ["method", "role", "mean", "rank", "group", *FIVE[1:], "one"]
    assert starting(text, "alllarge") == ["alllarge", "ceiling", *["89.8"] * 5], "above all others, and not ranked"
    letters = {b.place.scenario: {row.label: row.group for row in b.rows} for b in boards(tmp_path)}
    assert letters["one"]["fedra"] == letters["one"]["depthfl"] == "a"
    found = standing(tmp_path)
    assert next(iter(found.roles)) == "alllarge" and "alllarge" not in found.mean_ranks
    assert {title: {m: row.group for m, row in rows.items()} for title, rows in found.rows.items()} == letters
    shown = starting(text, "fedra")
    assert shown[1] == f"{(4 * 1 + found.ranks['one']['fedra']) / 5:.2f}" and shown[3:5] == ["69.9", "a"]


def test_a_missing_cell_is_a_blank_and_its_scenario_gives_no_rank(tmp_path, five):
    shutil.copytree(five, tmp_path / "s")
    scenario(tmp_path, "short", {"fedra": 0.1, "depthfl": 0.6})
    write_cell(tmp_path / "s", "allsmall", scenario="torn", status="failed", reason="no memory")
    assert standing(tmp_path).mean_ranks == {"fedra": 1.0, "depthfl": 2.0, "allsmall": 3.0}
    text = " ".join(fedbench("compare", "summary", "s", cwd=tmp_path, columns=200).output.split())
    assert "mean rank: over 5 of 7 scenarios, with a score of all 3 ranked methods" in text
    assert "without one: allsmall in 2, fedra in 1, depthfl in 1" in text
    assert "without allsmall 6 are complete" in text and "no memory (torn)" in text
    cells = texts(lettered(summary([standing(tmp_path)])))
    at = cells["method"].index("allsmall")
    assert cells["short"][at] == "" and cells["torn"][at] == "failed"


def test_one_complete_scenario_gives_no_mean_rank(tmp_path):
    """A place in one of many scenarios would read as a mean over all."""
    scenario(tmp_path, "one", {"depthfl": 0.5, "fedra": 0.4})
    for name in ("two", "three"):
        scenario(tmp_path, name, {"fedra": 0.9})
    text = fedbench("compare", "summary", "s", cwd=tmp_path).output
    assert "no mean rank: 1 of 3 scenarios complete" in text and starting(text, "method")[1] == "one"


def test_many_scenarios_keep_their_whole_names_and_what_they_share_stands_once(tmp_path):
    names = [f"scenario_with_a_name_{i}" for i in range(7)]
    for name in names:
        scenario(tmp_path, name, seeds=1)
    text = fedbench("compare", "summary", "s", cwd=tmp_path, columns=None).output
    assert starting(text, "method")[-7:] == names
    assert text.count("too few to say which method is best") == 1


def test_a_scenario_is_called_by_what_tells_it_from_others(tmp_path):
    """A sweep over backbones says them already."""
    for name in ("micro_vit", "micro_mixer"):
        scenario(tmp_path, "one", variant=f"backbone={name}", backbone={"name": name}, seeds=1)
    found = standing(tmp_path)
    assert list(found.boards) == ["micro_vit", "micro_mixer"]


def test_many_leaderboards_are_summed_up_on_a_terminal_alone(tmp_path):
    for i in range(FEW + 1):
        scenario(tmp_path, f"s{i}", {"fedra": 0.5, "depthfl": 0.4}, seeds=1)

    def printed(*words):
        return fedbench("compare", *words, cwd=tmp_path).output

    assert f"A summary of {FEW + 1} leaderboards: compare boards" in printed("s")
    told = printed("s", "--baseline", "fedra")
    assert "mean rank" not in told and "\ns0\n" in told
    # what programs read never depends on how much there is
    assert printed("s", "--format", "csv") == printed("boards", "s", "--format", "csv")
    refused = fedbench("compare", "summary", "s", "--baseline", "fedra", cwd=tmp_path)
    assert refused.exit_code == 2 and "No such option" in refused.output


def test_csv_and_json(tmp_path, five):
    shutil.copytree(five, tmp_path / "s")
    scenario(tmp_path, "short", {"fedra": 0.1})
    text = fedbench("compare", "summary", "s", "--format", "csv", cwd=tmp_path).stdout
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(text))}
    assert rows["depthfl"]["short"] == "" != rows["fedra"]["short"]
    assert (rows["fedra"]["one group"], rows["fedra"]["one status"]) == ("a", "finished")
    assert (rows["alllarge"]["mean_rank"], rows["alllarge"]["role"]) == ("", "ceiling")
    assert (rows["depthfl"]["mean_rank"], rows["depthfl"]["complete"]) == ("2.0", "5")
    found = json.loads(fedbench("compare", "summary", "s", "--format", "json", cwd=tmp_path).stdout)
    assert [row["group"] for row in found["rows"] if row["method"] == "allsmall"] == ["c"]
    text = fedbench("compare", "ranks", "s", "--format", "csv", cwd=tmp_path).stdout
    first = next(csv.DictReader(io.StringIO(text)))
    assert (first["method"], first["two"], first["mean_rank"], first["group"]) == ("fedra", "1.0", "1.0", "a")
    assert float(first["friedman_p"]) < 0.01 and float(first["critical_difference"]) > 0


def test_markdown_and_latex_have_the_same_cells(tmp_path, five):
    shutil.copytree(five, tmp_path / "s")
    markdown = fedbench("compare", "summary", "s", "--format", "markdown", cwd=tmp_path).stdout
    assert re.search(r"\| fedra \|  \| 1.00 \| a \| 69.9 a \| 69.9 a \|", markdown)
    latex = fedbench("compare", "summary", "s", "--format", "latex", cwd=tmp_path).stdout
    assert "fedra &  & 1.00 & a & 69.9 a & 69.9 a" in latex


def test_a_run_of_many_scenarios_ends_with_a_summary_too(tmp_path, capsys):
    for i in range(FEW + 1):
        scenario(tmp_path, f"s{i}", {"fedra": 0.5}, seeds=1)
    show_end(RunSummary("s", tmp_path / "s", {}, frozenset(), 1.0), ROLES)
    assert f"A summary of {FEW + 1} leaderboards" in " ".join(capsys.readouterr().out.split())


def test_a_scenario_may_be_called_as_a_column_is(tmp_path):
    for name in ("method", "group", "ranked", "diagram", "s5"):
        scenario(tmp_path, name, seeds=3)
    for view in (summary, ranks):
        found = view([standing(tmp_path)])
        assert {"allsmall", "depthfl", "fedra"} <= {*found["method"]}
        assert {"method (scenario)", "group (scenario)", "s5"} <= {*found.columns}
