"""The figure of the study: what is paired with what, and what is said of it."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import skippable_figure as study
from layers_left_out import Score, read

from fedbench.errors import UserError
from fedbench.results import load

TOP = Path(__file__).parents[2]
PAGE, COMMITTED = TOP / "docs/skippable.md", TOP / "results/reference/skippable"


def scores(weights, recipe, seed, whole, without):
    def one(k, way, draw, accuracy):
        return Score(weights, "micro_vit", recipe, seed, k, way, "full", draw, "", accuracy)

    drawn = [one(6, "random", draw, accuracy) for draw, accuracy in enumerate(without)]
    return [one(0, "none", 0, whole), *drawn, one(6, "last", 0, 0.0), one(5, "random", 0, 1.0)]


def test_the_share_that_is_kept_is_above_chance_and_of_random_layers_alone():
    chance = 1 / 30
    found = study.kept(scores("w", "plain", 0, chance + 0.8, [chance + 0.2, chance + 0.4]), 6)
    assert found == {"w": pytest.approx(0.375)}


def test_dots_pair_methods_by_seed_and_cells_with_scores_by_weights():
    found = [*scores("w0", "plain", 0, 0.9, [0.5]), *scores("w1", "plain", 1, 0.8, [0.5])]
    cells = {
        ("all_6", "w0", "fedra"): {0: 70.0, 1: 60.0, 2: 99.0},
        ("all_6", "w0", "inclusivefl"): {0: 65.0, 1: 57.0},
        ("all_6", "w1", "fedra"): {0: 50.0},
        ("all_6", "w1", "inclusivefl"): {0: 51.0},
        ("all_6", "w1", "head_only"): {0: 48.0},
        ("all_6", "unknown", "fedra"): {0: 50.0},
        ("all_6", "unknown", "inclusivefl"): {0: 10.0},
    }
    (dot,) = study.dots(found, cells)
    assert (dot.scenario, dot.backbone, dot.recipe) == ("all_6", "micro_vit", "plain")
    assert dot.gain == [4.0, -1.0] and (dot.ours, dot.theirs) == ([2.0], [3.0]) and len(dot.kept) == 2
    with pytest.raises(UserError, match="no weights have both"):
        study.dots(found, {("all_6", "unknown", "fedra"): {0: 50.0}})


def test_accuracies_are_the_means_over_domains_after_the_last_round_of_finished_cells():
    rows = {
        "round": [6, 12, 12, 12, 12], "split": ["test", "test", "test", "validation", "test"],
        "domain": ["a", "a", "b", "a", "b"], "client": [-1] * 5, "value": [0.0, 0.2, 0.4, 1.0, 9.0],
        "metric": ["accuracy"] * 4 + ["loss"],
    }  # fmt: skip
    columns = {name: SimpleNamespace(to_pylist=lambda part=part: part) for name, part in rows.items()}

    def result(status, seed):
        entry = SimpleNamespace(scenario="all_6", method="fedra", seed=seed)
        return SimpleNamespace(status=status, entry=entry, manifest={"fingerprints": {"weights": "w"}}, eval=columns)

    found = study.accuracies([result("finished", 0), result("failed", 1)])
    assert found == {("all_6", "w", "fedra"): {0: pytest.approx(30.0)}}


def test_the_link_is_spearmans_by_all_permutations():
    rho, p = study.link([1, 2, 3, 4, 5], [10, 20, 30, 40, 1000])
    assert rho == pytest.approx(1) and p == pytest.approx(2 / 120)
    assert study.link([1, 2, 3], [1, 2, 3]) is None and study.link([1, 1, 1, 1], [1, 2, 3, 4]) is None


def test_figure_and_words_show_intervals_over_three_runs_alone():
    names = ("plain", "longer", "layer_scale", "weight_decay")
    found = [
        study.Dot("all_6", "micro_vit", name, [10.0 * i, 10.0 * i + 1, 10.0 * i + 2], [i, i + 1.0, i + 2.0], [], [])
        for i, name in enumerate(names)
    ]
    found.append(study.Dot("all_6", "micro_mixer", "plain", [50.0], [1.0], [2.0], [1.0]))
    lines = study.told(found)
    assert "1.0 [-1.5, 3.5]" in lines[1] and "[" not in lines[5] and "rho +1.00 over 4 recipes" in lines[6]
    assert lines[5].split()[-4:] == ["50.0", "1.0", "2.0", "1.0"]
    drawn = study.figure(found)
    bars = [container for container in drawn.axes[0].containers if container.has_xerr]
    assert len(drawn.axes) == 1 and len(drawn.axes[0].containers) == 5 and len(bars) == 4
    assert study.bar([0.0, 1.0, 2.0]) == [[pytest.approx(2.484, abs=1e-3)]] * 2 and study.bar([1.0]) is None
    assert np.isfinite([line.get_xdata()[0] for line in drawn.axes[0].lines if len(line.get_xdata())]).all()


def test_the_page_says_what_the_committed_cells_and_scores_give():
    cells = study.accuracies(load([COMMITTED]))
    found = study.dots(read(COMMITTED / "layers_left_out.csv"), cells)
    rows = re.findall(r"^\| `(\S+)` \| (\d.+\]) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(found) == 32
    for (recipe, said), dot in zip(rows, [dot for dot in found if dot.scenario == "all_6"], strict=True):
        kept, fedra, inclusivefl, probe, gain = said.split(" | ")
        assert recipe == dot.recipe and gain == study.with_interval(dot.gain)
        assert kept == study.with_interval(dot.kept)
        assert float(fedra) - float(inclusivefl) == pytest.approx(np.mean(dot.gain), abs=0.11)
        assert float(fedra) - float(probe) == pytest.approx(np.mean(dot.ours), abs=0.11)
    links = [re.findall(r"(?<= )[-+]?\d\.\d+", line)[:3] for line in study.told(found) if "rho" in line]
    said = re.findall(r"^\| (?:ViT|Mixer), `\w+` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [row.split(" | ") for row in said] == links and len(links) == 4
