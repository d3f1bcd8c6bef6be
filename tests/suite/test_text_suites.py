"""The suites of texts load, and differ from those of images in what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts

from fedbench.registry.registry import Registry
from fedbench.suite import load

SUITES = Path(__file__).parents[2] / "suites"


class OfMiniLM(KnownFacts):
    def num_layers(self, backbone):
        return 6

    def domains(self, data):
        return ("tweets", "film", "products", "editorials")


@pytest.fixture(scope="module")
def real():
    """The catalogue of what is installed."""
    return Registry().catalogue


def test_text_quickstart_is_quickstart_with_texts(real, facts):
    texts, images = (load(SUITES / f"{name}.yaml", real, facts=facts) for name in ("text_quickstart", "quickstart"))
    assert (SUITES / "text_quickstart.yaml").read_text().startswith("# fedbench run suites/text_quickstart.yaml\n")
    assert list(texts.methods) == list(images.methods)
    for one, other in zip(texts.points(), images.points(), strict=True):
        assert (one.backbone, one.dataset) == ("micro_bert", "phrases6")
        same = {"backbone": 0, "data": 0, "train": {**one.config["train"], "rounds": 12}}  # texts take longer, 6 do
        same |= {"evaluation": {**one.config["evaluation"], "every": 1}}
        assert {**one.config, **same} == {**other.config, **same, "train": other.config["train"]}


def test_text_domains_limits_layers_and_ranks(real):
    found = load(SUITES / "text_domains.yaml", real, facts=OfMiniLM())
    cells = found.points()
    assert len(cells) == 2 * len(found.methods) * 3
    assert {"fedra", "inclusivefl", "depthfl", "hetlora", "pooled", "exclusive", "local_only"} <= set(found.methods)
    assert {(cell.backbone, cell.dataset) for cell in cells} == {("minilm_l6", "vader_domains")}
    config = cells[0].config
    assert len(config["capacities"]["by_client"]) == len(config["ranks"]["by_client"]) == 24
    assert config["data"]["max_length"] == 64 and config["participation"] == {"per_domain": 1}
