"""The data sets with official layouts, over tiny ones: what is read, what is refused, and where it is told to be."""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from layouts import CONTEXTS, LAYOUTS, STYLES, jpeg, write
from PIL import Image

from fedbench.errors import UserError
from fedbench_plugins.datasets import cifar, tiny_imagenet
from fedbench_plugins.datasets.listed import domainnet, nicopp

MAKE = {
    "domainnet": domainnet,
    "nicopp": nicopp,
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
    "tiny_imagenet": tiny_imagenet.make,
}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / "sets"))


@pytest.fixture
def root(request, tmp_path) -> Path:
    """The tiny data set that the test's first parameter names, in its own folder of the data folder."""
    return LAYOUTS[request.param](tmp_path / "sets" / request.param)


def of(name: str):
    return pytest.mark.parametrize("root", [name], indirect=True)


def refused(make, **options) -> str:
    with pytest.raises(UserError) as caught:
        make(8, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", MAKE)
def test_missing_data_set_is_told_with_its_page(name, tmp_path):
    message = refused(MAKE[name])
    assert f"parts missing in {tmp_path / 'sets' / name}" in message and "get it: " in message and "http" in message


@pytest.mark.parametrize(("name", "root"), [(name, name) for name in MAKE], indirect=["root"])
def test_facts_need_no_decoding_and_do_not_depend_on_the_place(name, root, tmp_path):
    first = MAKE[name](8)
    shutil.move(root, tmp_path / "moved")
    again = MAKE[name](8, root=str(tmp_path / "moved"))
    assert (again.fingerprint, again.classes, again.domains) == (first.fingerprint, first.classes, first.domains)
    assert not (tmp_path / "cache" / "splits").exists()
    assert MAKE[name](9, root=str(tmp_path / "moved")).fingerprint != first.fingerprint
    assert MAKE[name](8, root=str(tmp_path / "moved"), interpolation="nearest").fingerprint != first.fingerprint


@pytest.mark.parametrize("name", MAKE)
def test_option_values_that_do_not_exist_are_user_errors(name, tmp_path):
    LAYOUTS[name](tmp_path / "sets" / name)
    assert "interpolation: expected" in refused(MAKE[name], interpolation="cubic")


# --- DomainNet and NICO++ -----------------------------------------------------------------------------------------


@of("domainnet")
def test_domainnet_has_six_styles_and_its_first_hundred_classes(root):
    data = domainnet(8)
    assert data.domains == STYLES and len(data.classes) == 100
    assert data.classes[:3] == ("aircraft_carrier", "airplane", "class 2")
    splits = data.load()
    for images, count in ((splits.train, 2), (splits.test, 1)):
        strata = Counter(zip(images.domain.tolist(), images.y.tolist(), strict=True))
        assert strata == {(d, label): count for d in range(6) for label in (0, 1)}
    assert abs(splits.test.x[3, 0].mean() - (40 + 10 + 2)) < 3  # infograph's airplane 2
    assert len(domainnet(8, classes=345).load().train) == 36


@of("domainnet")
def test_domainnet_takes_lists_beside_the_domains(root):
    first = domainnet(8).fingerprint
    for file in (root / "splits").iterdir():
        file.rename(root / file.name)
    assert domainnet(8).fingerprint == first


@of("domainnet")
def test_changed_image_or_list_makes_another_fingerprint(root):
    first = domainnet(8).fingerprint
    write(root / "real/airplane/real_002_000000.jpg", jpeg(3))
    second = domainnet(8).fingerprint
    write(root / "splits/real_test.txt", "real/airplane/real_002_000002.jpg 1\n")
    assert len({first, second, domainnet(8).fingerprint}) == 3


@of("domainnet")
def test_single_list_missing_is_named(root):
    (root / "splits/sketch_test.txt").unlink()
    assert "1 of 18 parts missing" in (said := refused(domainnet)) and "splits/sketch_test.txt" in said


@of("nicopp")
def test_nicopp_reads_paths_with_spaces(root):
    data = nicopp(8)
    assert data.domains == CONTEXTS and len(data.classes) == 60
    assert data.classes[0] == "airplane" and data.classes[7] == "hot air balloon"
    splits = data.load()
    assert len(splits.train) == 24 and len(splits.test) == 12
    assert splits.test.y.tolist() == [0, 7] * 6 and splits.test.domain.tolist() == sorted([*range(6)] * 2)


@of("nicopp")
def test_nicopp_root_may_be_the_folder_of_images(root):
    first = nicopp(8).fingerprint
    assert nicopp(8, root=str(root / "NICO_DG")).fingerprint == first  # the lists lie beside it
    for file in (root / "NICO_DG_official").iterdir():
        file.rename(root / "NICO_DG" / file.name)
    assert nicopp(8, root=str(root / "NICO_DG")).fingerprint == first


@of("nicopp")
def test_nicopp_has_sixty_classes(root):
    write(root / "NICO_DG_official/dim_test.txt", "NICO_DG/dim/airplane/dim 0003.jpg 60\n")
    assert "dim_test.txt:1: label 60, but the labels of 60 classes begin with 0" in refused(nicopp)


def as_png(image: Image.Image, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, options.pop("kind", "png"), **options)
    return buffer.getvalue()


@of("domainnet")
def test_images_of_every_kind_are_decoded_and_damaged_ones_told(root):
    red = Image.new("RGB", (6, 8), (255, 0, 0))
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    kinds = {
        "grey [1].jpg": as_png(red.convert("L"), kind="jpeg"),
        "cmyk.jpg": as_png(red.convert("CMYK"), kind="jpeg"),
        "exif.jpg": as_png(red, kind="jpeg", exif=upside_down),
        "palette.png": as_png(red.quantize(2), transparency=bytes([0, 9])),
        "ünï 16 bit.png": as_png(Image.fromarray(np.full((5, 5), 40_000, np.uint16))),
    }
    for name, content in kinds.items():
        write(root / "real/airplane" / name, content)
    (root / "splits/real_test.txt").write_text("".join(f"real/airplane/{name} 1\n" for name in kinds))
    test = domainnet(8).load().test
    red_ones = test.x[test.domain == STYLES.index("real")].mean((2, 3))
    for shade, expected in zip(red_ones, ([76, 76, 76], [254, 0, 0], [254, 0, 0], [255, 0, 0], [156] * 3), strict=True):
        assert np.abs(shade - expected).max() < 3
    write(root / "real/airplane/cmyk.jpg", kinds["cmyk.jpg"][:300])
    with pytest.raises(UserError, match=r"1 of 39 images cannot be read .*\n.*real/airplane/cmyk\.jpg"):
        domainnet(8).load()
    assert domainnet(8, unreadable="skip").load().skipped == ("real/airplane/cmyk.jpg",)


# --- CIFAR --------------------------------------------------------------------------------------------------------


@of("cifar10")
def test_cifar10_pixels_and_labels_are_those_of_the_records(root):
    data = cifar.cifar10(32)
    assert data.domains == ("all",) and data.classes == tuple(f"name{label}" for label in range(10))
    splits = data.load()
    assert splits.train.y.tolist() == [1, 4, 2, 5, 3, 6, 4, 7, 5, 8] and splits.test.y.tolist() == list(range(10))
    raw = (root / "cifar-10-batches-bin/test_batch.bin").read_bytes()[2 * 3073 + 1 : 3 * 3073]
    assert splits.test.x[2].tobytes() == raw  # 32 pixels stay what they are


@of("cifar10")
def test_cifar_is_resized_as_files_are(root):
    small, large = (cifar.cifar10(size).load().test.x[0] for size in (32, 48))
    picture = Image.fromarray(small.transpose(1, 2, 0)).resize((48, 48), Image.Resampling.BICUBIC)
    assert (large == np.asarray(picture).transpose(2, 0, 1)).all()


@of("cifar100")
def test_cifar100_takes_the_fine_labels(root):
    data = cifar.cifar100(32, root=str(root / "cifar-100-binary"))
    assert len(data.classes) == 100 and data.classes[42] == "fine42"
    splits = data.load()
    assert splits.train.y.tolist() == list(range(100)) and splits.test.y.tolist() == [99, 0]


@of("cifar10")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(3072), "data_batch_3.bin has 3,072 bytes, which are no whole records of 3,073"),
        (bytes(3073 * 2 + 1), "no whole records"),
        (b"", "has 0 bytes"),
        (b"\x0a" + bytes(3072), "data_batch_3.bin has the label 10; the 10 classes count from 0"),
    ],
)
def test_cifar_records_that_are_none_are_told_by_file(root, content, said):
    (root / "cifar-10-batches-bin/data_batch_3.bin").write_bytes(content)
    with pytest.raises(UserError) as caught:
        cifar.cifar10(32).load()
    assert said in str(caught.value)


@of("cifar10")
def test_cifar_lacking_a_file_or_a_name_is_told(root):
    (root / "cifar-10-batches-bin/batches.meta.txt").write_text("cat\ndog\n")
    assert "batches.meta.txt must name 10 classes, not 2" in refused(cifar.cifar10)
    (root / "cifar-10-batches-bin/batches.meta.txt").write_text("\n".join("abcdefghij"))
    (root / "cifar-10-batches-bin/test_batch.bin").unlink()
    assert "test_batch.bin: No such file" in refused(cifar.cifar10)


@pytest.mark.parametrize(
    ("make", "pickled", "binary"),
    [
        (cifar.cifar10, "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
        (cifar.cifar10, "cifar-10-batches-py/data_batch_1", "cifar-10-binary.tar.gz"),
        (cifar.cifar100, "cifar-100-python/train", "cifar-100-binary.tar.gz"),
    ],
)
def test_python_version_is_refused_with_the_file_to_take(tmp_path, make, pickled, binary):
    write(tmp_path / pickled, "")
    message = refused(make, root=str(tmp_path))
    assert "is of no use: it holds Python pickles" in message and f"take {binary}" in message


# --- Tiny ImageNet ------------------------------------------------------------------------------------------------


@of("tiny_imagenet")
def test_tiny_imagenet_keeps_the_order_of_its_classes(root):
    data = tiny_imagenet.make(8)
    assert data.classes == ("n02124075", "n01443537") and data.domains == ("all",)
    splits = data.load()
    assert splits.train.y.tolist() == [0, 0, 0, 1, 1, 1] and splits.test.y.tolist() == [0, 1]
    assert [round(float(x[0].mean()), -1) for x in splits.test.x] == [50, 150]
    assert tiny_imagenet.make(8, root=str(root / "tiny-imagenet-200")).fingerprint == data.fingerprint


@of("tiny_imagenet")
def test_tiny_imagenet_takes_any_file_name(root):
    write(root / "tiny-imagenet-200/train/n01443537/images/a [b]\nü.JPEG", jpeg(7))
    assert len(tiny_imagenet.make(8).load().train) == 7


@of("tiny_imagenet")
@pytest.mark.parametrize("file", ["wnids.txt", "val/val_annotations.txt"])
def test_tiny_imagenet_reads_over_a_byte_order_mark(root, file):
    plain, file = tiny_imagenet.make(8), root / "tiny-imagenet-200" / file
    write(file, b"\xef\xbb\xbf" + file.read_bytes())
    assert tiny_imagenet.make(8).fingerprint == plain.fingerprint


@of("tiny_imagenet")
def test_tiny_imagenet_tells_all_links_that_lead_nowhere_and_what_would_be_waited_for(root):
    base = root / "tiny-imagenet-200"
    link, fifo = (sorted(base.glob(where))[0] for where in ("train/*/images/*.JPEG", "val/images/*.JPEG"))
    for file in (link, fifo):
        file.unlink()
    link.symlink_to("gone")
    os.mkfifo(fifo)
    with pytest.raises(UserError) as caught:
        tiny_imagenet.make(8).load()
    said = str(caught.value)
    assert " 2 of 8 images" in f" {said}" and f"{link}: a link that leads nowhere" in said
    assert f"{fifo}: a FIFO, not a file" in said


@of("tiny_imagenet")
def test_tiny_imagenet_laid_out_wrongly_is_told_by_place(root):
    base = root / "tiny-imagenet-200"
    whole = (base / "val/val_annotations.txt").read_text()
    for line in ("val_0.JPEG n02124075 0", "val_0.JPEG\tn0", "../x\tn02124075"):
        (base / "val/val_annotations.txt").write_text(f"{whole}{line}\n")
        assert "val_annotations.txt:3: expected a file, a tab and a class" in refused(tiny_imagenet.make)
    (base / "val/val_annotations.txt").write_text("")
    assert "names no images" in refused(tiny_imagenet.make)
    (base / "wnids.txt").write_text("n02124075\nn02124075\n")
    assert "two or more different classes" in refused(tiny_imagenet.make)
    (base / "wnids.txt").write_text("n02124075\nn09\n")
    assert "train/n09/images holds no images" in refused(tiny_imagenet.make)
