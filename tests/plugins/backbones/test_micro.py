"""The micro backbones: what is shipped is what PROVENANCE.md says, loads, works, and can be made again."""

import hashlib
import json
import re

import micro_pretrain
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open

from fedbench.errors import UserError
from fedbench_plugins.backbones import micro

FILES = sorted(micro.WEIGHTS.glob("*.safetensors"))
SHIPPED = [file for file in FILES if not {"micro_bert", "micro_llama"} & {file.name.partition("-")[0]}]
BUILD = {"micro_vit": micro.micro_vit, "micro_mixer": micro.micro_mixer}


def name_and_seed(file):
    name, _, seed = file.stem.partition("-seed")
    return name, int(seed)


def test_provenance_lists_every_file_with_its_hash():
    text = (micro.WEIGHTS / "PROVENANCE.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\| `(micro_\S+\.safetensors)` .*?`([0-9a-f]{64})`", text))
    assert listed == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in FILES}
    assert {"micro_vit-seed0.safetensors", "micro_mixer-seed0.safetensors"} <= set(listed)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_header_says_where_the_weights_come_from(file):
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["provenance"])
        assert {opened.get_tensor(key).dtype for key in opened.keys()} == {torch.float16}  # noqa: SIM118
    assert (facts["arch"], facts["seed"]) == name_and_seed(file)
    assert (facts["script"], facts["steps"]) == (micro_pretrain.SCRIPT, micro_pretrain.STEPS)
    assert facts["upstream_accuracy"] > 0.9


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_weights_load_and_tell_upstream_classes_apart(file):
    name, seed = name_and_seed(file)
    model = BUILD[name](weights_seed=seed).eval()
    assert len(model.blocks) == 12 and all(p.dtype == torch.float32 for p in model.parameters())
    label = np.repeat(np.arange(10), 12)
    images, _ = micro_pretrain.upstream_images(label, 0.0, np.random.default_rng(5))
    with torch.no_grad():
        z = torch.nn.functional.normalize(model(micro_pretrain.as_input(images)), dim=1).numpy()
    centre = np.stack([z[label == k][:6].mean(0) for k in range(10)])
    held_out = np.arange(len(label)) % 12 >= 6
    found = (z[held_out] @ centre.T).argmax(1)
    assert (found == label[held_out]).mean() > 0.9


def test_random_weights_follow_the_seed_and_leave_torch_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    a, b, c = (micro.micro_vit(pretrained=False, weights_seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(a.blocks[0].attn.qkv.weight, b.blocks[0].attn.qkv.weight)
    assert not torch.equal(a.blocks[0].attn.qkv.weight, c.blocks[0].attn.qkv.weight)


def test_missing_or_foreign_weights_are_told(tmp_path):
    with pytest.raises(UserError, match="weights_seed can be 0"):
        micro.micro_vit(weights_seed=99)
    with pytest.raises(UserError, match="no weights at"):
        micro.micro_vit(pretrained=str(tmp_path / "none.safetensors"))
    with pytest.raises(UserError, match="does not hold weights of this model"):
        micro.micro_mixer(pretrained=str(micro.WEIGHTS / "micro_vit-seed0.safetensors"))


def test_sources_differ_by_weights():
    sources = [micro.make_vit(), micro.make_vit(pretrained=False), micro.make_mixer()]
    assert len({source.fingerprint for source in sources}) == 3
    assert all(source.image_size == 32 and source.mean == source.std == (0.5, 0.5, 0.5) for source in sources)


@pytest.mark.parametrize("arch", ["vit", pytest.param("mixer", marks=pytest.mark.slow)])
def test_a_step_of_pretraining_gives_the_same_file_twice(arch, tmp_path, monkeypatch):
    monkeypatch.setattr(micro_pretrain, "accuracy", lambda model, seed: 0.5)
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    try:
        for file in files:
            arguments = ["--arch", arch, "--steps", "1", "--date", "2026-11-21", "--out", str(file)]
            CliRunner().invoke(micro_pretrain.main, arguments, catch_exceptions=False)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert BUILD[f"micro_{arch}"](pretrained=str(files[0])).num_features == 64


def test_easy_images_are_plain_and_fade_out_by_steps():
    label = np.arange(40)
    easy, _ = micro_pretrain.upstream_images(label, 1.0, np.random.default_rng(0))
    assert (easy[:, 0] == easy[:, 1]).all() and (easy.max(axis=(1, 2, 3)) == 255).all()
    assert (easy.min(axis=(1, 2, 3)) == 0).all()
    rates = [micro_pretrain.learning_rate(step, 1300, 100) for step in (0, 99, 100, 1299)]
    assert rates[:3] == pytest.approx([1.5e-5, 1.5e-3, 1.5e-3]) and 0 < rates[3] < 1e-7
