"""Images next to what an attack rebuilt of them, see `fedbench_plugins.invert`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedbench.report.pictures.style import GREY, paper

if TYPE_CHECKING:
    from .inversion_report import InversionReport

COLUMNS = 8  # victims at most
SIZE = 0.62  # inches a side of an image


def reconstructions(found: Sequence[InversionReport]) -> Figure:
    """For each method the true images, and a row for each attack with its scores (means over all victims)."""
    shown = min(COLUMNS, max(len(report.truth) for report in found))
    rows = sum(1 + len(report.findings) for report in found)
    with paper():
        figure = Figure(figsize=(1.9 + SIZE * shown, SIZE * rows + 0.12))
        axes = iter(figure.subplots(rows, shown, squeeze=False))
        for report in found:
            _row(next(axes), report.truth, report.method, "true images")
            for one in report.findings:
                scores = f"{fmean(one.attack.psnr):.1f} dB, r = {fmean(one.attack.correlation):.2f}"
                _row(next(axes), one.images, f"{one.seen}, {one.how}", scores)
    return figure


def _row(axes: Sequence[Axes], images: Sequence[np.ndarray], label: str, below: str) -> None:
    for ax in axes:
        ax.set_axis_off()
    for ax, image in zip(axes, images, strict=False):
        ax.imshow(image.transpose(1, 2, 0), interpolation="nearest", vmin=0, vmax=1)
    left: dict[str, Any] = {"transform": axes[0].transAxes, "ha": "right"}
    axes[0].text(-0.12, 0.52, label, va="bottom", **left)
    axes[0].text(-0.12, 0.48, below, va="top", color=GREY, fontsize=7, **left)
