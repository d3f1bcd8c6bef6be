"""CachedFacts asks a plugin once, whatever else stands in the configurations that need them."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace

import pytest
from command import TINY

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts, _tree
from fedbench.registry.registry import Registry
from fedbench.simulation.batches import TokenIds
from fedbench_plugins.backbones.micro import WEIGHTS

DOTS = {"name": "dots", "per_class": 2, "normalize": "half", "partition": {"name": "dirichlet", "alpha": 0.1}}


@pytest.fixture
def facts(own_cache) -> CachedFacts:
    return CachedFacts(Registry([str(TINY)], in_place=True))


@pytest.fixture
def made(facts, monkeypatch) -> list[int]:
    """The image sizes of the data sets that are made."""
    sizes, make = [], facts.registry.make

    def counted(kind, ref, **given):
        sizes.append(given["image_size"])
        return make(kind, ref, **given)

    monkeypatch.setattr(facts.registry, "make", counted)
    return sizes


def test_data_set_is_read_once_however_it_is_dealt(facts, made):
    first = facts.dataset(DOTS, 8)
    for change in ({"partition": {"name": "iid"}}, {"normalize": "imagenet"}, {"image_size": 8}, {"image_size": None}):
        assert facts.dataset({**DOTS, **change}, 8) is first
    assert made == [8]


def test_other_size_or_option_is_another_data_set(facts, made):
    facts.dataset(DOTS, 8)
    assert facts.dataset({**DOTS, "image_size": 16}, 8) is facts.dataset(DOTS, 16)
    assert len(facts.dataset({**DOTS, "per_class": 3}, 8).load().train) == 12
    assert made == [8, 16, 8]


def test_domains_are_read_from_a_data_set_of_any_size(facts, made):
    facts.dataset(DOTS, 8)
    assert facts.domains({**DOTS, "partition": {"name": "iid"}}) == ("one", "two")
    assert made == [8]
    assert facts.domains({**DOTS, "per_class": 3}) == ("one", "two") == facts.domains({**DOTS, "per_class": 3})
    assert made == [8, 32]


def test_other_weights_in_the_same_folder_are_noticed_by_the_next_run(tmp_path):
    ref = {"name": "micro_vit", "pretrained": str(tmp_path), "weights_seed": 0}
    registry, told = Registry(), []
    for shipped in ("micro_vit-seed0", "micro_vit-seed1"):
        shutil.copy(WEIGHTS / f"{shipped}.safetensors", tmp_path / "micro_vit-seed0.safetensors")
        told.append(CachedFacts(registry).backbone(ref)["fingerprint"])
    assert told[0] != told[1]


def test_texts_are_tokenized_once_for_all_plans_and_never_for_shapes(facts, monkeypatch):
    data = {"name": "phrases6", "classes": 10, "train_per_class": 2, "test_per_class": 1, "max_length": 16}
    config = {"data": data, "backbone": {"name": "micro_bert"}}
    source, asked = facts.source, []

    def counted(ref):
        found = source(ref)

        def tokenizer(texts, most):
            asked.append(len(texts))
            return found.tokenizer(texts, most)

        return replace(found, tokenizer=tokenizer)

    monkeypatch.setattr(facts, "source", counted)
    for _ in range(2):
        splits = facts.outline(config).load()
        assert asked == [len(splits.train), len(splits.test)]
    whole = TokenIds(facts.dataset(data, 16).load().train, source({"name": "micro_bert"}).tokenizer, 16, "cpu")
    assert TokenIds(splits.train, None, 16, "meta").size == whole.size <= 16


def replaced(path, content: bytes) -> None:
    """As `rsync -t` and tar do: another content of equal size and date."""
    date = path.stat().st_mtime_ns if path.exists() else 10**18
    time.sleep(0.02)  # some file systems count their changes in ticks
    path.write_bytes(content)
    os.utime(path, ns=(date, date))


def counted_asks(monkeypatch, registry) -> list[dict]:
    """The references of the backbones that the plugin is asked for."""
    asked, make = [], registry.make

    def made(kind, ref, **given):
        asked.append(ref)
        return make(kind, {"name": "micro_vit"}, **given)

    monkeypatch.setattr(registry, "make", made)
    return asked


@pytest.mark.parametrize("option", ["model", "pretrained", "any"])
@pytest.mark.parametrize("how", ["file", "folder", "nested", "relative", "in a list"])
def test_weights_of_equal_size_and_date_are_asked_for_again(own_cache, tmp_path, monkeypatch, option, how):
    registry = Registry(in_place=True)
    asked, file = counted_asks(monkeypatch, registry), tmp_path / "model" / "deep" / "weights.bin"
    file.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    path = {"file": str(file), "folder": str(file.parent), "nested": str(tmp_path / "model")}.get(how, "./model")
    ref = {"name": "micro_vit", option: [path] if how == "in a list" else path}
    for content, times in ((b"one", 1), (b"one", 1), (b"two", 2)):
        if times > len(asked):
            replaced(file, content)
        for _ in range(2):
            CachedFacts(registry).backbone(ref)
        assert len(asked) == times


def test_a_relative_name_is_another_model_in_another_folder(own_cache, tmp_path, monkeypatch):
    registry = Registry(in_place=True)
    asked = counted_asks(monkeypatch, registry)
    for project in ("a", "b", "a"):
        (tmp_path / project).mkdir(exist_ok=True)
        if not (tmp_path / project / "model").exists():
            replaced(tmp_path / project / "model", b"same")
        monkeypatch.chdir(tmp_path / project)
        CachedFacts(registry).backbone({"name": "micro_vit", "model": "model"})
    assert len(asked) == 2


def test_a_changed_file_is_noticed_by_those_who_have_asked_before(own_cache, tmp_path, monkeypatch):
    registry = Registry(in_place=True)
    facts, asked, file = CachedFacts(registry), counted_asks(monkeypatch, registry), tmp_path / "weights"
    for content in (b"one", b"two"):
        replaced(file, content)
        facts.source({"name": "micro_vit", "model": str(file)})
    assert len(asked) == 2


@pytest.mark.parametrize("option", ["x" * 5000, "nul \0", "\ud800", "", "~nobody/x", 3, None, {"a": ["b", {"c": 1.5}]}])
def test_options_that_name_no_file_are_no_fault(own_cache, monkeypatch, option):
    registry = Registry(in_place=True)
    asked = counted_asks(monkeypatch, registry)
    for _ in range(2):
        CachedFacts(registry).backbone({"name": "micro_vit", "any": option})
    assert len(asked) == 1


def test_another_commit_of_a_model_of_the_hub_is_another_model(own_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    registry = Registry(in_place=True)
    asked, main = counted_asks(monkeypatch, registry), tmp_path / "models--some--model" / "refs" / "main"
    main.parent.mkdir(parents=True)
    for commit in (b"1" * 40, b"2" * 40):
        replaced(main, commit)
        CachedFacts(registry).backbone({"name": "micro_vit", "model": "some/model"})
    assert len(asked) == 2


def test_a_plugin_s_module_of_equal_size_and_date_is_read_again(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    replaced(package / "__init__.py", b"A = 1")
    before = _tree(str(package / "__init__.py"))
    replaced(package / "__init__.py", b"A = 2")
    assert _tree(str(package / "__init__.py")) != before


@pytest.mark.parametrize("ids", [[], [1] * 9])
def test_a_tokenizer_that_breaks_its_promise_is_named(facts, monkeypatch, ids):
    data = {"name": "phrases6", "classes": 10, "train_per_class": 2, "test_per_class": 1, "max_length": 8}
    source = facts.source
    monkeypatch.setattr(facts, "source", lambda ref: replace(source(ref), tokenizer=lambda texts, most: [ids]))
    message = f"data.max_length 8: the backbone's tokenizer gives {len(ids)} ids of a text; it must give 1 to 8"
    with pytest.raises(UserError, match=message):
        facts.outline({"data": data, "backbone": {"name": "micro_bert"}})
    with pytest.raises(UserError, match=message):
        TokenIds(facts.dataset(data, 8).load().train, lambda texts, most: [ids], 8, "cpu")


@pytest.mark.parametrize("most", [1, 2])
def test_a_plan_refuses_a_length_that_leaves_nothing_of_a_text(facts, most):
    data = {"name": "phrases6", "classes": 10, "train_per_class": 2, "test_per_class": 1, "max_length": most}
    with pytest.raises(UserError, match=f"data.max_length {most}: this backbone puts 2 special tokens around a text"):
        facts.outline({"data": data, "backbone": {"name": "micro_bert"}})
