"""Where test images lie in the global model's features, by t-SNE (FedRA v1, Figure 5): by class and by domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbench.errors import UserError
from fedbench.report.pictures.style import GREY, WIDTH, paper
from fedbench.seeding import numpy_generator, seed_of

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.registry.registry import Registry
    from fedbench.results import Result
    from fedbench.simulation.batches import Inputs

COLUMNS = 4
SIZE = 6  # of a marker, in square points
BATCH = 250
# Okabe and Ito's colours but yellow, which print loses; with the markers 42 looks.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "^", "s", "X", "P", "v")


@runtime_checkable
class Featured(Protocol):
    """A predictor that tells what its classifier reads: x (B, 3, H, W) -> (B, D)."""

    def features(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Points:
    """Test images in the plane: xy (n, 2), and the index of each one's class and domain (n,) with their names."""

    xy: np.ndarray
    y: np.ndarray
    domain: np.ndarray
    classes: Sequence[str]
    domains: Sequence[str]


def embedded(result: Result, registry: Registry, classes: int, images: int) -> Points:
    """t-SNE of the features that a finished cell's classifier reads.

    Args:
        classes: the first so many.
        images: at most so many of theirs, drawn evenly over (class, domain) from the cell's seed, the same for every
            method.

    Raises:
        UserError: where the cell kept no model, its method's predictor has no `features`, or fewer than three images
            are left.
    """
    from fedbench.simulation.saved_model import reopen

    simulation, predict = reopen(result.folder, registry)
    if not isinstance(predict, Featured):
        raise UserError(
            f"{result.entry.method}: its predictor has no features(x) to draw; see fedbench.models.globalmodel"
        )
    test = simulation.evaluation.test
    chosen = spread(test.labelled.y, test.labelled.domain, classes, images, simulation.seed)
    if len(chosen) < 3:
        raise UserError(f"{result.entry.method}: {len(chosen)} test images are too few to draw; raise --images")
    xy = plane(_features(predict, test, chosen), simulation.seed)
    return Points(
        xy,
        test.labelled.y[chosen],
        test.labelled.domain[chosen],
        simulation.dataset.classes,
        simulation.dataset.domains,
    )


def spread(y: np.ndarray, domain: np.ndarray, classes: int, images: int, seed: int) -> np.ndarray:
    """At most `images` positions of the first `classes` classes, as evenly over (class, domain) as there are any."""
    shuffled = numpy_generator(seed, use="tsne").permutation(len(y))
    turn = np.zeros(len(y), dtype=np.int64)  # how many of its class and domain come before an image
    seen: dict[tuple[int, int], int] = {}
    for i in shuffled:
        key = int(y[i]), int(domain[i])
        turn[i] = seen[key] = seen.get(key, -1) + 1
    chosen = shuffled[y[shuffled] < classes]
    return np.sort(chosen[np.argsort(turn[chosen], kind="stable")][:images])


def _features(predict: Featured, test: Inputs, chosen: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        parts = [predict.features(test(chosen[i : i + BATCH])[0]) for i in range(0, len(chosen), BATCH)]
    return torch.cat(parts).float().cpu().numpy()


def plane(features: np.ndarray, seed: int) -> np.ndarray:
    """(n, D) -> (n, 2), scikit-learn's t-SNE from the two principal components; perplexity 30, or (n - 1) / 3."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(features) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", random_state=seed_of(seed, use="tsne") % 2**32, n_jobs=1)
    return model.fit_transform(features.astype(np.float64))


def tsne(points: Mapping[str, Points]) -> Figure:
    """Every method twice: coloured by class above, by domain below."""
    rows = -(-len(points) // COLUMNS)
    columns = -(-len(points) // rows)
    size = min(2.4, (WIDTH - 1.1) / columns)
    first = next(iter(points.values()))
    with paper():
        figure = Figure(figsize=(size * columns + 1.1, 2 * rows * size + 0.2))
        axes = figure.subplots(2 * rows, columns, squeeze=False)
        above, below = axes[:rows].flatten(), axes[rows:].flatten()
        names = {int(k): first.classes[k] for k in np.unique(first.y)}
        for i, (label, one) in enumerate(points.items()):
            above[i].set_title(label)
            if rows > 1:
                below[i].set_title(label)
            _scatter(above[i], one.xy, one.y, names)
            _scatter(below[i], one.xy, one.domain, dict(enumerate(one.domains)))
        for ax in (*above[len(points) :], *below[len(points) :]):
            ax.remove()
        for half, title in ((above, "class"), (below, "domain")):
            ax = half[columns - 1]
            right = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            labels = [str(drawn.get_label()) for drawn in ax.collections]  # given, since some may begin with `_`
            ax.legend(ax.collections, labels, title=title, handletextpad=0.1, markerscale=1.5, **right)
    return figure


def _scatter(ax: Axes, xy: np.ndarray, group: np.ndarray, names: Mapping[int, str]) -> None:
    for position, (k, name) in enumerate(names.items()):
        at = xy[group == k]
        look: dict[str, Any] = {"color": COLORS[position % len(COLORS)], "marker": MARKERS[position % len(MARKERS)]}
        ax.scatter(at[:, 0], at[:, 1], s=SIZE, label=name, linewidths=0, alpha=0.85, **look)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(visible=True, linewidth=0.4, color=GREY)
