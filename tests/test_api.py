"""fedbench from Python: results as frames, runs, and the notebook that shows both."""

from __future__ import annotations

import ast
import enum
import io
import json
import subprocess
import sys
from collections import OrderedDict
from contextlib import chdir
from pathlib import Path
from types import MappingProxyType

import numpy
import pandas
import pytest
from command import TINY, write_suite
from factories import eval_rows, write_cell

import fedbench
from fedbench.errors import UserError
from fedbench.report.results import ResultFrame
from fedbench.results.pack import pack

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results/reference"
VIEWS = ("leaderboard", "pairs", "costs", "summary", "ranks", "pareto")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of two suites."""
    folder = tmp_path_factory.mktemp("made")
    for suite in ("one", "two"):
        for method, level in (("alllarge", 0.9), ("fedra", 0.7), ("depthfl", 0.6)):
            for seed in range(3):
                rows = eval_rows({2: {"a": level + seed * len(method) / 1000, "b": level}})
                write_cell(folder / suite, method, seed, evaluation=rows)
        pack(folder / suite)
    return folder


def test_names_are_public_and_loaded_when_asked_for():
    assert {"load", "run"} <= set(fedbench.__all__) and {"load", "run"} <= set(dir(fedbench))
    code = "import sys, fedbench; dir(fedbench); print({'pandas', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tables_of_cells_scores_and_rounds(folder):
    r = fedbench.load(folder / "one")
    assert isinstance(r.cells, pandas.DataFrame) and len(r.cells) == 9
    assert set(r.eval["metric"]) == {"accuracy"} and len(r.rounds) == 9 * 72
    assert repr(r) == f"<fedbench results of {folder / 'one'}: 9 finished>"
    assert "<table>" in r._repr_html_()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_frame_with_a_caption_that_says_what_it_is_of(folder, view):
    found = getattr(fedbench.load(folder / "one"), view)()
    assert isinstance(found, pandas.DataFrame) and type(found[found["method"] != ""]) is ResultFrame and len(found)
    assert found.caption and found.attrs["metric"] == "accuracy"
    assert found._repr_html_().count("<table>") >= 1
    assert found.attrs["correction"].startswith("Benjamini-Hochberg over ")


def test_a_leaderboard_has_the_columns_that_are_promised(folder):
    board = fedbench.load(folder / "one").leaderboard(baseline="depthfl")
    promised = ["method", "role", "mean", "std", "ci_low", "ci_high", "group", "n_seeds", "a", "b"]
    assert set(promised) <= set(board.columns)
    assert board["method"].tolist() == ["alllarge", "fedra", "depthfl"]  # the ceiling, then by the mean
    assert board.set_index("method").loc["fedra", "gap"] == pytest.approx(0.1, abs=0.01)


def test_several_paths_and_globs_are_one_pool(folder):
    both = fedbench.load(folder / "*")
    assert list(both.cells["suite"].unique()) == ["one", "two"]
    assert len(fedbench.load(folder / "one", folder / "two").leaderboard()) == 6
    assert len(fedbench.load([folder / "one", folder / "two"]).leaderboard()) == 6
    assert len(both.select(methods=["fed*"]).leaderboard()) == 2
    with pytest.raises(UserError, match="no folder matches"):
        fedbench.load(folder / "x*")


def test_the_frame_is_the_one_that_compare_prints(folder):
    from command import fedbench as command

    printed = pandas.read_csv(io.StringIO(command("compare", "one", "--format", "csv", cwd=folder).stdout))
    found = fedbench.load(folder / "one").leaderboard()
    pandas.testing.assert_frame_equal(pandas.read_csv(io.StringIO(found.to_csv(index=False))), printed)


def test_time_to_target_deployable_and_tuning(folder):
    r = fedbench.load(folder / "one")
    found = r.time_to_target(0.65).set_index("method")
    assert found.loc["fedra", "n_reached"] == 3 and found.loc["depthfl", "n_reached"] == 0
    with pytest.raises(UserError, match="scored at sizes"):
        r.deployable()
    with pytest.raises(UserError, match="nothing of this was tuned"):
        r.tuning()
    tuned = fedbench.load(REFERENCE / "feature_skew_tuned")
    assert {"method", "validation", "1 trial", "8 trials"} <= set(tuned.tuning().columns)
    assert len(tuned.candidates()) > len(tuned.tuning()) > 0


def test_a_run_returns_results(tmp_path, own_cache, capsys):
    write_suite(tmp_path, "fedra")
    with chdir(tmp_path):
        r = fedbench.run("tiny.yaml", rounds=1, plugins=[str(TINY)], results="r")
        assert r.outcome.ran == 1 and r.leaderboard()["method"].tolist() == ["fedra"]
        out, err = capsys.readouterr()
        assert "1 to run" in err and out == ""
        again = fedbench.run("tiny.yaml", rounds=1, plugins=[str(TINY)], results="r", quiet=True)
        assert again.outcome.ran == 0 and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("choice", "said"),
    [("method", 'did you mean "methods"'), ("seed", 'did you mean "seeds"'), ("observe", "there are")],
)
def test_a_choice_that_there_is_not_is_named_as_it_was_given(choice, said):
    with pytest.raises(UserError, match=rf"run\({choice}=\.\.\.\): there is no such choice.*{said}"):
        fedbench.run("quickstart", **{choice: "fedra"})


def test_a_suite_may_be_a_mapping(tmp_path, own_cache):
    suite = {
        "suite": "mapped",
        "defaults": {"backbone": "tiny", "data": "dots", "capacities": [2, 1], "train": {"rounds": 2, "max_steps": 1}},
        "scenarios": {"small": {}},
        "methods": ["head_only"],
    }
    with chdir(tmp_path):
        r = fedbench.run(suite, rounds=1, plugins=[str(TINY)], results="r", quiet=True)
        assert r.cells["suite"].tolist() == ["mapped"] and r.cells["rounds"].tolist() == [1]
        assert [path.name for path in tmp_path.iterdir()] == ["r"]
        with pytest.raises(UserError, match="no method is called 'nosuch'"):
            fedbench.run({**suite, "methods": ["nosuch"]}, plugins=[str(TINY)], results="r", quiet=True)


@pytest.mark.parametrize("folder", ["", "docs"])
def test_the_example_notebook_runs_and_shows_what_it_says(folder, tmp_path, own_cache, monkeypatch):
    notebook = json.loads((ROOT / "docs/example.ipynb").read_text(encoding="utf-8"))
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "results/reference").symlink_to(REFERENCE)
    names, run = dict[str, object](), fedbench.run
    few = [f"data.{split}_per_class=1" for split in ("train", "test")]  # images, of which a run has thousands
    monkeypatch.setattr(fedbench, "run", lambda *given, sets=(), **more: run(*given, sets=[*sets, *few], **more))
    shown = 0
    with chdir(tmp_path / folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                *lines, last = ast.parse("".join(cell["source"])).body
                exec(compile(ast.Module(lines, []), "example.ipynb", "exec"), names)
                value = eval(compile(ast.Expression(last.value), "example.ipynb", "eval"), names)
                told = cell["outputs"][-1]["data"]
                if "text/html" in told and "mine" not in names and hasattr(value, "_repr_html_"):
                    shown += 1
                    assert "".join(told["text/html"]).strip() == value._repr_html_().strip(), "run it again"
    assert names["vit"]["method"].tolist()[1] == "fedra" and names["mine"].outcome.ran == 1 and shown >= 7


def test_parts_of_a_view_are_shown_in_a_notebook_too():
    board = fedbench.load(REFERENCE / "feature_skew_tuned").leaderboard()
    vit = board[board["backbone"] == "micro_vit"]
    few = board[["method", "mean"]]
    assert "fedra" in few._repr_html_() and board.caption in few._repr_html_()
    assert few._repr_html_().count("<tr>") == len(board) + 1
    assert vit._repr_html_().count("<h4>") < board._repr_html_().count("<h4>"), "no title of a table without rows"
    best = board.sort_values("mean").head(3)[["mean", "method"]]
    percent = f"{100 * best['mean'].iloc[0]:.1f}"
    assert percent in best._repr_html_() and best.copy()._repr_html_() == best._repr_html_()
    for own in (board.set_index("method")[["mean"]], board.groupby("method")[["mean"]].max(), vit.iloc[:0], board.T):
        assert "<table" in own._repr_html_() or own.empty
    assert board.attrs["units"]["mean"] == "fraction" and board.attrs["units"]["bytes"] == "bytes"
    assert "Shown in percent, in the frame fractions of 1: mean." in best._repr_html_()
    assert all(f">{name}</th>" in best._repr_html_() for name in best.columns)
    renamed = few.rename(columns={"mean": "score"}).assign(rank=1)
    assert "score" in renamed._repr_html_() and "rank" in renamed._repr_html_()


class Name(str):
    """A text of one's own."""


class Method(enum.Enum):
    MINE = "head_only"


def mapped(**changes):
    """A suite as people write it in a notebook."""
    train = OrderedDict(
        rounds=numpy.int64(2), max_steps=numpy.int32(1), optimizer={"name": "sgd", "lr": numpy.float32(0.5)}
    )
    suite = {
        Name("suite"): Name("mapped"),
        "defaults": {"backbone": "tiny", "data": "dots", "capacities": numpy.array([2, 1]), "train": train},
        "scenarios": MappingProxyType({"small": {}}),
        "seeds": range(2),
        "methods": ("head_only",),
    }
    return suite | changes


def test_a_mapping_may_have_the_types_of_a_notebook(tmp_path, own_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    r = fedbench.run(mapped(), rounds=1, plugins=TINY, results=tmp_path / "r", methods="head_only", seeds=1, quiet=True)
    assert r.cells["seed"].tolist() == [1] and [path.name for path in tmp_path.iterdir()] == ["r"]
    config = json.loads(json.dumps(r._results[0].manifest["config"]))
    assert config["capacities"] == {"by_client": [2, 1]} and config["train"]["optimizer"]["lr"] == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": [object()]}, "the mapping: methods.0: expected a number, a text, a list or a mapping, got object"),
        ({"methods": [Method.MINE]}, "the mapping: methods.0: expected a number"),
        ({"defaults": {"train": {"rounds": {1, 2}}}}, "the mapping: defaults.train.rounds: .* got set"),
        ({"suite": b"mapped"}, "the mapping: suite: .* got bytes"),
        ({"methods": ["nosuch"]}, "^the mapping:.*no method is called 'nosuch'"),
    ],
)
def test_what_is_wrong_in_a_mapping_is_named_by_its_key(tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        fedbench.run(mapped(**changes), plugins=[str(TINY)], results="r", quiet=True)
    assert not any(tmp_path.iterdir())


def test_a_mapping_that_contains_itself_is_refused():
    suite = mapped()
    suite["defaults"]["data"] = suite
    with pytest.raises(UserError, match="the mapping: defaults.data.defaults.data...: more than 40 levels"):
        fedbench.run(suite)


def test_paths_in_a_mapping_are_relative_to_the_current_folder(tmp_path, own_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"a{i} {k},{k}\n" for i in range(6) for k in "xy"))
    data = {"name": "text_table", "root": Path("t.csv")}
    defaults = {"backbone": "micro_bert", "data": data, "capacities": [2], "train": {"rounds": 1, "max_steps": 1}}
    with monkeypatch.context() as context:
        context.setattr(Path, "write_text", lambda *given: pytest.fail("the mapping was written"))
        r = fedbench.run(mapped(defaults=defaults, seeds=[0]), results=tmp_path / "r", quiet=True)
    assert r.cells["status"].tolist() == ["finished"]
