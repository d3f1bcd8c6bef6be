"""`fedbench plot` as a user types it."""

from __future__ import annotations

import pytest
from command import fedbench
from factories import eval_rows, layer_row, prefix_rounds, write_cell

from fedbench.results.pack import pack

SCORES = eval_rows({1: {"solid": 0.5, "outline": 0.25}, 2: {"solid": 0.75, "outline": 0.5}})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of two scenarios, and two methods with two seeds in each."""
    folder = tmp_path_factory.mktemp("plotted")
    for scenario in ("skew", "half"):
        for method in ("fedra", "allsmall"):
            for seed in (0, 1):
                write_cell(
                    folder / "s",
                    method,
                    seed,
                    scenario=scenario,
                    evaluation=SCORES,
                    rounds=prefix_rounds((2, 1), 2),
                    layers=[layer_row(t, j) for t in (1, 2) for j in range(2)],
                )
    pack(folder / "s")
    return folder


@pytest.fixture
def here(results, tmp_path):
    """A folder with these results."""
    (tmp_path / "results").symlink_to(results)
    return tmp_path


def test_results_is_where_it_looks_and_plots_where_it_writes(here):
    done = fedbench("plot", "curves", cwd=here)
    assert (done.exit_code, done.output) == (0, "plots/s-curves.png\n")
    assert (here / "plots/s-curves.png").read_bytes().startswith(b"\x89PNG")


def test_curves_over_bytes_have_a_file_of_their_own(here):
    done = fedbench("plot", "curves", "--over", "bytes", "--format", "svg", cwd=here)
    assert (done.exit_code, done.output) == (0, "plots/s-curves-bytes.svg\n")


def test_a_picture_for_each_leaderboard(here):
    done = fedbench("plot", "layers", "results/s", "--scenario", "half", "--format", "svg", cwd=here)
    assert done.output.split() == ["plots/s-layers-half.svg"]
    assert {p.name for p in (here / "plots").iterdir()} == {"s-layers-half.svg"}


def test_out_is_the_file_and_the_leaderboard_is_added_where_there_are_several(here):
    one = fedbench("plot", "allocation", "--scenario", "half", "--output", "my pictures/one.svg", cwd=here)
    assert one.output == "my pictures/one.svg\n" and (here / one.output.strip()).read_bytes().startswith(b"<?xml")
    two = fedbench("plot", "allocation", "--method", "fedra", "--output", "two.svg", cwd=here)
    assert two.output.split() == ["two-skew.svg", "two-half.svg"]


def test_filters_choose_what_is_drawn(here):
    words = ("plot", "curves", "--scenario", "skew", "--method", "fedra", "--seed", 1, "--output", "a.svg")
    assert fedbench(*words, cwd=here).exit_code == 0
    assert fedbench(*words[:-1], "b.svg", "--metric", "accuracy", cwd=here).exit_code == 0
    assert (here / "a.svg").read_bytes() == (here / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("curves", "--metric", "acuracy"), "no metric 'acuracy' in these results. Did you mean 'accuracy'?"),
        (("curves", "--method", "fedar"), "no method 'fedar' in these results. Did you mean 'fedra'?"),
        (("curves", "--output", "a.jpg"), "a.jpg: pictures end in .png, .svg or .pdf, not '.jpg'"),
        (("curves", "--output", "a.png", "--format", "pdf"), "--output a.png: its suffix is not .pdf"),
        (("layers", "nowhere"), "nowhere: no such folder"),
        (("tsne", "--scenario", "skew", "--method", "fedra"), "kept no model"),
    ],
)
def test_mistakes_end_with_one_message(here, words, message):
    done = fedbench("plot", *words, cwd=here)
    assert done.exit_code == 2 and message in done.output
    assert not (here / "plots").exists()


def test_an_unknown_kind_names_the_known(here):
    done = fedbench("plot", "curve", cwd=here)
    assert done.exit_code == 2 and "curve" in done.output


def test_without_matplotlib_the_extra_is_named(here, monkeypatch):
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("fedbench.commands.plot.find_spec", lambda name: None if name == "matplotlib" else real(name))
    done = fedbench("plot", "curves", cwd=here)
    assert done.exit_code == 2 and "pip install 'fedbench-heft[plots]'" in done.output


@pytest.mark.parametrize(
    "kind", ["curves"] + [pytest.param(kind, marks=pytest.mark.slow) for kind in ("pareto", "layers", "allocation")]
)
def test_names_with_signs_of_mathematics_and_of_hidden_labels_are_drawn_as_they_are(tmp_path, kind):
    names = ("_hidden", "a$x^$b", "$\\alpha", "_child0x")
    for name in names:
        for seed, scenario in ((0, "one"), (1, "one"), (0, "_2$"), (1, "_2$")):
            parts = {"evaluation": SCORES, "rounds": prefix_rounds((2, 1), 2)}
            parts["layers"] = [layer_row(t, j) for t in (1, 2) for j in range(2)]
            write_cell(tmp_path / "s", name, seed, scenario=scenario, **parts)
    done = fedbench("plot", kind, "s", "--format", "svg", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    drawn = "".join(file.read_text() for file in (tmp_path / "plots").iterdir())
    assert all(f"<!-- {name} -->" in drawn for name in names)
