"""`resize: reference` against torchvision's own steps, which the released code of FedRA takes, and against a loop."""

from __future__ import annotations

import io
import math

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

from fedbench.data.cache import entry_of
from fedbench.data.decode import Sample, image_dataset, pixels, unclamped
from fedbench.data.image_files import Folder
from fedbench.disk import hash_of_json
from fedbench.errors import UserError

UPSIDE_DOWN, A_QUARTER = 3, 6  # EXIF's orientations


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def photograph(width=93, height=61, seed=0) -> np.ndarray:
    """(H, W, 3) uint8: a smooth scene, black and white edges, and a camera's noise."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    scene = 127 + 90 * np.sin(x / 9)[..., None] * np.cos(y / 7)[..., None] * np.array([1.0, 0.7, -0.8])
    scene[:, width // 2 :][(x[:, width // 2 :] // 5 + y[:, width // 2 :] // 4) % 2 == 0] = 255
    scene[:, width // 2 :][(x[:, width // 2 :] // 5 + y[:, width // 2 :] // 4) % 2 == 1] = 0
    return np.clip(scene + draw.normal(0, 12, scene.shape), 0, 255).astype(np.uint8)


def encoded(image: np.ndarray, kind="png", orientation=None) -> bytes:
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, exif=exif)
    return buffer.getvalue()


def cubic(x: float, a: float = -0.75) -> float:
    """Keys' kernel, with the a of torch."""
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def resized_by_a_loop(image: np.ndarray, side: int) -> np.ndarray:
    """(3, side, side) float64: bicubic between the four nearest rows and columns, borders repeated, nothing clamped."""

    def matrix(size: int) -> np.ndarray:
        W = np.zeros((side, size))
        for i in range(side):
            at = (i + 0.5) * size / side - 0.5
            for k in range(math.floor(at) - 1, math.floor(at) + 3):
                W[i, min(max(k, 0), size - 1)] += cubic(at - k)
        return W

    height, width = image.shape[:2]
    return np.einsum("ih,hwc,jw->cij", matrix(height), image / 255.0, matrix(width))


@pytest.mark.parametrize(("width", "height", "side"), [(93, 61, 24), (61, 93, 32), (20, 30, 48), (32, 32, 32)])
def test_it_is_bicubic_between_four_neighbours_and_leaves_0_to_1(width, height, side):
    image = photograph(width, height)
    x = unclamped(encoded(image), side)
    assert x.shape == (3, side, side) and x.dtype == np.float32
    np.testing.assert_allclose(x, resized_by_a_loop(image, side), atol=2e-5)
    if side not in (width, height):
        assert x.min() < -0.01 and x.max() > 1.01


@pytest.mark.parametrize("orientation", [None, UPSIDE_DOWN, A_QUARTER])
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_it_is_what_the_released_codes_transforms_give_whatever_exif_says(kind, orientation):
    transforms = pytest.importorskip("torchvision.transforms")
    as_released = transforms.Compose(
        [
            transforms.ToTensor(),
            transforms.Resize((24, 24), interpolation=transforms.InterpolationMode.BICUBIC, antialias=False),
        ]
    )
    data = encoded(photograph(), kind, orientation)
    x = unclamped(data, 24)
    assert torch.equal(torch.from_numpy(x), as_released(Image.open(io.BytesIO(data)).convert("RGB")))
    plain = encoded(np.asarray(Image.open(io.BytesIO(data))), "png")
    assert np.array_equal(x, unclamped(plain, 24)), "EXIF turned it"
    upright = pixels(data, 24, "bicubic")
    assert np.array_equal(upright, pixels(plain, 24, "bicubic")) == (orientation is None)


def test_antialiasing_and_rounding_make_other_images_of_a_noisy_photograph():
    data = encoded(photograph())
    assert np.abs(unclamped(data, 24) - pixels(data, 24, "bicubic") / 255).max() > 0.1


def samples(root) -> list[Sample]:
    for i in range(3):
        (root / f"{i}.png").write_bytes(encoded(photograph(seed=i), orientation=UPSIDE_DOWN))
    (root / "broken.png").write_bytes(b"no image")
    return [Sample(name, label, 0) for label, name in enumerate(["0.png", "broken.png", "1.png", "2.png"])]


def test_a_data_set_keeps_floats_and_takes_the_room_it_says(tmp_path):
    train = samples(tmp_path)
    made = [
        image_dataset(tmp_path, ["d"], list("abcd"), train, train[:1], 24, unreadable="skip", resize=resize)
        for resize in ("antialiased", "reference")
    ]
    with pytest.raises(UserError, match="no readable training image of class 'b'"):
        made[1].load()
    train[1] = train[1]._replace(label=0)
    made = [
        image_dataset(tmp_path, ["d"], list("abcd"), train, train[:1], 24, unreadable="skip", resize=resize)
        for resize in ("antialiased", "reference")
    ]
    assert made[0].fingerprint != made[1].fingerprint and made[1].size == 4 * made[0].size == 5 * 3 * 24 * 24 * 4
    splits = made[1].load()
    assert splits.skipped == ("broken.png",) and isinstance(splits.train.x, np.memmap)
    for i in range(3):
        assert np.array_equal(splits.train.x[i], unclamped((tmp_path / f"{i}.png").read_bytes(), 24))
    kept = {name: (entry_of(made[1].fingerprint) / f"{name}.npy").stat().st_size for name in ("train_x", "test_x")}
    assert kept == {"train_x": 3 * 24 * 24 * 4 * 3 + 128, "test_x": 3 * 24 * 24 * 4 + 128}
    assert made[0].load().train.x.dtype == np.uint8


def test_fingerprint_without_it_is_what_it_always_was(tmp_path):
    """That of caches and results made before there was the option."""
    train = samples(tmp_path)
    dataset = image_dataset(tmp_path, ["d"], list("abcd"), train, train[:1], 24)
    hashes = list(Folder(tmp_path).hashes([s.path for s in (*train, *train[:1])]).values())
    facts = [1, PIL.__version__, 24, "bicubic", ["d"], list("abcd"), train, train[:1], hashes]
    assert dataset.fingerprint == hash_of_json(facts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resize": "refrence"}, "resize must be one of antialiased, reference, not 'refrence'"),
        ({"resize": "reference", "interpolation": "lanczos"}, "cannot go with interpolation: lanczos"),
    ],
)
def test_options_that_do_not_exist_are_user_errors(tmp_path, options, said):
    with pytest.raises(UserError, match=said):
        image_dataset(tmp_path, ["d"], ["a"], [], [], 24, **options)
