"""The figures of README.md and docs/findings.md: what they draw is in the reference results."""

from __future__ import annotations

import pytest
from pages import ROOT

pytest.importorskip("matplotlib")
from sitemaking import figures


def test_every_figure_that_is_made_is_committed_and_shown():
    pages = "".join(
        (ROOT / page).read_text("utf-8") for page in ("README.md", "docs/findings.md", "docs/leaderboard.md")
    )
    for name in figures.FIGURES:
        assert (ROOT / f"docs/{name}.png").is_file()
        assert f"{name}.png)" in pages


def test_differences_have_the_sign_of_their_pair_and_every_scenario():
    frame = figures.differences([("fedra", "depthfl"), ("depthfl", "fedra")])
    assert len(frame) == 2 * len(figures.SCENARIOS) * len(figures.BACKBONES)
    sums = frame.groupby(["scenario", "backbone"])[["difference", "low", "high"]].sum()
    assert (sums.difference.abs() < 1e-9).all() and ((sums.low + sums.high).abs() < 1e-9).all()
    assert ((frame.low < frame.difference) & (frame.difference < frame.high)).all()


def test_the_answers_on_prefixes_are_what_the_figure_shows():
    frame = figures.differences([("fedra", "inclusivefl"), ("fedra", "depthfl")])
    vit, mixer = frame[frame.backbone == "micro_vit"], frame[frame.backbone == "micro_mixer"]
    assert (mixer.high < 0).all() and mixer.verdict.isin(["better", "worse"]).all()
    dynamic = vit.scenario == "depths change every round"
    assert (vit[~dynamic].low > 0).all() and vit[~dynamic].verdict.isin(["better", "worse"]).all()
    assert (vit[dynamic].verdict == "inconclusive").all()


def test_every_method_has_a_family_with_a_colour():
    families = figures.families()
    assert set(families.values()) == set(figures.COLOURS)
    assert families["fedra"] == "Depth" and families["head_only"] == "Bound or control"


def test_a_figure_is_drawn():
    assert len(figures.FIGURES["prefixes"]().axes) == 2
