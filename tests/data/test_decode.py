"""Decoding, with real files of every kind that people have, whole and damaged."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedbench.data import image_files
from fedbench.data.decode import Sample, decode, image_dataset, pixels
from fedbench.data.image_files import Folder, content_hashes, in_threads
from fedbench.errors import UserError

RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))


def halves(left=RED, right=BLUE, size=(16, 8)) -> Image.Image:
    """A picture whose left half is one colour and whose right half is another."""
    image = Image.new("RGB", size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    return image


def encoded(image: Image.Image, kind: str = "png", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def corners(x: np.ndarray) -> tuple:
    """The colours of the left and the right border, halfway up."""
    return tuple(x[:, x.shape[1] // 2, 0].tolist()), tuple(x[:, x.shape[1] // 2, -1].tolist())


def near(colour, other) -> bool:
    return max(abs(a - b) for a, b in zip(colour, other, strict=True)) <= 8


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp", "gif", "tiff"])
def test_every_format_gives_the_same_picture(kind):
    x = pixels(encoded(halves(), kind), 8, "bicubic")
    assert x.shape == (3, 8, 8) and x.dtype == np.uint8
    left, right = corners(x)
    assert near(left, RED) and near(right, BLUE)


MODES = ("1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "F", "LA", "PA", "RGBX", "RGBa")
DEEP = {"I;16": "<u2", "I;16L": "<u2", "I;16B": ">u2", "I": "<i4"}  # mode -> how numpy has its pixels
GREY = halves((0, 0, 0), (255, 255, 255), size=(64, 64)).convert("L")


def written(picture: Image.Image) -> Iterator[tuple[str, str, bytes]]:
    """The picture in every format that Pillow can write and read it in, with the mode that it then has."""
    Image.init()
    for kind in sorted(Image.SAVE):
        try:
            text = encoded(picture, kind)
            with Image.open(io.BytesIO(text)) as opened:
                opened.load()
                yield kind, opened.mode, text
        except (OSError, KeyError, ValueError, TypeError, SystemError, AttributeError, NotImplementedError):
            continue


def test_no_mode_of_pillow_is_forgotten_and_few_formats():
    assert {*MODES, *DEEP} == {*Image.MODES} - {"La", "I;16N"}, "no format is read in these two"
    assert len({kind for mode in ("1", "RGB") for kind, *_ in written(GREY.convert(mode))}) >= 20


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_in_every_format_becomes_rgb_or_is_refused_by_name(mode):
    found = list(written((GREY if mode == "F" else GREY.convert("RGB")).convert(mode)))
    assert found
    for kind, held, text in found:
        if held == "F":
            with pytest.raises(ValueError, match="32-bit floats"):
                pixels(text, 8, "nearest")
        else:
            left, right = corners(pixels(text, 8, "nearest"))
            assert near(left, (0, 0, 0)) and near(right, (255, 255, 255)), kind


@pytest.mark.parametrize("mode", DEEP)
def test_every_deep_mode_in_every_format_keeps_its_shades_or_is_refused_by_name(mode):
    """Half of white; a format that Pillow clips to 8 bits when it writes has none to keep."""
    grey = np.asarray(GREY).astype(DEEP[mode]) // 255 * 0x8080
    found = [one for one in written(Image.frombytes(mode, GREY.size, grey.tobytes())) if one[1][0] in "IF"]
    assert {"TIFF", "IM"} <= {kind for kind, *_ in found}
    for kind, held, text in found:
        if held == "F" or (held == "I" and kind != "PPM"):
            with pytest.raises(ValueError, match="32-bit (integers|floats), of which nothing says what is white"):
                pixels(text, 8, "nearest")
        else:
            left, right = corners(pixels(text, 8, "nearest"))
            assert near(left, (0, 0, 0)) and near(right, (128, 128, 128)), kind


def test_greys_of_a_tiff_whose_white_is_zero_are_no_negative():
    """As of X-rays. Pillow turns them at 8 bits alone, when it writes and when it reads."""
    deep, flat = (Image.fromarray(np.array([[0, most]], dtype=f"u{most.bit_length() // 8}")) for most in (65535, 255))
    assert [pixels(encoded(deep, "tiff", tiffinfo={262: of}), 2, "nearest")[0][0].tolist() for of in (0, 1)] == [
        [255, 0],
        [0, 255],
    ]
    assert pixels(encoded(flat, "tiff", tiffinfo={262: 0}), 2, "nearest")[0][0].tolist() == [0, 255]


def test_twelve_bit_grey_of_tiff_keeps_its_shades():
    """Values 0x123 and 0xfed; Pillow opens them among 16 bits as they are."""
    tags = [(256, 4, 2), (257, 4, 1), (258, 3, 12), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (279, 4, 3)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    tiff = b"II*\0" + struct.pack("<I", 12) + b"\x12\x3f\xed\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    assert pixels(tiff, 2, "nearest")[0][0].tolist() == [0x12, 0xFE]


@pytest.mark.parametrize(("mode", "noun"), [("I", "32-bit integers"), ("F", "32-bit floats")])
def test_what_has_no_white_is_told_by_name(tmp_path, mode, noun):
    bad = encoded(halves().convert("L").convert(mode), "tiff")
    samples = tree(tmp_path, {"a.png": encoded(halves()), "b.tiff": bad})
    with pytest.raises(UserError, match=f"b.tiff: its pixels are {noun}, of which nothing says what is white"):
        dataset(tmp_path, samples, samples).load()


def test_greys_of_a_deep_pnm_keep_their_shades():
    values = np.array([[0, 1000, 32768, 65535]], dtype=np.uint16)
    assert pixels(encoded(Image.fromarray(values), "ppm"), 4, "nearest")[0][0].tolist() == [0, 3, 128, 255]


def test_sixteen_bit_grey_keeps_its_shades():
    ramp = Image.fromarray((np.arange(64).reshape(8, 8) * 1000).astype(np.uint16))
    x = pixels(encoded(ramp), 8, "nearest")
    assert x[0].ravel().tolist() == [value * 1000 >> 8 for value in range(64)]


def test_transparent_palette_keeps_its_colours_without_a_warning():
    image = halves().quantize(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left, right = corners(pixels(encoded(image, transparency=bytes([0, 128])), 8, "bicubic"))
    assert near(left, RED) and near(right, BLUE)


def test_exif_rotation_is_undone():
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down, so left and right change places
    left, right = corners(pixels(encoded(halves(), "jpeg", exif=exif), 8, "bicubic"))
    assert near(left, BLUE) and near(right, RED)


def test_damaged_exif_costs_only_the_orientation():
    jpeg = encoded(halves(), "jpeg", exif=b"Exif\0\0nonsense where a header should be")
    left, right = corners(pixels(jpeg, 8, "bicubic"))
    assert near(left, RED) and near(right, BLUE)


def test_pixels_are_channels_first_and_what_pillow_gives():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8))
    for name, resample in (("bicubic", Image.Resampling.BICUBIC), ("nearest", Image.Resampling.NEAREST)):
        expected = np.asarray(picture.resize((12, 12), resample)).transpose(2, 0, 1)
        assert (pixels(encoded(picture), 12, name) == expected).all()


def bomb() -> bytes:
    """A PNG header that promises 20,000 x 20,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


DAMAGED = {
    "truncated.jpg": encoded(halves(size=(200, 200)), "jpeg")[:-400],
    "truncated.png": encoded(Image.effect_noise((64, 64), 50))[:-500],
    "empty.jpg": b"",
    "text.jpg": b"404 not found\n",
    "bomb.png": bomb(),
}


def tree(root: Path, names: dict[str, bytes]) -> list[Sample]:
    """The files on disk, all of class 0 and domain 0."""
    for name, content in names.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return [Sample(name, 0, 0) for name in names]


def dataset(root: Path, train: list[Sample], test: list[Sample], **options):
    return image_dataset(root, ["photo"], ["cat"], train, test, 8, **options)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_image_fails_by_path_or_is_skipped(tmp_path, name):
    good = tree(tmp_path, {f"{i}.png": encoded(halves(size=(16 + i, 8))) for i in range(4)})
    bad = tree(tmp_path, {name: DAMAGED[name]})
    train, test = [good[0], *bad, *good[1:3]], good[3:]
    with pytest.raises(UserError) as caught:
        dataset(tmp_path, train, test).load()
    assert "1 of 5 images cannot be read (`unreadable: skip` leaves them out)" in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    splits = dataset(tmp_path, train, test, unreadable="skip").load()
    assert splits.skipped == (name,) and len(splits.train) == 3 and len(splits.test) == 1
    for row, sample in enumerate(good[:3]):
        expected = pixels((tmp_path / sample.path).read_bytes(), 8, "bicubic")
        assert (splits.train.x[row] == expected).all()


def test_at_most_ten_damaged_images_are_listed(tmp_path):
    good = tree(tmp_path, {"good.png": encoded(halves())})
    bad = tree(tmp_path, {f"bad{i:02}.jpg": b"x" * i for i in range(13)})
    with pytest.raises(UserError) as caught:
        dataset(tmp_path, good + bad, good).load()
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("13 of 15 images") and len(lines) == 12 and lines[-1] == "  and 3 more"


def test_class_that_lost_all_its_images_is_an_error_even_under_skip(tmp_path):
    good, bad = tree(tmp_path, {"good.png": encoded(halves())}), tree(tmp_path, {"bad.png": b""})
    with pytest.raises(UserError, match="domain 'photo' has no readable test image of class 'cat'"):
        dataset(tmp_path, good, bad, unreadable="skip").load()


def test_classes_that_lost_all_their_images_are_told_at_once_each_with_its_own(tmp_path):
    good, bad = (
        tree(tmp_path, {"good.png": encoded(halves())}),
        tree(tmp_path, {"bad.png": b"", "two\nlines.png": b"x"}),
    )
    train, test = [*good, bad[0]], [bad[1], bad[0]._replace(label=1), good[0]._replace(label=1)]
    test.append(bad[0]._replace(label=2))
    with pytest.raises(UserError) as caught:
        image_dataset(tmp_path, ["photo"], ["cat", "dog", "ox"], train, test, 8, unreadable="skip").load()
    assert str(caught.value).splitlines() == [
        "domain 'photo' has no readable test image of class 'cat': 1 of 1 images cannot be read there:",
        rf"  {tmp_path}/two\nlines.png: not an image",
        "domain 'photo' has no readable test image of class 'ox': 1 of 1 images cannot be read there:",
        f"  {tmp_path}/bad.png: an empty file",
        "  mend an image of each",
    ]


def test_what_cannot_be_opened_is_told_with_what_cannot_be_decoded(tmp_path):
    good, bad = tree(tmp_path, {"good.png": encoded(halves())}), tree(tmp_path, {"bad.png": b""})
    with pytest.raises(UserError) as caught:
        dataset(tmp_path, good, [*good, *bad, Sample("gone.png", 0, 0)]).load()
    assert "2 of 4 images" in str(caught.value) and "bad.png: an empty file" in str(caught.value)
    assert "gone.png: No such file" in str(caught.value) and caught.value.option == "unreadable"


def test_fail_and_skip_share_one_fingerprint_and_each_other_change_makes_a_new_one(tmp_path):
    samples = tree(tmp_path, {"a.png": encoded(halves()), "b.png": encoded(halves(BLUE, RED))})

    def fingerprint(**options):
        return dataset(tmp_path, samples[:1], samples[1:], **options).fingerprint

    first = fingerprint()
    assert fingerprint() == first == fingerprint(unreadable="skip")
    assert fingerprint(interpolation="nearest") != first
    assert dataset(tmp_path, samples[1:], samples[:1]).fingerprint != first
    (tmp_path / "a.png").write_bytes(encoded(halves(RED, RED)))
    assert fingerprint() != first


def test_fingerprint_does_not_depend_on_where_the_tree_lies(tmp_path):
    names = {"a.png": encoded(halves()), "b.png": encoded(halves())}
    one, two = (dataset(root, *[[s] for s in tree(root, names)]) for root in (tmp_path / "one", tmp_path / "two"))
    assert one.fingerprint == two.fingerprint


def test_file_that_changed_between_plan_and_load_is_refused(tmp_path):
    samples = tree(tmp_path, {"a.png": encoded(halves()), "b.png": encoded(halves())})
    planned = dataset(tmp_path, samples[:1], samples[1:])
    (tmp_path / "b.png").write_bytes(encoded(halves(BLUE, BLUE)))
    with pytest.raises(UserError, match=r"b\.png changed while"):
        planned.load()


def test_unknown_options_and_missing_files_are_user_errors(tmp_path):
    samples = tree(tmp_path, {"a.png": encoded(halves())})
    with pytest.raises(UserError, match="interpolation must be one of bicubic, .* not 'cubic'"):
        dataset(tmp_path, samples, samples, interpolation="cubic")
    with pytest.raises(UserError, match="unreadable must be one of fail, skip, not 'ignore'"):
        dataset(tmp_path, samples, samples, unreadable="ignore")
    with pytest.raises(UserError, match=r"1 of 2 images cannot be read .*\n.*gone\.png: No such file"):
        dataset(tmp_path, samples, [Sample("gone.png", 0, 0)]).load()


def test_decode_fills_the_array_it_is_given(tmp_path):
    samples = tree(tmp_path, {"a.png": encoded(halves()), "bad.png": b"", "c.png": encoded(halves(BLUE, RED))})
    x = np.zeros((3, 3, 4, 4), np.uint8)
    hashes = content_hashes(tmp_path, [s.path for s in samples])
    images, skipped = decode(Folder(tmp_path), samples, x, "bicubic", hashes)
    assert np.shares_memory(images.x, x) and skipped == ["bad.png"] and len(images) == 2
    assert [corners(row)[0] for row in images.x] == [RED, BLUE]


def test_unchanged_files_are_not_read_again(tmp_path, monkeypatch):
    tree(tmp_path, {"a.png": b"one", "b.png": b"two"})
    later = image_files.time.time_ns() + 10**10  # the scan happens ten seconds after the files were written
    monkeypatch.setattr(image_files.time, "time_ns", lambda: later)
    first = content_hashes(tmp_path, ["a.png", "b.png"])
    assert first["a.png"] == hashlib.sha256(b"one").hexdigest()
    read = []
    monkeypatch.setattr(image_files, "content", lambda root, path: read.append(path) or (root / path).read_bytes())
    assert content_hashes(tmp_path, ["a.png", "b.png"]) == first and read == []
    (tmp_path / "b.png").write_bytes(b"2wo")
    assert content_hashes(tmp_path, ["a.png", "b.png"])["b.png"] == hashlib.sha256(b"2wo").hexdigest()
    assert read == ["b.png"]


def test_same_size_and_time_do_not_hide_a_changed_file(tmp_path, monkeypatch):
    tree(tmp_path, {"a.png": b"one"})
    later = image_files.time.time_ns() + 10**10
    monkeypatch.setattr(image_files.time, "time_ns", lambda: later)
    content_hashes(tmp_path, ["a.png"])
    times = (tmp_path / "a.png").stat()
    (tmp_path / "a.png").write_bytes(b"two")
    os.utime(tmp_path / "a.png", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert content_hashes(tmp_path, ["a.png"])["a.png"] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("left", ["", "{", "[1]", '{"a.png": 3}'])
def test_damaged_record_of_hashes_is_written_anew(tmp_path, monkeypatch, left):
    tree(tmp_path, {"a.png": b"one"})
    later = image_files.time.time_ns() + 10**10
    monkeypatch.setattr(image_files.time, "time_ns", lambda: later)
    content_hashes(tmp_path, ["a.png"])
    [sidecar] = (tmp_path / "cache" / "hashes").iterdir()
    whole = sidecar.read_text()
    sidecar.write_text(left)
    assert content_hashes(tmp_path, ["a.png"])["a.png"] == hashlib.sha256(b"one").hexdigest()
    assert sidecar.read_text() == whole


def test_hashes_need_no_writable_cache(tmp_path, monkeypatch):
    tree(tmp_path, {"a.png": b"one"})
    later = image_files.time.time_ns() + 10**10
    monkeypatch.setattr(image_files.time, "time_ns", lambda: later)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "file"))
    assert content_hashes(tmp_path, ["a.png"])["a.png"] == hashlib.sha256(b"one").hexdigest()


def test_threads_keep_the_order_and_stop_at_the_first_error():
    assert in_threads(lambda i: i * i, 1000, "squares") == [i * i for i in range(1000)]
    begun = []

    def work(i):
        begun.append(i)
        if i == 5:
            raise UserError("five")

    with pytest.raises(UserError, match="five"):
        in_threads(work, 100_000, "numbers")
    assert len(begun) < 100_000
    assert in_threads(work, 0, "nothing") == []
