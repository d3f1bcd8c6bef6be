"""What fails for certain is told by `plan`: all at once, each with its place, and exit code 2."""

from __future__ import annotations

from command import TINY, fedbench, write_suite

SUITE = """\
suite: certain
defaults:
  backbone: micro_vit
  data: {name: strokes6, classes: 3, train_per_class: 4, test_per_class: 2}
  train: {rounds: 1, batch_size: 4, max_steps: 1}
  capacities: [12, 6, 3, 4, 5, 6]
scenarios:
  a: {}
  b: {adapter: {rank: 100000}}
  c: {adapter: {targets: [attn.prj]}}
  d: {data: {partition: {name: pathological, classes_per_client: 99, clients_per_domain: 1}}}
methods:
  - {name: mixed, extends: fedra, aggregator: momentum_distillation}
  - {name: deep, extends: allsmall, depth: 13}
"""


def lines(tmp_path, *words) -> list[str]:
    (tmp_path / "s.yaml").write_text(SUITE)
    done = fedbench("plan", "s.yaml", *words, cwd=tmp_path, columns=400)
    assert done.exit_code == 2
    return [line for line in done.output.splitlines() if not line.startswith("Planning")]


def test_what_cannot_be_built_is_told_of_all_cells_at_once(tmp_path):
    told = lines(tmp_path)
    assert [line.removeprefix("Error: ").partition(": ")[0] for line in told] == [
        "s.yaml:9:23",
        "s.yaml:10:26",
        "s.yaml:11:66",
        "s.yaml:13:47",
        "s.yaml:14:44",
    ]
    for line, words in zip(
        told,
        ("rank 100,000 is above 64", "did you mean 'attn.proj'?", "classes_per_client 99", "allocation prefix", "12"),
        strict=True,
    ):
        assert words in line


def test_an_image_size_that_the_backbone_does_not_take(tmp_path):
    (told,) = lines(tmp_path, "--scenario", "a", "--set", "data.image_size=33")
    assert "--set data.image_size=33: data.image_size 33: micro_vit takes images of 32 pixels a side" in told


UNBUILT = """
from fedbench import hookimpl

def one():
    return lambda state: state

@hookimpl
def fedbench_register_aggregators(register):
    register("one", one)
"""


def test_a_suite_of_which_nothing_can_be_built_is_no_plan(tmp_path):
    (tmp_path / "mine.py").write_text(UNBUILT)
    write_suite(tmp_path, "{name: x, extends: fedra, aggregator: one}")
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, "--plugin", "mine.py", cwd=tmp_path)
    assert done.exit_code == 2 and "TFLOPs" not in done.output
    assert "tiny.yaml:10:30: " in done.stderr and "mine.py" in done.stderr
    assert "a function of (state, uploads, plan, cohort)" in done.stderr


TORN = """
from fedbench import hookimpl
from fedbench.types import Dataset


def load(image_size: int = 8):
    def read():
        raise RuntimeError("the file is torn")

    return Dataset(("one", "two"), ("a", "b"), "torn", read)


@hookimpl
def fedbench_register_datasets(register):
    register("torn", load)
"""


def test_one_fault_of_data_is_told_once_for_all_methods(tmp_path):
    (tmp_path / "mine.py").write_text(TORN)
    write_suite(tmp_path, "fedra, allsmall, alllarge, depthfl, head_only", {"data: dots": "data: torn"})
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, "--plugin", "mine.py", cwd=tmp_path, columns=400)
    assert done.exit_code == 2 and done.stderr.count("the file is torn") == 1
    assert "the same at tiny.yaml:10:18, tiny.yaml:10:28, tiny.yaml:10:38 and 1 more" in done.stderr
