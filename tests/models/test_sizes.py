"""What `fedbench backbones` counts, against the sums by hand, and that it times what it says."""

import json
from pathlib import Path

import pytest
from command import TINY, fedbench

from fedbench.models.sizes import measure
from fedbench.registry.registry import Registry

HERE = Path(__file__).parents[1]
DIM, HIDDEN, PATCH, TOKENS, BLOCKS, CLASSES = 8, 8, 4, 5, 2, 3  # of tests/tiny_plugin.py's ViT; 4 patches and a token


@pytest.fixture(scope="module")
def size():
    source = Registry([str(TINY)]).make("backbone", {"name": "tiny"}, load=False)
    return measure("tiny", source, num_classes=CLASSES, batch_size=2, device="cpu")


def test_parameters_are_those_of_the_model_and_its_classifier(size):
    block = 2 * 2 * DIM + (3 * DIM * DIM + 3 * DIM) + (DIM * DIM + DIM) + 2 * DIM * HIDDEN + HIDDEN + DIM
    embedding = 3 * PATCH**2 * DIM + DIM + DIM + TOKENS * DIM
    assert size.parameters == embedding + BLOCKS * block + 2 * DIM + CLASSES * DIM + CLASSES


def test_multiply_adds_are_those_of_one_image(size):
    linear = TOKENS * (3 * DIM * DIM + DIM * DIM + 2 * DIM * HIDDEN)
    attention = 2 * TOKENS * TOKENS * DIM
    assert size.macs == (TOKENS - 1) * 3 * PATCH**2 * DIM + BLOCKS * (linear + attention) + CLASSES * DIM


def test_the_command_prints_a_row_for_each_backbone():
    words = ("backbones", "micro_vit", "--classes", 30, "--batch", 2)
    done = fedbench(*words, "tiny", "--plugin", TINY, "--json", cwd=HERE)
    micro, tiny = json.loads(done.stdout)
    assert (tiny["name"], micro["name"], micro["image_size"], micro["batch_size"]) == ("tiny", "micro_vit", 32, 2)
    assert tiny["images_per_second"] > micro["images_per_second"] > 0
    table = fedbench(*words, cwd=HERE)
    assert "0.42 M" in table.stdout and max(map(len, table.stdout.splitlines()[:5])) <= 80


def test_an_unknown_backbone_is_refused():
    done = fedbench("backbones", "resnet50_gm", cwd=HERE)
    assert done.exit_code == 2 and "no backbone is called 'resnet50_gm'" in done.stderr
