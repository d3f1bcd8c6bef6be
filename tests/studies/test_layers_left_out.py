"""The probe with layers left out: the sets that are drawn, the features, the scores, and the table they go to."""

import json
from itertools import combinations

import layers_left_out as tool
import pytest
import torch
from safetensors.torch import save_file

from fedbench.errors import UserError
from fedbench.models.backbone import Blocks
from fedbench_plugins.backbones import micro
from fedbench_plugins.datasets import strokes6


@pytest.fixture(scope="module")
def dataset(own_cache):
    return strokes6.make(32, classes=2, train_per_class=4, test_per_class=2)


@pytest.fixture
def weights(tmp_path):
    file = tmp_path / "some.safetensors"
    facts = {"arch": "micro_vit", "recipe": "layer_scale", "seed": 5}
    tensors = {name: tensor.contiguous() for name, tensor in micro.micro_vit(False).state_dict().items()}
    save_file(tensors, file, metadata={"provenance": json.dumps(facts)})
    return file


def test_sets_are_distinct_seeded_and_all_there_where_they_are_few():
    drawn = list(tool.draws(5, 8, 10, seed=1))
    assert drawn == list(tool.draws(5, 8, 10, seed=1)) != list(tool.draws(5, 8, 10, seed=2))
    for k, count in {1: 5, 2: 10, 3: 10, 4: 5}.items():
        of_k = [out for depth, way, _, out in drawn if (depth, way) == (k, "random")]
        assert sorted(of_k) == sorted(combinations(range(5), k)) and len(of_k) == count
    assert [out for _, way, _, out in drawn if way == "last"] == [(4,), (3, 4), (2, 3, 4), (1, 2, 3, 4)]
    assert drawn[0] == (0, "none", 0, ())
    assert len(list(tool.draws(12, 8, 10, seed=0))) == 1 + 8 * 11


@pytest.mark.parametrize("build", [micro.micro_vit, micro.micro_mixer])
def test_features_are_those_of_the_layers_that_are_kept(build, dataset):
    body = Blocks(build()).eval()
    images = dataset.load().test
    found = tool.features(body, images, (0, 3, 11))
    for j in (0, 3, 11):
        body.blocks[j] = torch.nn.Identity()
    with torch.no_grad():
        x = torch.tensor(images.x).float() / 255
        expected = body.pooled((x - 0.5) / 0.5)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("refit", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_file_is_scored_and_the_table_gives_the_scores_back(refit, weights, dataset, tmp_path):
    found = list(tool.scores(weights, dataset, most=2, count=1, refit=refit))
    assert [(s.k, s.left_out, s.draw) for s in found] == [
        *((0, "none", 0), (1, "random", 0), (1, "last", 0), (2, "random", 0), (2, "last", 0))
    ]
    source = micro.make_vit(str(weights), load=False)
    assert {(s.weights, s.backbone, s.recipe, s.weights_seed) for s in found} == {
        (source.fingerprint, "micro_vit", "layer_scale", 5)
    }
    assert {s.probe for s in found} == {"refit" if refit else "full"} and found[2].layers == "11"
    assert all(0 <= s.accuracy <= 1 for s in found)
    for part in (found[:3], found[3:]):
        tool.add(tmp_path / "table.csv", part)
    assert tool.read(tmp_path / "table.csv") == found


def test_a_probe_of_the_shipped_weights_finds_more_with_all_layers_than_with_four(dataset):
    shipped = micro.WEIGHTS / "micro_vit-seed0.safetensors"
    body, splits = Blocks(tool.BUILD[tool.provenance(shipped)["arch"]]()).eval(), dataset.load()
    probe = tool.probe_of(tool.features(body, splits.train, ()), splits.train.y)
    tested = [tool.features(body, splits.test, out) for out in ((), range(4, 12))]
    whole, four = (probe.score(z, splits.test.y) for z in tested)
    assert whole > four


def test_the_summary_has_mean_and_spread_over_draws():
    def score(k, way, draw, accuracy):
        return tool.Score("w", "micro_vit", "plain", 0, k, way, "full", draw, "", accuracy)

    found = [score(0, "none", 0, 0.9), score(1, "random", 0, 0.5), score(1, "random", 1, 0.7), score(1, "last", 0, 0.4)]
    lines = [line.split() for line in tool.summary(found)]
    assert lines[1] == ["0", "90.0%", "0.0%", "90.0%", "90.0%"]
    assert lines[2] == ["1", "60.0%", "14.1%", "50.0%", "70.0%", "40.0%"]


def test_a_stranger_s_file_is_told(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(UserError, match="no weights with the provenance"):
        tool.provenance(tmp_path / "a.safetensors")
