"""Near-duplicates: the same picture saved again is found, other pictures and plain ones are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from command import fedbench
from PIL import Image

from fedbench.data.near_duplicates import NEAR, difference_hashes, near_duplicates


def pictures(n: int, seed: int = 0, side: int = 32) -> np.ndarray:
    """(n, 3, H, H) uint8: soft blots, as photos have them."""
    coarse = np.random.default_rng(seed).integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
    soft = [Image.fromarray(one).resize((side, side), Image.Resampling.BICUBIC) for one in coarse]
    return np.stack([np.asarray(one).transpose(2, 0, 1) for one in soft])


def saved_again(picture: np.ndarray, quality: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(picture.transpose(1, 2, 0)).resize((48, 48)).save(buffer, "jpeg", quality=quality)
    return np.asarray(Image.open(buffer).resize((32, 32))).transpose(2, 0, 1)


def found(train: np.ndarray, test: np.ndarray) -> list[int]:
    return near_duplicates(difference_hashes(train), difference_hashes(test)).tolist()


@pytest.mark.parametrize("quality", [95, 60])
def test_a_picture_that_was_saved_again_is_found_among_others(quality):
    train = pictures(200)
    again = np.stack([saved_again(train[i], quality) for i in (3, 77, 150)])
    assert found(train, np.concatenate([pictures(50, seed=1), again])) == [-1] * 50 + [3, 77, 150]
    assert found(train.astype(np.float32) / 255, train[:5]) == [0, 1, 2, 3, 4]


def test_plain_pictures_are_like_none():
    plain = np.stack([np.full((3, 8, 8), shade, np.uint8) for shade in range(0, 250, 10)])
    noisy = plain + np.random.default_rng(0).integers(0, 3, plain.shape).astype(np.uint8)
    assert not difference_hashes(plain).any() and set(found(plain, plain)) == set(found(noisy, noisy)) == {-1}


def test_every_pair_within_the_distance_is_found():
    """Against all pairs, one by one."""
    draw = np.random.default_rng(0)
    train = draw.integers(0, 256, (300, 16), dtype=np.uint8)
    test = train[draw.permutation(300)[:100]].copy()
    for row, flips in zip(test, draw.integers(0, 12, 100), strict=True):
        for bit in draw.permutation(128)[:flips]:
            row[bit // 8] ^= 1 << (bit % 8)
    apart = np.unpackbits(test[:, None] ^ train[None], axis=2).sum(axis=2)
    near = near_duplicates(train, test)
    assert ((near >= 0) == (apart.min(axis=1) <= NEAR)).all() and 0 < (near >= 0).sum() < 100
    assert all(apart[i, j] <= NEAR for i, j in enumerate(near) if j >= 0)


def test_check_counts_them_and_names_a_pair(tmp_path):
    shots = pictures(24, seed=2)
    rows = ["path,label,split"]
    for i, one in enumerate(shots):
        for name, split, pixels in ((f"{i}.png", "train", one), (f"{i}-again.png", "test", saved_again(one, 90))):
            if split == "train" or i % 4 == 0:
                Image.fromarray(pixels.transpose(1, 2, 0)).save(tmp_path / name)
                rows.append(f"{name},{i % 2 + 2 * (i % 4 == 0)},{split}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    done = fedbench("data", "check", "image_table", "--root", "t.csv", cwd=tmp_path, columns=300)
    assert "6 of 6 test images look like a training image, such as 0-again.png and 0.png; `group` keeps" in done.output
