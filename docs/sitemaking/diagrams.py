"""Diagrams and pictures of the program: `python -m sitemaking.diagrams` draws them again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from click.testing import CliRunner
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from fedbench.cli import main
from fedbench.families.allocation import draw
from fedbench.registry.registry import Registry
from fedbench.types import Plan

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
CAPACITIES = [12, 10, 8, 6, 4, 3]
# White behind everything, so that a figure is as legible on a dark page as on a light one.
STYLE = {"dpi": 150, "facecolor": "white"}
ABSENT, FROZEN, TRAINED, LINE = "#e8eef3", "#9cc7e3", "#0072b2", "#444444"


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure whose axes have inches as units and show nothing by themselves."""
    figure = Figure(figsize=(width, height), **STYLE)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width)
    ax.set_ylim(0, height)
    ax.axis("off")
    return figure, ax


def _box(ax: Axes, x: float, y: float, width: float, height: float, text: str, colour: str = "white") -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=0.08", "facecolor": colour, "edgecolor": LINE, "linewidth": 1}
    ax.add_patch(FancyBboxPatch((x, y), width, height, **style))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5, linespacing=1.35)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", dx: float = 0.08) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE, "linewidth": 1.1})
    if text:
        middle = (start[0] + end[0]) / 2 + dx, (start[1] + end[1]) / 2
        side = {"ha": "left" if dx > 0 else "right", "va": "center"}
        ax.text(*middle, text, fontsize=8, linespacing=1.3, **side)


def _layers(ax: Axes, x: float, y: float, held: list[int], size: float = 0.2) -> None:
    """Six layers as a column of squares, the first at the bottom; those in `held` are trained."""
    for j in range(6):
        colour = TRAINED if j in held else ABSENT
        ax.add_patch(Rectangle((x, y + j * size), 1.6 * size, 0.86 * size, facecolor=colour, edgecolor="none"))


def round_of_training() -> Figure:
    """One round: what the server sends to three clients of unequal capacity, and what it makes of their work."""
    figure, ax = _canvas(9.2, 4.3)
    text = (
        "server: draws who holds which layers, and averages each layer over the clients\n"
        "that returned it. A layer that nobody returned keeps its value."
    )
    _box(ax, 0.3, 3.35, 8.6, 0.75, text, "#f3f6f8")
    held_by = {
        "a client of 6 layers": [0, 1, 2, 3, 4, 5],
        "one of 4": [0, 2, 3, 5],
        "one of 2": [1, 4],
    }
    does = "trains the adapters of\nthese layers and the\nclassifier on its own\nimages"
    for n, (title, held) in enumerate(held_by.items()):
        x = 0.3 + 2.95 * n
        _box(ax, x, 0.25, 2.7, 1.75, "")
        ax.text(x + 0.62, 1.72, title, fontsize=8.5, va="center")
        _layers(ax, x + 0.16, 0.4, held)
        ax.text(x + 0.62, 0.95, does, fontsize=8.5, va="center", linespacing=1.35)
        _arrow(ax, (x + 0.75, 3.3), (x + 0.75, 2.05), "1. frozen layers,\nadapters,\nclassifier")
        _arrow(ax, (x + 1.85, 2.05), (x + 1.85, 3.3), "2. trained\nadapters,\nclassifier")
    return figure


def allocations() -> Figure:
    """Who holds and who trains which of twelve layers in one round, for four methods."""
    registry = Registry()
    shown = {
        "FedRA: random layers": {"name": "random"},
        "InclusiveFL, DepthFL: the first layers": {"name": "prefix"},
        "AllSmall: what the weakest client can hold": {"name": "prefix"},
        "knapsack with hold: all, others run frozen": {"name": "knapsack", "hold": "all"},
    }
    figure = Figure(figsize=(9.2, 4.4), layout="constrained", **STYLE)
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    state = {"scores": torch.linspace(1, 2, 12) ** 2 % 1.7, "history": torch.ones(12, dtype=torch.int64)}
    for ax, (title, ref) in zip(axes, shown.items(), strict=True):
        L_n = torch.tensor([3] * 6 if title.startswith("AllSmall") else CAPACITIES)
        known = {"layer_memory": lambda: torch.ones(12), "memory_budgets": lambda L_n=L_n: L_n.double()}
        generator = torch.Generator().manual_seed(1)
        drawn = draw(registry.make("allocation", ref), L_n, 12, 0, list(range(6)), state, generator,
                     lambda: torch.ones(12), known)  # fmt: skip
        grid = drawn.M.int() + drawn.trained.int() if isinstance(drawn, Plan) else 2 * drawn.int()
        ax.imshow(grid.numpy(), cmap=ListedColormap([ABSENT, FROZEN, TRAINED]), vmin=0, vmax=2, aspect="auto")
        ax.set_title(title, fontsize=9)
        ax.set_xticks([x - 0.5 for x in range(13)], minor=True)
        ax.set_yticks([y - 0.5 for y in range(7)], minor=True)
        ax.grid(which="minor", color="white", linewidth=1.5)
        ax.tick_params(which="both", length=0, labelsize=8)
        ax.spines[:].set_visible(False)
    axes[0].set_xticks([0, 5, 11], ["layer 1", "layer 6", "layer 12"])
    axes[0].set_yticks(range(6), [f"L_n = {L_n}" for L_n in CAPACITIES])
    marks = [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in (TRAINED, FROZEN, ABSENT)]
    names = ["held and trained", "held, run frozen", "absent"]
    figure.legend(marks, names, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


# The way of a cell: where a step is, and what it does.
STEPS = [
    ("commands/run.py", "reads options,\nshows progress"),
    ("runner/runner.py", "prepares, computes,\npacks"),
    ("runner/cells.py", "makes cells\nand their ids"),
    ("runner/local.py", "--jobs cells\nat a time"),
    ("processes/supervisor.py", "starts a child,\nreads its events"),
    ("processes/guard.py", "deadline, memory,\nend of the tree"),
    ("simulation/worker.py", "lock, checkpoint,\nmanifest"),
    ("simulation/simulation.py", "the round loop"),
    ("results/", "Parquet tables"),
    ("report/", "DataFrames,\nthen text, HTML"),
]
PROCESSES = [(0, 5, "the run's process"), (5, 8, "two processes for each cell"), (8, 10, "files, and what reads them")]


def architecture() -> Figure:
    """The way of one cell through the packages, and which process each step is in."""
    figure, ax = _canvas(9.2, 4.5)
    colours = ("#f3f6f8", "#e3eff7", "#eef5ea")
    for row, (first, last, title) in enumerate(PROCESSES):
        y = 3.2 - 1.45 * row
        ax.text(1.15 if row else 0.15, y + 0.98, title, fontsize=9, va="center", weight="bold")
        for n, (file, does) in enumerate(STEPS[first:last]):
            x = 0.12 + 1.52 * n
            _box(ax, x, y, 1.36, 0.82, "", colours[row])
            ax.text(x + 0.68, y + 0.65, file, ha="center", va="center", fontsize=6.5, family="monospace", weight="bold")
            ax.text(x + 0.68, y + 0.3, does, ha="center", va="center", fontsize=8, linespacing=1.25)
            if n:
                _arrow(ax, (x - 0.16, y + 0.41), (x, y + 0.41))
    words = (1, "a job as JSON; events as JSON come back", -0.1), (2, "rows after every round", 0.1)
    for row, text, dx in words:
        first, last, _ = PROCESSES[row - 1]
        start = 0.8 + 1.52 * (last - first - 1)
        y = 3.2 - 1.45 * row
        ax.plot([start, start, 0.8], [y + 1.43, y + 1.2, y + 1.2], color=LINE, linewidth=1.1)
        _arrow(ax, (0.8, y + 1.2), (0.8, y + 0.83))
        ax.text(
            start + dx, y + (1.07 if dx < 0 else 1.28), text, fontsize=8, ha="right" if dx < 0 else "left", va="center"
        )
    return figure


def terminal() -> Figure:
    """The quickstart's leaderboard as a terminal shows it."""
    folder = str(ROOT / "results/reference/quickstart")
    runner = CliRunner(env={"COLUMNS": "88"})
    out = runner.invoke(main, ["compare", folder], catch_exceptions=False).output
    lines = ["$ fedbench compare results/quickstart", *out.rstrip().splitlines()]
    figure, ax = _canvas(6.1, 0.35 + 0.165 * len(lines))
    figure.set_facecolor("#1d1f24")
    top = figure.get_figheight() - 0.25
    for n, line in enumerate(lines):
        colour = "#8ad1ff" if line.startswith("$") else "#f0f0f0"
        ax.text(0.2, top - 0.165 * n, line, family="DejaVu Sans Mono", fontsize=8, color=colour, va="center")
    return figure


DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "round": round_of_training,
    "layers": allocations,
    "architecture": architecture,
    "terminal": terminal,
}


def report() -> None:
    """Take the picture of a report in Chromium; raises an error where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "the picture of a report needs chromium"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        source = str(ROOT / "results/reference/feature_skew_tuned")
        line = ["report", source, "--variant", "*micro_vit*", "-o", str(page)]
        CliRunner().invoke(main, line, catch_exceptions=False)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"]
        size = ["--window-size=1280,1445", f"--screenshot={DOCS / 'report.png'}"]
        subprocess.run([browser, *options, *size, page.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*DIAGRAMS, "report"]:
        if chosen == "report":
            report()
        else:
            DIAGRAMS[chosen]().savefig(DOCS / f"{chosen}.png")
