"""fedbench/report/significance.py: which methods differ, tie groups, and the sentence that concludes."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from boards import ROLES, board, rendered, row, shown, write
from factories import eval_rows, write_cell

from fedbench.report.frames import records
from fedbench.report.leaderboards import leaderboards
from fedbench.report.significance import conclusion, crossing, groups_of
from fedbench.report.statistics.pairs import turned, verdicts
from fedbench.report.views.leaderboard import leaderboard
from fedbench.results import load
from fedbench.results.pack import pack

BEST, NONE = "has the best mean of the ranked methods;", "No ranked method is best:"

NOISE = (0.0, 0.006, -0.004, 0.002, -0.004)


def seeds(mean, spread=1.0):
    return [(mean + spread * e, mean - 0.1 - 3 * spread * e) for e in NOISE]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of four methods, the first of them a ceiling."""
    folder = tmp_path_factory.mktemp("made")
    write(folder / "s", "alllarge", *seeds(0.95))
    write(folder / "s", "fedra", *seeds(0.80))
    write(folder / "s", "depthfl", *seeds(0.802, 1.3))
    write(folder / "s", "allsmall", *seeds(0.60, -1))
    pack(folder / "s")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of these results."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_letters_begin_from_the_best_and_leave_out_ceilings(folder):
    found = board(folder)
    assert {r.label: r.group for r in found.rows} == {"alllarge": "", "fedra": "b", "depthfl": "a", "allsmall": "c"}
    assert [r.label for r in found.contenders] == ["depthfl", "fedra", "allsmall"]


def test_equal_means_keep_the_order_of_the_suite_whatever_they_were_added_up_in(tmp_path):
    write(tmp_path / "s", "fedra", *[(v, v) for v in (0.1, 0.2, 0.3)])  # whose sum is 0.6000000000000001
    write(tmp_path / "s", "depthfl", *[(v, v) for v in (0.3, 0.2, 0.1)])
    found = board(tmp_path)
    assert found.rows[0].average.mean != found.rows[1].average.mean
    for rows in (found.rows, found.rows[::-1]):
        assert [r.label for r in replace(found, rows=rows).contenders] == [r.label for r in rows]


def test_a_difference_within_the_margin_is_said_to_be_small(folder):
    pair = next(p for p in board(folder).pairs if {p.method, p.other} == {"fedra", "depthfl"})
    assert (pair.verdict, pair.within) == ("better" if pair.method == "depthfl" else "worse", True)
    text = shown([board(folder, baseline="depthfl")])
    line = next(line for line in text.splitlines() if line.startswith("fedra") and "worse" in line)
    assert "worse (<1)" in line and "(<1): both" in " ".join(text.split())
    assert not any(p.within for p in board(folder, equivalent=0.1).pairs)


def test_gaps_say_what_pairs_say_whatever_the_baseline(folder):
    for baseline in ("fedra", "allsmall"):
        found = board(folder, baseline=baseline)
        pairs = [*found.pairs, *map(turned, found.pairs)]
        for ours in (r for r in found.rows if r.gap and r.ranked):
            assert [ours.gap] == [p for p in pairs if (p.method, p.other) == (ours.label, baseline)]
    assert row(found, "alllarge").gap.verdict == "better"  # a ceiling is compared, though never ranked


def test_pairs_with_a_ceiling_are_a_family_of_their_own(folder):
    """Differences that are sure would make room for others that are not."""
    with_ceiling = {(p.method, p.other): p.q for p in board(folder).pairs}
    without = leaderboards([r for r in load([folder]) if r.entry.method != "alllarge"], roles=ROLES)[0]
    assert with_ceiling == {(p.method, p.other): p.q for p in without.pairs}


def test_one_seed_concludes_nothing_and_says_so(tmp_path):
    write(tmp_path / "s", "fedra", (0.8, 0.6))
    write(tmp_path / "s", "depthfl", (0.1, 0.2))
    found = board(tmp_path, baseline="depthfl")
    assert not any(r.group for r in found.rows) and row(found, "fedra").gap.verdict == "inconclusive"
    for form in ("markdown", "latex"):
        assert "1 seed: too few to say which method is best" in rendered([found], form)
    text = shown([found])
    assert "1 seed: too few to say which method is best" in text and "group" not in text and "verdict" not in text


def test_a_method_with_too_few_seeds_has_no_letter(folder):
    write(folder / "s", "exclusive", (0.99, 0.99), (0.99, 0.99))
    found = board(folder)
    assert row(found, "exclusive").group == "" and row(found, "depthfl").group == "a"
    assert "exclusive: fewer than three seeds, nothing is concluded about them" in " ".join(shown([found], 120).split())


def test_second_outputs_are_not_ranked_and_their_gaps_have_no_verdict(folder):
    for seed, (a, b) in enumerate(seeds(0.9)):
        rows = eval_rows({12: {"a": a, "b": b}}, "accuracy/last") + eval_rows({12: {"a": 0.7 + a / 100, "b": b}})
        write_cell(folder / "s", "reefl", seed, evaluation=rows)
    last = row(board(folder), "reefl/last")
    assert (last.ranked, last.group, last.gap.verdict) == (False, "", "")
    assert last.gap.n == 5 and last.gap.p == 2 / 2**5, "all gaps are the same, and the signs alone speak"


def test_what_diverged_is_no_contender(folder):
    write(folder / "s", "fedv", *[(float("nan"), 0.5)] * 3)
    assert "fedv" not in {r.label for r in board(folder).contenders}


def test_a_loss_has_no_margin_unless_it_is_asked_for(tmp_path):
    for method, level in (("fedra", 0.5), ("depthfl", 1.5)):
        for seed in range(4):
            rows = eval_rows({1: {"a": level + seed / 100 * level}}, "loss")
            write_cell(tmp_path / "s", method, seed, evaluation=rows)
    found = board(tmp_path, metric="loss")
    assert {r.label: r.group for r in found.rows} == {"fedra": "a", "depthfl": "b"}
    assert found.margin is None and all(p.within for p in board(tmp_path, metric="loss", equivalent=2.0).pairs)


def test_a_leaderboard_has_the_same_verdicts_whatever_else_is_shown(folder):
    alone = board(folder).pairs
    write(folder / "t", "fedra", *seeds(0.8))
    write(folder / "t", "depthfl", *reversed(seeds(0.8)))
    both = leaderboards(load([folder]), roles=ROLES)
    assert len(both) == 2 and both[0].pairs == alone


def concluded(*levels, spread=0.001):
    """The sentence for methods a, b, ... with these means, whose seeds are not all apart alike."""
    scores = {}
    for i, level in enumerate(sorted(levels, reverse=True)):
        scores["abcdefghi"[i]] = {seed: level + spread * (i + 1) * e for seed, e in enumerate((0, 1, -2, 1, 0.5))}
    return conclusion(scores, verdicts(scores, True, 0.01))


def test_one_sentence_says_what_is_concluded():
    assert concluded(0.9, 0.5) == "a is significantly better than the other ranked method."
    assert concluded(0.9, 0.5, 0.4) == "a is significantly better than all other ranked methods."
    assert concluded(0.9, 0.9, 0.4) == f"a {BEST} b is not significantly different."
    assert concluded(0.9, 0.9, 0.9, 0.4) == f"a {BEST} b and c are not significantly different."
    many = concluded(*[0.9] * 9, spread=0.2)
    assert many == f"a {BEST} no difference from it is significant."
    assert concluded(0.9) == ""


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"a": [0.506] * 3, "b": [0.506] * 3}, f"{NONE} a and b have equal means."),
        ({"a": [0.5, 0.6, 0.7], "b": [0.7, 0.6, 0.5]}, f"{NONE} a and b have equal means."),
        ({"a": [0.1, 0.2, 0.3], "b": [0.3, 0.1, 0.2], "c": [0.1] * 3}, f"{NONE} a and b have equal means."),
        ({"a": [0.5] * 3, "b": [0.5] * 3, "c": [0.5] * 3}, f"{NONE} a, b and c have equal means."),
        ({name: [0.0] * 3 for name in "abcdefg"}, f"{NONE} a, b, c, d, e, f and 1 more have equal means."),
        ({"a": [0.5] * 3, "b": [0.5] * 2}, "b: fewer than three seeds, nothing is concluded about them."),
        ({"a": [0.506] * 3, "b": [0.505] * 3}, f"a {BEST} the difference is not significant."),
        ({"a": [0.9, 0.5, 0.6], "b": [0.5] * 3, "c": [0.4] * 3}, f"a {BEST} no difference from"),
    ],
)
def test_no_method_is_best_where_means_are_equal(scores, said):
    by_seed = {name: dict(enumerate(values)) for name, values in scores.items()}
    assert conclusion(by_seed, verdicts(by_seed, True, 0.01)).startswith(said)


def test_the_sentence_stands_above_the_board(folder):
    lines = shown([board(folder)], 120).splitlines()
    assert lines[2] == "depthfl is significantly better than all other ranked methods." and lines[3].startswith(
        "method"
    )


def test_pairs_that_are_better_here_and_worse_there_depend_on_the_scenario():
    def pairs(a, b):
        noise = (0.0, 0.01, -0.02, 0.005)
        scores = {"a": {s: a + e for s, e in enumerate(noise)}, "b": {s: b - e for s, e in enumerate(noise)}}
        return verdicts(scores, True, 0.01)

    assert crossing({"one": pairs(0.8, 0.5), "two": pairs(0.4, 0.9)}) == {("a", "b"): ("one", "two")}
    assert crossing({"one": pairs(0.8, 0.5), "two": pairs(0.9, 0.4)}) == {}
    assert crossing({"one": pairs(0.8, 0.5), "two": pairs(0.5, 0.5)}) == {}


def test_methods_that_share_no_seeds_are_not_said_to_be_alike():
    scores = {"a": {0: 0.91, 1: 0.9, 2: 0.92}, "b": {3: 0.11, 4: 0.1, 5: 0.12}}
    assert groups_of(scores, []) == {}
    assert conclusion(scores, []) == "b: fewer than three seeds in common, nothing is concluded about them."
    third = {"c": dict.fromkeys(range(3), 0.5) | {7: 0.5}}
    pairs = verdicts({"a": scores["a"], **third}, True, None)
    assert groups_of({**scores, **third}, pairs).keys() == {"a", "c"}
    assert conclusion({**scores, **third}, pairs).endswith(
        "b: fewer than three seeds in common, nothing is concluded about them."
    )


def test_a_gap_without_an_interval_has_its_verdict_all_the_same(tmp_path):
    """Equal differences have no spread; six of one sign are significant by signs alone."""
    for method, value in (("alllarge", 0.5), ("fedra", 0.4)):
        write(tmp_path / "s", method, *[(value + s / 8, value + s / 8) for s in range(6)])
    verdicts_of = {one["method"]: one["verdict"] for one in records(leaderboard([board(tmp_path)]))}
    assert verdicts_of["fedra"] == "worse"
