"""`resize`: what the profile `reference` sets of photographs, and what it leaves alone."""

from __future__ import annotations

import layouts
import numpy as np
import pytest

from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.runner.cells import identity
from fedbench.suite import load

SUITE = """suite: s
defaults: {{backbone: micro_vit, data: {{name: {name}{options}, image_size: 8}}}}
scenarios: {{one: {{}}}}
methods: [fedra]
"""


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / "data"))
    layouts.domainnet(tmp_path / "data" / "domainnet")
    layouts.nicopp(tmp_path / "data" / "nicopp")


@pytest.fixture
def config_of(tmp_path):
    """config_of(name, options, **of load) -> the configuration of the only point."""

    def resolve(name, options="", **given):
        file = tmp_path / "s.yaml"
        file.write_text(SUITE.format(name=name, options=options))
        return load(file, Registry().catalogue, **given).points()[0].config

    return resolve


FOLDER = ", root: data/domainnet, domains: [clipart, sketch]"


@pytest.mark.parametrize(("name", "options"), [("nicopp", ""), ("image_folder", FOLDER)])
def test_reference_resizes_photographs_as_the_released_code_and_paper_configurations_do_not_change(
    config_of, name, options, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    paper, reference = (config_of(name, options, profile=profile) for profile in ("paper", "reference"))
    assert "resize" not in paper["data"] and reference["data"]["resize"] == "reference"
    assert config_of(name, f"{options}, resize: antialiased") == paper
    own = config_of(name, f"{options}, resize: antialiased", profile="reference")
    assert "resize" not in own["data"]
    facts = CachedFacts(Registry())
    prints = [facts.fingerprints(config)["data"] for config in (paper, own, reference)]
    assert prints[0] == prints[1] != prints[2]
    assert len({identity(own, {"data": p}, {}) for p in prints}) == 2
    kinds = [facts.dataset(config["data"], 8).load().train.x.dtype for config in (paper, reference)]
    assert kinds == [np.uint8, np.float32]


@pytest.mark.parametrize("name", ["strokes6", "digits", "cifar10", "tiny_imagenet"])
def test_other_data_sets_stay_as_they_are_under_reference(config_of, name):
    assert "resize" not in config_of(name, profile="reference")["data"]


def test_it_can_be_asked_for_under_paper(config_of):
    assert config_of("nicopp", ", resize: reference")["data"]["resize"] == "reference"
