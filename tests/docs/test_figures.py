"""The figures of README.md and the pages: committed, shown, and drawn from the reference results and the program."""

from __future__ import annotations

import re

import pytest
from pages import PAGES, ROOT, prose

pytest.importorskip("matplotlib")
from sitemaking import diagrams, figures, quoted

DRAWN = [*figures.FIGURES, *diagrams.DIAGRAMS, "report"]


def test_every_figure_that_is_made_is_committed_shown_and_small():
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert len(set(DRAWN)) >= 10
    for name in DRAWN:
        file = ROOT / f"docs/{name}.png"
        assert file.is_file() and file.stat().st_size <= 300_000, name
        assert f"{name}.png)" in pages, name


def test_every_picture_has_a_text_for_those_who_cannot_see_it():
    for page in PAGES:
        for alt in re.findall(r"!\[([^\]]*)\]\(", prose(page)):
            assert len(alt.split()) >= 5, (page.name, alt)


def test_the_architecture_names_files_as_they_are():
    page = prose(ROOT / "docs/architecture.md")
    named = {file for file, _ in diagrams.STEPS} | set(re.findall(r"`([a-z_/]+(?:\.py|/))[`:]", page))
    assert not [file for file in named if not (ROOT / "fedbench" / file).exists() and not (ROOT / file).exists()]


def test_differences_have_the_sign_of_their_pair_and_every_scenario():
    frame = figures.differences([("fedra", "depthfl"), ("depthfl", "fedra")])
    assert len(frame) == 2 * len(figures.SCENARIOS) * len(figures.BACKBONES)
    sums = frame.groupby(["scenario", "backbone"])[["difference", "low", "high"]].sum()
    assert (sums.difference.abs() < 1e-9).all() and ((sums.low + sums.high).abs() < 1e-9).all()
    assert ((frame.low < frame.difference) & (frame.difference < frame.high)).all()


def test_the_answers_on_prefixes_are_what_the_figure_shows():
    frame = figures.differences([("fedra", "inclusivefl"), ("fedra", "depthfl")])
    vit, mixer = frame[frame.backbone == "micro_vit"], frame[frame.backbone == "micro_mixer"]
    skewed = (mixer.high > 0) & (mixer.difference < 0)  # DepthFL with skewed labels
    assert skewed.sum() == 1 and (mixer.verdict[skewed] == "inconclusive").all()
    assert (mixer.high[~skewed] < 0).all() and mixer.verdict[~skewed].isin(["better", "worse"]).all()
    dynamic = vit.scenario == "depths change every round"
    assert (vit[~dynamic].low > 0).all() and vit[~dynamic].verdict.isin(["better", "worse"]).all()
    assert (vit[dynamic].verdict == "inconclusive").all()


def test_every_method_has_a_family_with_a_colour():
    families = figures.families()
    assert set(families.values()) == set(figures.COLOURS)
    assert families["fedra"] == "Depth" and families["head_only"] == "Bound or control"
    for family, (_, methods) in quoted.families().items():
        assert {one.family for one in methods} == {"" if family == "Bounds and controls" else family}


def test_a_figure_is_drawn():
    assert len(figures.FIGURES["prefixes"]().axes) == 2


@pytest.mark.parametrize("name", ["round", "layers", "architecture"])
def test_a_diagram_is_drawn(name):
    assert diagrams.DIAGRAMS[name]().axes
