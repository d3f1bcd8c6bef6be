"""Assets ask a plugin once, whatever else stands in the configurations that need them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from command import TINY

from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.simulation.batches import TokenIds
from fedbench_plugins.backbones.micro import WEIGHTS

DOTS = {"name": "dots", "per_class": 2, "normalize": "half", "partition": {"name": "dirichlet", "alpha": 0.1}}


@pytest.fixture
def assets(own_cache) -> Assets:
    return Assets(Registry([str(TINY)], in_place=True))


@pytest.fixture
def made(assets, monkeypatch) -> list[int]:
    """The image sizes of the data sets that are made."""
    sizes, make = [], assets.registry.make

    def counted(kind, ref, **given):
        sizes.append(given["image_size"])
        return make(kind, ref, **given)

    monkeypatch.setattr(assets.registry, "make", counted)
    return sizes


def test_data_set_is_read_once_however_it_is_dealt(assets, made):
    first = assets.dataset(DOTS, 8)
    for change in ({"partition": {"name": "iid"}}, {"normalize": "imagenet"}, {"image_size": 8}, {"image_size": None}):
        assert assets.dataset({**DOTS, **change}, 8) is first
    assert made == [8]


def test_other_size_or_option_is_another_data_set(assets, made):
    assets.dataset(DOTS, 8)
    assert assets.dataset({**DOTS, "image_size": 16}, 8) is assets.dataset(DOTS, 16)
    assert len(assets.dataset({**DOTS, "per_class": 3}, 8).load().train) == 12
    assert made == [8, 16, 8]


def test_domains_are_read_from_a_data_set_of_any_size(assets, made):
    assets.dataset(DOTS, 8)
    assert assets.domains({**DOTS, "partition": {"name": "iid"}}) == ("one", "two")
    assert made == [8]
    assert assets.domains({**DOTS, "per_class": 3}) == ("one", "two") == assets.domains({**DOTS, "per_class": 3})
    assert made == [8, 32]


def test_other_weights_in_the_same_folder_are_noticed_by_the_next_run(tmp_path):
    ref = {"name": "micro_vit", "pretrained": str(tmp_path), "weights_seed": 0}
    registry, told = Registry(), []
    for shipped in ("micro_vit-seed0", "micro_vit-seed1"):
        shutil.copy(WEIGHTS / f"{shipped}.safetensors", tmp_path / "micro_vit-seed0.safetensors")
        told.append(Assets(registry).backbone(ref)["fingerprint"])
    assert told[0] != told[1]


def test_texts_are_tokenized_once_for_all_plans_and_never_for_shapes(assets, monkeypatch):
    data = {"name": "phrases6", "classes": 10, "train_per_class": 2, "test_per_class": 1, "max_length": 16}
    config = {"data": data, "backbone": {"name": "micro_bert"}}
    source, asked = assets.source, []

    def counted(ref):
        found = source(ref)

        def tokenizer(texts, most):
            asked.append(len(texts))
            return found.tokenizer(texts, most)

        return replace(found, tokenizer=tokenizer)

    monkeypatch.setattr(assets, "source", counted)
    for _ in range(2):
        splits = assets.outline(config).load()
        assert asked == [len(splits.train), len(splits.test)]
    whole = TokenIds(assets.dataset(data, 16).load().train, source({"name": "micro_bert"}).tokenizer, 16, "cpu")
    assert TokenIds(splits.train, None, 16, "meta").size == whole.size <= 16
