"""t-SNE of a global model's features: which images, equal twice, and what is drawn of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from command import TINY, fedbench, write_suite
from hypothesis import given
from hypothesis import strategies as st

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.report.pictures.tsne import Points, embedded, plane, spread, tsne
from fedbench.results import load
from fedbench.runner import runner
from fedbench.runner.cells import cells_of
from fedbench.simulation import worker
from fedbench.simulation.cell_job import CellJob

labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=60)


@given(labels=labels, classes=st.integers(1, 5), images=st.integers(1, 40), seed=st.integers(0, 3))
def test_images_are_spread_over_classes_and_domains(labels, classes, images, seed):
    y, domain = np.array(labels).T
    chosen = spread(y, domain, classes, images, seed)
    assert (y[chosen] < classes).all() and len(set(chosen)) == len(chosen)
    assert len(chosen) == min(images, int((y < classes).sum()))
    counts = Counter(zip(y[chosen].tolist(), domain[chosen].tolist(), strict=True))
    there = Counter(key for key in labels if key[0] < classes)
    most = max(counts.values(), default=0)
    assert all(counts[key] >= min(there[key], most - 1) for key in there)
    assert chosen.tolist() == spread(y, domain, classes, images, seed).tolist()


def test_groups_that_lie_apart_stay_apart_and_the_seed_decides():
    draw = np.random.default_rng(0)
    features = np.concatenate([draw.normal(0, 1, (20, 8)), draw.normal(40, 1, (20, 8))])
    xy = plane(features, seed=3)
    assert xy.shape == (40, 2) and np.isfinite(xy).all()
    assert (plane(features, seed=3) == xy).all()
    one, other = xy[:20], xy[20:]
    assert np.linalg.norm(one.mean(0) - other.mean(0)) > 2 * max(one.std(), other.std())


def points(n: int = 12, classes: int = 3) -> Points:
    xy = np.random.default_rng(0).normal(size=(n, 2))
    return Points(xy, np.arange(n) % classes, np.arange(n) % 2, [f"c{k}" for k in range(classes)], ["one", "two"])


def test_every_method_is_drawn_by_class_and_by_domain():
    one, methods = points(), 4
    figure = tsne({f"m{i}": one for i in range(methods)})
    assert len(figure.axes) == 2 * methods
    by_class, by_domain = figure.axes[:methods], figure.axes[methods:]
    assert [ax.get_title() for ax in by_class] == [f"m{i}" for i in range(methods)]
    for ax in by_class:
        assert [c.get_label() for c in ax.collections] == ["c0", "c1", "c2"]
    for ax in by_domain:
        assert [c.get_label() for c in ax.collections] == ["one", "two"]
        np.testing.assert_array_equal(ax.collections[1].get_offsets(), one.xy[one.domain == 1])
    titles = [legend.get_title().get_text() for ax in figure.axes if (legend := ax.get_legend())]
    assert titles == ["class", "domain"]


def test_many_classes_never_look_the_same():
    (ax, _) = tsne({"m": points(60, classes=30)}).axes
    looks = {(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in ax.collections}
    assert len(looks) == 30


@pytest.fixture(scope="module")
def ran(tmp_path_factory, own_cache):
    """A folder with a finished cell in r/, computed in this process."""
    folder, plugins = tmp_path_factory.mktemp("tsne"), Registry([str(TINY)])
    (cell,) = cells_of(runner.load(write_suite(folder), plugins).points(), plugins, CachedFacts(plugins))
    place, manifest = folder / "r" / "cells" / cell.id, {**cell.manifest(), "git": None}
    done = worker.run(CellJob(place, manifest, "cpu", [str(TINY)]))
    assert done["status"] == "finished", done["reason"]
    return folder


def cells_in(folder):
    """The folders of cells; a file that a lock is held on lies beside them."""
    return [place for place in (folder / "r/cells").iterdir() if place.is_dir()]


def test_a_finished_cell_is_taken_up_and_drawn(ran):
    done = fedbench("plot", "tsne", *cells_in(ran), "--plugin", TINY, "--output", "one.svg", cwd=ran)
    assert (done.exit_code, done.output) == (0, "one.svg\n")
    assert (ran / "one.svg").read_bytes().startswith(b"<?xml")


def test_classes_and_images_limit_what_is_drawn(ran):
    (result,) = load(cells_in(ran))
    registry = Registry([str(TINY)])
    found = embedded(result, registry, classes=1, images=100)
    assert set(found.y) == {0} and len(found.xy) == 4
    assert len(embedded(result, registry, classes=2, images=5).xy) == 5
    assert (found.classes, found.domains) == (("a", "b"), ("one", "two"))


def test_a_model_without_features_is_refused(ran, monkeypatch):
    from fedbench.simulation import saved_model as saved

    (result,) = load(cells_in(ran))
    registry = Registry([str(TINY)])
    real = saved.reopen
    monkeypatch.setattr(saved, "reopen", lambda *a, **k: (real(*a, **k)[0], lambda x: x))
    with pytest.raises(UserError, match=r"fedra: its predictor has no features\(x\)"):
        embedded(result, registry, 2, 10)
