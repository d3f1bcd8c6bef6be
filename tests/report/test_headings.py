"""What leaderboards are called: nothing twice, what all share once and above, each by what sets it apart."""

from __future__ import annotations

from command import fedbench
from factories import eval_rows, write_cell

from fedbench.report.grouping import Place, distinct, headings

VIT = Place("skew", "skew", "backbone=micro_vit; rotate=true", "micro_vit", "strokes6", "paper")
ROWS = eval_rows({3: {"a": 0.5, "b": 0.6}})


def test_a_single_heading_says_everything_once():
    assert headings([VIT]).titles == ["skew · rotate=true · micro_vit on strokes6 · paper profile"]
    assert headings([VIT]).shared == "" and distinct([VIT]) == ["skew"]


def test_of_several_each_says_what_sets_it_distinct():
    mixer = VIT._replace(variant="backbone=micro_mixer; rotate=true", backbone="micro_mixer")
    told = headings([VIT, mixer])
    assert told.shared == "skew · rotate=true · strokes6 · paper profile"
    assert told.titles == ["micro_vit", "micro_mixer"] == distinct([VIT, mixer])


def test_options_of_a_backbone_and_an_overlays_name_stay():
    other = VIT._replace(variant="backbone=micro_vit(weights_seed=1); rotate=true")
    digits = VIT._replace(variant="data=digits; rotate=true; backbone=micro_vit", dataset="digits")
    embedded = VIT._replace(variant="data=embedded; rotate=true")
    assert headings([VIT, other, digits, embedded]).titles == [
        "micro_vit on strokes6",
        "micro_vit(weights_seed=1) on strokes6",
        "micro_vit on digits",
        "data=embedded · micro_vit on strokes6",
    ]


def test_a_heading_is_never_empty_and_none_is_that_of_another():
    plain = VIT._replace(variant="")
    lower = VIT._replace(variant="train.rounds=3")
    assert headings([plain, lower]).titles == ["skew", "train.rounds=3"]
    turned = [VIT._replace(variant="a=1; b=2"), VIT._replace(variant="b=2; a=1")]
    assert headings(turned).titles == ["a=1; b=2", "b=2; a=1"]


def test_what_is_shared_stands_above_all_in_every_format(tmp_path):
    for name in ("micro_vit", "micro_mixer"):
        write_cell(tmp_path / "s", "fedra", variant=f"backbone={name}", backbone={"name": name}, evaluation=ROWS)
    printed = fedbench("compare", "boards", "s", cwd=tmp_path).output
    assert printed.startswith("s · mixed · strokes6 · paper profile\n\nmicro_vit\n") and "\nmicro_mixer\n" in printed
    markdown = fedbench("compare", "s", "--format", "markdown", cwd=tmp_path).output
    assert markdown.startswith("## s · mixed · strokes6 · paper profile\n\n### micro\\_vit\n")
    latex = fedbench("compare", "s", "--format", "latex", cwd=tmp_path).output
    assert r"\caption{s $\cdot$ mixed $\cdot$ strokes6 $\cdot$ paper profile; micro\_vit;" in latex
    pages = [line for line in fedbench("compare", "costs", "s", cwd=tmp_path).output.splitlines() if "micro" in line]
    assert pages == ["micro_vit", "micro_mixer"]
