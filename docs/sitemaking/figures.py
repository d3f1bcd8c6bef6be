"""The figures of README.md and docs/findings.md, drawn from results/reference: `python -m sitemaking.figures`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import fedbench
from fedbench.families.allocation import draw
from fedbench.registry.registry import Registry
from sitemaking import quoted
from sitemaking.quoted import compared

DOCS = Path(__file__).resolve().parents[1]
CAPACITIES = [12, 10, 8, 6, 4, 3]
BACKBONES = {"micro_vit": "ViT", "micro_mixer": "MLP-Mixer"}

# A family of methods is a section of docs/methods.md, by its heading up to the colon. Okabe and Ito's colours.
COLOURS = {
    "Depth": "#0072b2",
    "Rank": "#d55e00",
    "Aggregation": "#cc79a7",
    "Forward passes": "#332288",
    "Width": "#009e73",
    "Whole models": "#e69f00",
    "Split learning": "#56b4e9",
    "Bound or control": "#777777",
}
# White behind everything, so that a figure is as legible on a dark page as on a light one.
STYLE = {"dpi": 150, "facecolor": "white"}

SCENARIOS = {
    ("feature_skew_tuned", "feature_skew"): "depths 12 to 3",
    ("feature_label_skew_tuned", "feature_label_skew"): "depths 12 to 3, label skew",
    ("extreme_hetero_tuned", "mixed"): "depths at most 10",
    ("extreme_hetero_tuned", "dynamic"): "depths change every round",
    ("extreme_hetero_tuned", "all_10"): "10 of 12 layers each",
    ("extreme_hetero_tuned", "all_6"): "6 of 12 layers each",
    ("extreme_hetero_tuned", "all_4"): "4 of 12 layers each",
}


def families() -> dict[str, str]:
    """The family of every method of fedbench, as a key of `COLOURS`."""
    found = {component.name: family for family, (_, here) in quoted.families().items() for component in here}
    return {name: family if family in COLOURS else "Bound or control" for name, family in found.items()}


def overview() -> Figure:
    """Who trains which layers in one round, and accuracy against bytes on the real vision transformer."""
    figure = Figure(figsize=(9.2, 4.2), layout="constrained", **STYLE)
    left, right = figure.subfigures(1, 2, width_ratios=[1.0, 1.5])
    left.suptitle("Which layers six clients train in a round", fontsize=10)
    registry = Registry()
    axes = left.subplots(2, 1, sharex=True)
    shown = {"FedRA: random layers": "random", "InclusiveFL, DepthFL: the first layers": "prefix"}
    for ax, (title, name) in zip(axes, shown.items(), strict=True):
        allocate = registry.make("allocation", {"name": name})
        generator = torch.Generator().manual_seed(1)
        M = draw(allocate, torch.tensor(CAPACITIES), 12, 0, list(range(6)), {}, generator, lambda: torch.ones(12))
        ax.imshow(M, cmap=ListedColormap(["#e8eef3", COLOURS["Depth"]]), aspect="auto")
        ax.set_title(title, fontsize=9)
        ax.set_yticks(range(6), [f"holds {L_n}" for L_n in CAPACITIES], fontsize=7.5)
        ax.set_xticks([x - 0.5 for x in range(13)], minor=True)
        ax.set_yticks([y - 0.5 for y in range(7)], minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
    axes[1].set_xticks([0, 5, 11], ["layer 1", "layer 6", "layer 12"], fontsize=8)
    right.suptitle("Accuracy against bytes sent (DINOv2's ViT-S on emoji)", fontsize=10)
    _pareto(right.subplots(), REAL, "dinov2_s", legend="lower right")
    return figure


def field() -> Figure:
    """Accuracy against bytes of every method, a panel for each backbone."""
    figure = Figure(figsize=(10.4, 4.6), layout="constrained", **STYLE)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (backbone, title) in zip(axes, BACKBONES.items(), strict=True):
        _pareto(ax, ALL_METHODS, backbone, legend="lower left" if backbone == "micro_mixer" else None)
        ax.set_title(title, fontsize=10)
    axes[1].set_ylabel("")
    return figure


# Methods of one family that score and send nearly the same share a mark's name: these are not named.
UNNAMED = {"lora_fair", "fedex_lora", "packed", "hetlora", "raflora", "fed_plora", "fedrod", "fedvz"}


class Plane(NamedTuple):
    """Accuracy against bytes: of which suite, the unit and ticks of its bytes, its axes' ends, and its rounds."""

    suite: str
    unit: tuple[float, str]
    ticks: Sequence[float]
    across: tuple[float, float]
    up: tuple[float, float]
    rounds: int
    seeds: int


ALL_METHODS = Plane("field_tuned", (1e6, "MB"), (20, 50, 100, 200), (20, 380), (0, 100), 12, 5)
REAL = Plane("real_tuned", (1e9, "GB"), (0.2, 0.5, 1, 2), (0.2, 3.2), (0, 60), 100, 6)


def _pareto(ax: Axes, plane: Plane, backbone: str, legend: str | None) -> None:
    """Mean accuracy against the bytes of the run, of all methods that send any; bars are standard deviations."""
    size, unit = plane.unit
    frame = compared(plane.suite, "pareto", "bytes")
    frame = frame[(frame.backbone == backbone) & (frame.spent > size / 100)]
    frame = frame[~frame.method.str.contains("/")]
    family = families()
    for name, colour in COLOURS.items():
        some = frame[frame.method.map(family) == name]
        style = {"marker": "s" if name == "Bound or control" else "o", "markersize": 5, "linestyle": "none"}
        bars = {"color": colour, "elinewidth": 0.8, "label": name if len(some) else None}
        ax.errorbar(some.spent / size, 100 * some["mean"], 100 * some["std"], **style, **bars)
    ax.set_xscale("log")
    ax.set_xticks(plane.ticks, [f"{tick:g}" for tick in plane.ticks])
    ax.set_xlim(*plane.across)
    ax.set_ylim(*plane.up)
    ax.minorticks_off()
    ax.set_xlabel(f"{unit} that all six clients send and receive in {plane.rounds} rounds", fontsize=8.5)
    ax.set_ylabel(f"accuracy, % (mean and sd of {plane.seeds} seeds)", fontsize=8.5)
    _plain(ax)
    if legend:
        ax.legend(fontsize=7.5, loc=legend, frameon=False)
    _named(ax, dict(zip(frame.method, zip(frame.spent / size, 100 * frame["mean"], strict=True), strict=True)))


def _named(ax: Axes, marks: dict[str, tuple[float, float]]) -> None:
    """Write names next to marks, each at the nearest of some places where it covers no mark and no other name."""
    figure = ax.figure.figure
    scale = 72 / figure.dpi  # points a pixel
    figure.draw_without_rendering()
    at = {name: ax.transData.transform(mark) * scale for name, mark in marks.items()}
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in at.values()]
    for name, (x, y) in sorted(at.items(), key=lambda item: -item[1][1]):
        if name in UNNAMED:
            continue
        width = 4.3 * len(name)
        for dx, dy in PLACES:
            left = x + dx if dx > 0 else x + dx - width
            box = (left, y + dy - 4, left + width, y + dy + 4)
            if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
                break
        taken.append(box)
        far = {"arrowprops": {"arrowstyle": "-", "color": "#888888", "linewidth": 0.5}} if abs(dx) > 8 else {}
        side = {"ha": "left" if dx > 0 else "right", "va": "center", "textcoords": "offset points"}
        ax.annotate(name, marks[name], (dx, dy), fontsize=7.5, color="#222222", **side, **far)


# Where a name may stand, in points from its mark, the nearest first.
PLACES = [(side * far, up) for far, ups in ((7, (0, 5, -5)), (16, (9, -9, 0, 15, -15, 21, -21))) for up in ups
          for side in (1, -1)]  # fmt: skip


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=8)
    ax.grid(color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


NAMES = {"fedra": "FedRA", "inclusivefl": "InclusiveFL", "depthfl": "DepthFL", "head_only": "linear probe"}


def differences(pairs: Sequence[tuple[str, str]]) -> pandas.DataFrame:
    """The first of each pair minus the second in the scenarios of `SCENARIOS`, on both backbones.

    Returns:
        Rows with the columns scenario, backbone, pair, difference, low, high (in points) and verdict.
    """
    rows = []
    for folder in dict.fromkeys(folder for folder, _ in SCENARIOS):
        for row in compared(folder, "pairs").itertuples():
            title = SCENARIOS.get((folder, row.scenario))
            for pair, sign in (((row.method, row.other), 100), ((row.other, row.method), -100)):
                if title is not None and pair in pairs:
                    low, high = sorted((sign * row.ci_low, sign * row.ci_high))
                    rows.append((title, row.backbone, pair, sign * row.difference, low, high, row.verdict))
    names = ["scenario", "backbone", "pair", "difference", "low", "high", "verdict"]
    return pandas.DataFrame(rows, columns=names)


def forest(*pairs: tuple[str, str]) -> Figure:
    """A forest plot of differences, a panel for each backbone, both of one scale."""
    frame = differences(pairs)
    figure = Figure(figsize=(9.2, 0.9 + 0.2 * len(pairs) * len(SCENARIOS)), layout="constrained", **STYLE)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    colours = dict(zip(pairs, ("#0072b2", "#d55e00", "#009e73"), strict=False))
    titles = list(SCENARIOS.values())
    for ax, (backbone, title) in zip(axes, BACKBONES.items(), strict=True):
        ax.axvline(0, color="#555555", linewidth=0.8)
        for row in frame[frame.backbone == backbone].itertuples():
            y = titles.index(row.scenario) + 0.24 * (pairs.index(row.pair) - (len(pairs) - 1) / 2)
            _difference(ax, y, row, colours[row.pair])
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("points of accuracy, 95 % interval", fontsize=8.5)
        _plain(ax)
    axes[0].set_yticks(range(len(titles)), titles)
    axes[0].invert_yaxis()
    _key(figure, {f"{NAMES[one]} minus {NAMES[other]}": colours[one, other] for one, other in pairs})
    return figure


def _difference(ax: Axes, y: float, row: Any, colour: str) -> None:
    """A mark with its interval; the mark is hollow where the verdict is not significant."""
    inside = colour if row.verdict in ("better", "worse") else "white"
    ax.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6)
    ax.plot(row.difference, y, "o", color=colour, markerfacecolor=inside, markersize=5)


def _key(figure: Figure, colours: Mapping[str, str]) -> None:
    """The legend of a forest plot: what its colours mean, and its hollow marks."""
    marks = [Line2D([], [], marker="o", color=colour, label=name) for name, colour in colours.items()]
    hollow = {"marker": "o", "linestyle": "none", "color": "#555555", "markerfacecolor": "white"}
    marks.append(Line2D([], [], label="hollow: not significantly different from 0", **hollow))
    figure.legend(handles=marks, loc="outside upper center", ncols=4, fontsize=8, frameon=False)


# By (folder, backbone), the titles of panels.
FIELD = {("field_tuned", backbone): title for backbone, title in BACKBONES.items()}
TEXTS = {
    ("text_domains_tuned", "minilm_l6"): "MiniLM, rated sentences",
    ("text_quickstart_tuned", "micro_bert"): "micro BERT, made-up phrases",
}


def others(panels: Mapping[tuple[str, str], str], height: float, base: str) -> Figure:
    """Every method minus `base`, sorted by the first panel, all panels of one scale; the colour is the family's."""
    rows = []
    for folder in dict.fromkeys(folder for folder, _ in panels):
        for row in compared(folder, "pairs").itertuples():
            if base in (row.method, row.other):
                sign = -100 if row.method == base else 100
                low, high = sorted((sign * row.ci_low, sign * row.ci_high))
                other = row.other if row.method == base else row.method
                rows.append((folder, row.backbone, other, sign * row.difference, low, high, row.verdict))
    names = ["folder", "backbone", "other", "difference", "low", "high", "verdict"]
    of_panel = pandas.DataFrame(rows, columns=names).groupby(["folder", "backbone"]).get_group
    order = of_panel(next(iter(panels))).sort_values("difference", ascending=False).other.tolist()
    family = families()
    figure = Figure(figsize=(9.2, height), layout="constrained", **STYLE)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    shown = set()
    for ax, (panel, title) in zip(axes, panels.items(), strict=True):
        ax.axvline(0, color="#555555", linewidth=0.8)
        for row in of_panel(panel).itertuples():
            colour = COLOURS[family.get(row.other, "Depth")]  # names of a suite's own are variants of depth
            shown.add(colour)
            _difference(ax, order.index(row.other), row, colour)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel(f"method minus {NAMES[base]}, points of accuracy, 95 % interval", fontsize=8.5)
        _plain(ax)
    axes[0].set_yticks(range(len(order)), order)
    axes[0].invert_yaxis()
    _key(figure, {name: colour for name, colour in COLOURS.items() if colour in shown})
    return figure


SPLIT = {
    "fedavg_pretrained": "FedAvg, pre-trained",
    "fedra": "FedRA, pre-trained",
    "head_only": "linear probe, pre-trained",
    "fedv": "FedV, pre-trained",
    "frozen_server": "FedV, server frozen",
    "festa": "FESTA, from scratch",
    "fedv_scratch": "FedV, from scratch",
    "ditto": "Ditto, from scratch",
    "fedrod": "Fed-RoD, from scratch",
    "majority": "majority-class baseline",
}


def split() -> Figure:
    """Accuracy of split learning and of whole models, by label skew; whole models from scratch as a ViT and a CNN."""
    frame = compared("personalised_tuned", "boards")
    figure = Figure(figsize=(9.2, 3.6), layout="constrained", **STYLE)
    axes = figure.subplots(1, 2, sharey=True)
    scenarios = {"dirichlet0.1": "labels by Dirichlet(0.1)", "pathological2": "two classes a client"}
    for ax, (scenario, title) in zip(axes, scenarios.items(), strict=True):
        for suffix, colour, mark, label in (("", "#0072b2", "o", "ViT"), ("_cnn", "#d55e00", "D", "CNN from scratch")):
            some = frame[(frame.scenario == scenario + suffix) & frame.method.isin(SPLIT)].set_index("method")
            if suffix:
                some = some[some.index.isin(["ditto", "fedrod"])]
            ys = [list(SPLIT).index(name) for name in some.index]
            means, low, high = 100 * some["mean"], 100 * some.ci_low, 100 * some.ci_high
            bars = {"marker": mark, "markersize": 5, "linestyle": "none", "color": colour, "label": label}
            ax.errorbar(means, ys, xerr=[means - low, high - means], **bars)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("accuracy, %, 95 % interval", fontsize=8.5)
        _plain(ax)
    axes[0].set_yticks(range(len(SPLIT)), list(SPLIT.values()))
    axes[0].invert_yaxis()
    axes[1].legend(fontsize=8, frameon=False, loc="lower right")
    return figure


DEVICES = {
    "laptop": "two laptops",
    "jetson_orin_nano": "Jetson Orin Nano",
    "phone_high": "good phone",
    "phone_low": "cheap phone",
    "raspberry_pi_4": "Raspberry Pi 4",
}
PICKED = {"fedra": "#0072b2", "inclusivefl": "#d55e00", "depthfl": "#009e73", "flora": "#cc79a7", "fedavg": "#e69f00"}


def devices() -> Figure:
    """Left: what each device scores with the model that it can run. Right: sub-models by their number of layers."""
    frame = compared("devices", "sizes").query("scenario == 'hurried'").set_index("method")
    figure = Figure(figsize=(9.2, 3.4), layout="constrained", **STYLE)
    left, right = figure.subplots(1, 2, sharey=True)
    for name, colour in PICKED.items():
        row = 100 * pandas.to_numeric(frame.loc[name].filter(regex=r"^(on \w+|layers \d+)$"))
        left.plot(row[[f"on {device}" for device in DEVICES]].to_numpy(), "o", color=colour, label=name)
        if name in ("fedra", "inclusivefl", "depthfl"):
            right.plot(range(1, 13), row[[f"layers {L_n}" for L_n in range(1, 13)]].to_numpy(), "o-", color=colour)
    left.set_xticks(range(len(DEVICES)), [name.replace(" ", "\n", 1) for name in DEVICES.values()])
    left.set_ylabel("accuracy, % (mean of 3 seeds)", fontsize=8.5)
    left.set_title("On the images of each device", fontsize=10)
    right.set_xticks(range(1, 13))
    right.set_xlabel("layers of the deployed sub-model", fontsize=8.5)
    right.set_title("On all images, by depth", fontsize=10)
    for ax in (left, right):
        _plain(ax)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return figure


def curves() -> Figure:
    """Accuracy over rounds: the mean over ten seeds and its standard deviation, a panel for each backbone."""
    frame = fedbench.load_results(quoted.ROOT / "results/reference/feature_skew_tuned")
    frame = frame[(frame.split == "test") & (frame.metric == "accuracy")]
    seeds = frame.groupby(["backbone", "method", "seed", "round"]).value.mean().groupby(level=[0, 1, 3])
    means, errors = 100 * seeds.mean(), 100 * seeds.std()
    figure = Figure(figsize=(9.2, 3.4), layout="constrained", **STYLE)
    axes = figure.subplots(1, 2, sharey=True)
    colours = {"alllarge": "#777777", "head_only": "#222222"} | {name: PICKED[name] for name in list(PICKED)[:3]}
    for ax, (backbone, title) in zip(axes, BACKBONES.items(), strict=True):
        for name, colour in colours.items():
            line, error = means[backbone, name], errors[backbone, name]
            style = "--" if name in ("alllarge", "head_only") else "-"
            ax.plot(line.index, line, style, color=colour, label=name)
            ax.fill_between(line.index, line - error, line + error, color=colour, alpha=0.15, linewidth=0)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("round", fontsize=8.5)
        _plain(ax)
    axes[0].set_ylabel("accuracy, % (mean and sd of 10 seeds)", fontsize=8.5)
    axes[0].legend(fontsize=8, frameon=False, loc="lower right")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "overview": overview,
    "prefixes": lambda: forest(("fedra", "inclusivefl"), ("fedra", "depthfl")),
    "probe": lambda: forest(*((name, "head_only") for name in ("fedra", "inclusivefl", "depthfl"))),
    "others": lambda: others(FIELD, 6.4, "fedra"),
    "texts": lambda: others(TEXTS, 4.2, "head_only"),
    "field": field,
    "devices": devices,
    "split": split,
    "curves": curves,
}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or FIGURES:
        FIGURES[chosen]().savefig(DOCS / f"{chosen}.png")
