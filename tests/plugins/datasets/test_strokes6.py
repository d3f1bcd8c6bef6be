"""strokes6: the classes, the six styles, and that options and seeds alone decide every pixel."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from fedbench.errors import UserError
from fedbench_plugins.datasets import glyphs, strokes6


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))


def tiny(**options):
    return strokes6.make(**{"image_size": 16, "classes": 3, "train_per_class": 2, "test_per_class": 1, **options})


def test_arrays_have_the_promised_shapes_types_and_order():
    dataset = tiny()
    splits = dataset.load()
    assert dataset.domains == ("solid", "outline", "texture", "dim", "clutter", "sketch")
    assert len(set(dataset.classes)) == 3
    for images, per_class in ((splits.train, 2), (splits.test, 1)):
        assert images.x.shape == (6 * 3 * per_class, 3, 16, 16)
        assert (images.x.dtype, images.y.dtype, images.domain.dtype) == (np.uint8, np.int64, np.int64)
        cells = np.stack([images.domain, images.y], axis=1)
        assert (np.unique(cells, axis=0, return_counts=True)[1] == per_class).all()


def test_the_outline_has_all_but_the_pixels_and_makes_no_image(tmp_path):
    dataset = tiny()
    outline = dataset.outlined.load()
    assert not list(tmp_path.iterdir())
    splits = dataset.load()
    for split in ("train", "test"):
        blank, drawn = getattr(outline, split), getattr(splits, split)
        assert (blank.x.shape, blank.x.dtype) == (drawn.x.shape, drawn.x.dtype) and not blank.x.any()
        assert np.array_equal(blank.y, drawn.y) and np.array_equal(blank.domain, drawn.domain)


def test_same_options_give_the_same_bytes_and_another_draw_gives_others(monkeypatch, tmp_path):
    first = tiny().load()
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "elsewhere"))
    again, fresh = tiny().load(), tiny(draw=1).load()
    assert np.array_equal(first.train.x, again.train.x) and np.array_equal(first.test.x, again.test.x)
    assert tiny().classes == tiny(draw=1).classes
    assert (first.train.x != fresh.train.x).any(axis=(1, 2, 3)).all()
    assert not any(np.array_equal(a, b) for a in first.test.x for b in first.train.x)


def test_pixels_are_those_of_this_renderer_version():
    """Where this fails on purpose, raise glyphs.RENDERER, pre-train again and note the new digest."""
    splits = tiny().load()
    digest = hashlib.sha256(splits.train.x.tobytes() + splits.test.x.tobytes()).hexdigest()
    assert (glyphs.RENDERER, digest[:16]) == (1, "aa1c61b6460a278c")


def test_fingerprint_tells_every_option_and_renderer_apart(monkeypatch):
    changes = [{"image_size": 17}, {"classes": 4}, {"train_per_class": 3}, {"test_per_class": 2}, {"draw": 1}]
    seen = {tiny(**change).fingerprint for change in [{}, *changes]}
    monkeypatch.setattr(glyphs, "RENDERER", glyphs.RENDERER + 1)
    assert len(seen | {tiny().fingerprint}) == 7


def test_upstream_and_downstream_classes_are_disjoint_and_no_two_nearly_equal():
    upstream, downstream = glyphs.class_strokes("upstream"), glyphs.class_strokes("downstream")
    as_sets = [set(map(frozenset, part.tolist())) for part in (upstream, downstream)]
    assert [len(upstream), len(as_sets[0]), len(as_sets[1])] == [200, 200, len(downstream)]
    assert not as_sets[0] & as_sets[1]
    assert all(len(a & b) <= 2 for a in as_sets[1] for b in as_sets[1] if a != b)


def test_fewer_classes_are_the_first_of_more():
    assert tiny(classes=5).classes[:3] == tiny().classes


def test_strokes_lie_on_the_lattice_with_ends_apart():
    library = glyphs.stroke_library()
    assert library.shape == (24, 3, 2)
    assert set(np.unique(library)) <= {-1.0, -0.5, 0.0, 0.5, 1.0}
    assert np.linalg.norm(library[:, 0] - library[:, 2], axis=1).min() >= 0.6


def test_distance_to_a_straight_line_is_the_distance_by_hand():
    line = np.array([[[[-0.5, 0.0], [0.5, 0.0]]]])
    field = glyphs.distance(line, 26)[0]  # one pixel is 0.1 wide, their centres at odd multiples of 0.05
    assert field[15, 13] == pytest.approx(0.25, abs=1e-6)  # above the middle: straight down
    assert field[13, 21] == pytest.approx(np.hypot(0.35, 0.05), abs=1e-6)  # beyond the end: to the end


def test_styles_differ_as_described():
    train = tiny(train_per_class=20).load().train
    by_style = [train.x[train.domain == i] / 255 for i in range(6)]
    contrast = [x.mean(1).std(axis=(1, 2)).mean() for x in by_style]
    brightness = [np.median(x) for x in by_style]
    rough = [np.abs(np.diff(x, axis=3)).mean() for x in by_style]
    solid, outline, texture, dim, clutter, sketch = range(6)
    assert contrast[dim] < 0.5 * contrast[solid] and brightness[dim] < brightness[solid]
    assert brightness[sketch] > 0.85
    assert min(rough[texture], rough[clutter]) > rough[solid] > rough[dim]
    assert contrast[outline] < contrast[solid]


@pytest.mark.parametrize("options", [{"classes": 1}, {"classes": 384}, {"train_per_class": 0}, {"draw": -1}])
def test_impossible_options_are_told_with_their_name(options):
    with pytest.raises(UserError, match=next(iter(options))):
        tiny(**options)


def test_facts_need_neither_torch_nor_scipy():
    code = (
        "import sys; from fedbench_plugins.datasets import digits, strokes6; strokes6.make(32); digits.make(32);"
        "print([m for m in ('torch', 'scipy', 'sklearn', 'pandas') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
