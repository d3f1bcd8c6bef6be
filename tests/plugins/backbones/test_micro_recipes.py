"""Recipes of pre-training: what each changes, that nothing of it is left in the model, and what is noted."""

import json
import re
from pathlib import Path

import micro_pretrain
import micro_recipes
import pytest
import torch
from click.testing import CliRunner
from micro_recipes import RECIPES, Recipe, Scaled
from safetensors import safe_open
from torch import nn

from fedbench.errors import DataMissing
from fedbench_plugins.backbones import micro

ARCHS = ("vit", "mixer")
PAGE = Path(__file__).parents[3] / "results/reference/skippable/README.md"
BUILD = {"vit": micro.micro_vit, "mixer": micro.micro_mixer}


@pytest.fixture(autouse=True)
def as_it_was():
    """Pre-training sets torch's thread count and its choice of algorithms."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict)


def trained(arch, recipe):
    return micro_pretrain.pretrain(arch, 0, recipe, steps=1, batch=2, say=lambda line: None).backbone


@pytest.mark.parametrize("arch", ARCHS)
def test_folded_layer_scale_is_the_same_function_in_the_plain_shapes(arch):
    scaled = micro_recipes.prepared(micro.architecture(f"micro_{arch}"), Recipe(layer_scale=0.1)).eval()
    gammas = [module for module in scaled.modules() if isinstance(module, Scaled)]
    assert len(gammas) == 24 and all((one.gamma == 0.1).all() for one in gammas)
    for one in gammas:
        nn.init.uniform_(one.gamma, 0.2, 2.0)
        nn.init.normal_(one.linear.bias)
    x = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        unfolded = scaled(x)
        plain = micro.architecture(f"micro_{arch}").eval()
        plain.load_state_dict(micro_recipes.fold(scaled).state_dict())  # strictly: the very names and shapes
        folded = plain(x)
    assert unfolded.abs().max() > 0.1
    torch.testing.assert_close(folded, unfolded, rtol=0, atol=1e-6 * float(unfolded.abs().max()))


@pytest.mark.parametrize("arch", ARCHS)
def test_stochastic_depth_rises_linearly_in_every_branch_and_is_not_there_when_tested(arch):
    torch.manual_seed(0)
    model = micro_recipes.prepared(micro.architecture(f"micro_{arch}"), Recipe(drop_path=0.5))
    parts = ("drop_path1", "drop_path2") if arch == "vit" else ("drop_path",)
    for part in parts:
        rates = [getattr(block, part).drop_prob for block in model.blocks]
        assert rates == pytest.approx([0.5 * j / 11 for j in range(12)])
    plain = micro.architecture(f"micro_{arch}").eval()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(plain(x), model.eval()(x))
    assert not torch.equal(plain(x), model.train()(x))


@pytest.mark.parametrize("arch", ["vit", pytest.param("mixer", marks=pytest.mark.slow)])
def test_every_recipe_gives_other_weights_from_the_same_images_and_start(arch):
    made = {name: trained(arch, recipe) for name, recipe in RECIPES.items() if name != "longer"}
    again = trained(arch, RECIPES["prefix_exits"])
    assert all(torch.equal(again.state_dict()[key], value) for key, value in made["prefix_exits"].state_dict().items())
    names = set(micro.architecture(f"micro_{arch}").state_dict())
    assert all(set(model.state_dict()) == names for model in made.values())
    key = "blocks.6.attn.proj.weight" if arch == "vit" else "blocks.6.mlp_channels.fc2.weight"
    weights = {name: model.state_dict()[key] for name, model in made.items()}
    assert len({weight.numpy().tobytes() for weight in weights.values()}) == len(made)


def test_a_prefix_exit_reads_what_the_first_blocks_gave():
    model = micro.architecture("micro_vit").eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad(), micro_recipes.after_block(model, 3) as seen:
        model(x)
        expected = model.blocks[:3](model.norm_pre(model._pos_embed(model.patch_embed(x))))
    assert len(seen) == 2 and torch.equal(seen[0], expected)  # the second is that of the blocks called here
    model(x)
    assert len(seen) == 2


def run(*arguments):
    return CliRunner().invoke(micro_pretrain.main, list(arguments), catch_exceptions=False)


def test_into_a_folder_goes_a_file_that_says_its_recipe_and_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(micro_pretrain, "accuracy", lambda model, seed: 0.5)
    monkeypatch.setattr(micro_pretrain, "BATCH", 2)
    asked = ("--recipe", "longer", "--seed", "3", "--steps", "1", "--into", str(tmp_path))
    run(*asked)
    file = tmp_path / "longer/micro_vit-seed3.safetensors"
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["provenance"])
    assert (facts["recipe"], facts["longer"], facts["steps"], facts["seed"]) == ("longer", 3, 3, 3)
    assert (facts["arch"], facts["weight_decay"]) == ("micro_vit", 0.05)
    assert facts["script_sha256"] == micro_pretrain.script_hash() and len(facts["script_sha256"]) == 64
    written = file.stat().st_mtime_ns
    assert "is there already" in run(*asked).output and file.stat().st_mtime_ns == written
    by_file, by_folder = micro.micro_vit(str(file)), micro.micro_vit(str(file.parent), weights_seed=3)
    assert torch.equal(by_file.pos_embed, by_folder.pos_embed)
    with pytest.raises(DataMissing, match="no weights at .*longer/micro_vit-seed4.safetensors; "):
        micro.micro_vit(str(file.parent), weights_seed=4)


def test_what_is_asked_for_must_be_one_thing():
    assert "one of the two" in run("--arch", "vit").output
    assert "needs --recipe" in run("--into", "somewhere").output


def test_of_many_weights_in_a_missing_folder_one_message_tells(tmp_path):
    told = set()
    for recipe in RECIPES:
        with pytest.raises(DataMissing) as error:
            micro.make_vit(str(tmp_path / "weights" / recipe), load=False)
        told.add(str(error.value))
    assert len(told) == 1 and "micro_pretrain.py" in told.pop()


def test_the_page_has_every_recipe_and_makes_every_one():
    page = PAGE.read_text(encoding="utf-8")
    told = page.split("\n## Recipes\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\S+)` \|", told, flags=re.MULTILINE) == list(RECIPES)
    assert f"for recipe in {' '.join(RECIPES)}; do" in page
