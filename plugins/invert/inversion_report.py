"""What the probe found: a block for each method in every format, and images next to what was rebuilt of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.errors import UserError
from fedbench.report.frames import Format, Frame, frame
from fedbench.report.grouping import by_label, settings

from .findings import Inversion, Probe, findings, is_split, split_methods

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.registry.registry import Registry
    from fedbench.results import Result

CSV_COLUMNS = (
    "suite", "scenario", "variant", "backbone", "dataset", "method", "seen", "attack", "victims",
)  # fmt: skip
NUMBERS = ("psnr_db", "mean_psnr_db", "blind_psnr_db", "correlation", "mean_correlation", "blind_correlation")
TITLES = ("PSNR", "mean", "blind", "corr.", "mean", "blind")
LEGEND = (
    "How like the true image what was rebuilt is, on average over victims: PSNR in dB, and correlation over pixels. "
    "Beside each: mean, the mean training image as a guess, and blind, the same attack on noise.",
    "seen: the features, which cross at every step, or the server's gradient, here of one image. The attacker knows "
    "weights and labels. That an attack fails proves nothing: see docs/privacy.md.",
)
COLUMNS = 8  # victims in a picture at most
SIZE = 0.62  # inches a side of an image in it


@dataclass(frozen=True)
class InversionReport:
    """The findings on one method of one leaderboard, its seeds together; truth: the victims (3, H, W), in order."""

    where: Mapping[str, str]
    method: str
    findings: Sequence[Inversion]
    truth: Sequence[np.ndarray]

    @property
    def title(self) -> str:
        return " · ".join(filter(None, self.where.values()))


def reports(results: Sequence[Result], registry: Registry, probe: Probe) -> list[InversionReport]:
    """Attack images of every finished cell of a split method; one whose server has nothing that these attacks take has
    no report. Raises: UserError where there is none."""
    found = []
    for variant, group in settings(results):
        where = {"suite": group[0].suite, **vars(group[0].entry), "variant": variant}
        for label, part in by_label(group).items():
            cells = [r for r in part if r.status == "finished" and is_split(r)]
            if cells:
                here = {name: where[name] for name in CSV_COLUMNS[:5]}
                found.append(_report(here, label, [findings(r, registry, probe) for r in cells]))
    if found and not any(report.findings for report in found):
        raise UserError(f"nothing that {' or '.join(probe.attacks)} could attack: these servers have features alone")
    if not found:
        raise UserError(
            "no finished cell of these results is of a method that cuts the model between client and server; wanted is "
            f"one of {_either(split_methods(registry))}"
        )
    return [report for report in found if report.findings]


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _report(
    where: Mapping[str, str], label: str, seeds: Sequence[tuple[list[Inversion], list[np.ndarray]]]
) -> InversionReport:
    together: dict[tuple[str, str], Inversion] = {}
    for found, _ in seeds:
        for one in found:
            together.setdefault((one.seen, one.how), Inversion(one.seen, one.how)).extend(one)
    return InversionReport(where, label, list(together.values()), [image for _, truth in seeds for image in truth])


def framed(found: Sequence[InversionReport]) -> Frame:
    """A row for each method, thing seen and attack, with means over the victims, and each victim's score."""
    titles = dict(zip(NUMBERS, TITLES, strict=True))
    numbers = {name: Format(title, "decibels" if name.endswith("db") else "decimal") for name, title in titles.items()}
    words = {name: Format(part="name") for name in ("seen", "attack")}
    hidden = {name: Format(part="") for name in ("victims", "by_victim")}
    return frame(
        _records(found),
        CSV_COLUMNS,
        caption="How like the true image what was rebuilt is",
        by=CSV_COLUMNS[:5],
        formats={**numbers, **words, **hidden},
        legend=LEGEND,
    )


def _records(found: Sequence[InversionReport]) -> list[dict[str, Any]]:
    records = []
    for report in found:
        for one in report.findings:
            scores = {
                "psnr_db": one.attack.psnr, "correlation": one.attack.correlation,
                "mean_psnr_db": one.mean.psnr, "mean_correlation": one.mean.correlation,
                "blind_psnr_db": one.blind.psnr, "blind_correlation": one.blind.correlation,
            }  # fmt: skip
            what = {"method": report.method, "seen": one.seen, "attack": one.how, "victims": len(one.images)}
            means = {name: fmean(scores[name]) for name in NUMBERS}
            records.append({**report.where, **what, **means, "by_victim": scores})
    return records


def reconstructions(found: Sequence[InversionReport]) -> Figure:
    """For each method the true images, and a row for each attack with its scores (means over all victims)."""
    from matplotlib.figure import Figure

    from fedbench.report.pictures.style import paper

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
    from fedbench.report.pictures.style import GREY

    for ax in axes:
        ax.set_axis_off()
    for ax, image in zip(axes, images, strict=False):
        ax.imshow(image.transpose(1, 2, 0), interpolation="nearest", vmin=0, vmax=1)
    left: dict[str, Any] = {"transform": axes[0].transAxes, "ha": "right"}
    axes[0].text(-0.12, 0.52, label, va="bottom", **left)
    axes[0].text(-0.12, 0.48, below, va="top", color=GREY, fontsize=7, **left)
