"""Which client trained which layer, and how often: a heat-map for each method, and the layers' sums beneath."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from fedbench.errors import UserError
from fedbench.report.cost import layer_coverage
from fedbench.report.pictures.boards import Board
from fedbench.report.pictures.style import GREY, WIDTH, layer_axis, paper

Rows = Sequence[Mapping[str, Any]]
NEEDED = ["round", "client", "domain", "capacity", "trained_layers", "arrived"]
MOST_CLIENTS = 24  # rows that stay readable; above, clients are drawn by domain
COLUMNS = 3


@dataclass(frozen=True)
class Shares:
    """What is drawn of one method: by row (a client, or all of a domain) and layer, the share (rows, L) of its rounds
    in which it trained the layer and its work arrived; and clients that did, in a mean round (L,)."""

    share: np.ndarray
    holders: np.ndarray
    gamma: int
    coverage: float


def allocation(board: Board) -> Figure:
    """One seed of every method that trains layers (`Board.one_seed`).

    Raises: UserError where no method trains a layer.
    """
    results = board.one_seed()
    rounds = {label: result.rounds.select(NEEDED).to_pylist() for label, result in results.items()}
    rounds = {label: rows for label, rows in rounds.items() if any(row["trained_layers"] for row in rows)}
    if not rounds:
        raise UserError(f"{board.title}: no method of these results trains a layer")
    everybody = [row for rows in rounds.values() for row in rows]
    L = max(max(row["capacity"] for row in everybody), 1 + max(j for row in everybody for j in row["trained_layers"]))
    groups = _groups(everybody)
    found = {label: shares(rows, everybody, groups, L, results[label].num_rounds) for label, rows in rounds.items()}
    return _drawn(found, groups)


def _groups(everybody: Rows) -> dict[str, list[int]]:
    """The rows of the heat-maps: a client each, or all clients of a domain where there are many."""
    domain = dict(sorted({row["client"]: row["domain"] for row in everybody}.items()))
    if len(domain) > MOST_CLIENTS:
        names = {d: [n for n in domain if domain[n] == d] for d in dict.fromkeys(domain.values())}
        return {f"{d} ({len(clients)})": clients for d, clients in names.items()}
    capacity: dict[int, set[int]] = {}
    for row in everybody:
        capacity.setdefault(row["client"], set()).add(row["capacity"])
    return {f"{n} · {domain[n]} · {_span(capacity[n])}": [n] for n in domain}


def _span(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def shares(rows: Rows, everybody: Rows, groups: Mapping[str, Sequence[int]], L: int, T: int) -> Shares:
    """One method's part of T rounds; everybody: the rows of all methods, which say in what rounds a client was there
    at all."""
    place = {client: i for i, clients in enumerate(groups.values()) for client in clients}
    asked = {(row["round"], row["client"]) for row in everybody}
    there = np.bincount([place[client] for _, client in asked], minlength=len(groups))
    trained = np.zeros((len(groups), L))
    for row in rows:
        if row["arrived"]:
            trained[place[row["client"]], row["trained_layers"]] += 1
    rounds, held, arrived = ([row[name] for row in rows] for name in ("round", "trained_layers", "arrived"))
    gamma, coverage = layer_coverage(rounds, held, arrived, T)
    holders = trained.sum(0) / T
    return Shares(trained / there[:, None], holders, gamma or 0, coverage or 0.0)


def _drawn(found: Mapping[str, Shares], groups: Mapping[str, Sequence[int]]) -> Figure:
    columns = min(COLUMNS, len(found))
    height = max(0.8, 0.17 * len(groups))
    alone = all(len(clients) == 1 for clients in groups.values())
    most = max(one.holders.max() for one in found.values())
    with paper():
        inches = 0.45 + -(-len(found) // columns) * (height + 1.05)
        figure = Figure(figsize=(WIDTH if columns > 1 else 4.2, inches))
        pairs = _pairs(figure, len(found), columns, height)
        for i, ((above, below), (label, one)) in enumerate(zip(pairs, found.items(), strict=True)):
            image = _heat(above, one, f"{label}\nΓ* {one.gamma}, cover {one.coverage:.1f}")
            _sums(below, one.holders, most)
            if i % columns == 0:
                above.set_yticks(range(len(groups)), list(groups))
                above.set_ylabel("client · domain · $L_n$" if alone else "domain (clients)")
                below.set_yticks([0, most], ["0", f"{most:.3g}"])
                below.set_ylabel("clients")
                below.spines["left"].set_visible(True)
            if i + columns >= len(found):
                below.set_xlabel("layer")
        bar = figure.colorbar(image, ax=figure.axes, shrink=min(0.7, 2.2 / inches), aspect=20, pad=0.02)
        bar.set_label("rounds in which it\ntrained the layer (%)")
        bar.outline.set_visible(False)
    return figure


def _pairs(figure: Figure, count: int, columns: int, height: float) -> list[tuple[Axes, Axes]]:
    """For each method the axes of its heat-map, `height` inches high, and of the sums beneath."""
    rows = -(-count // columns)
    axes = figure.subplots(2 * rows, columns, squeeze=False, sharex=True, height_ratios=[height, 0.42] * rows)
    pairs = [(axes[2 * row, k], axes[2 * row + 1, k]) for row in range(rows) for k in range(columns)]
    for above, below in pairs[count:]:
        above.remove()
        below.remove()
    return pairs[:count]


def _heat(ax: Axes, one: Shares, title: str) -> AxesImage:
    ax.set_title(title, fontsize=8.5)
    image = ax.imshow(100 * one.share, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    rows, L = one.share.shape
    ax.hlines(np.arange(rows - 1) + 0.5, -0.5, L - 0.5, color="white", linewidth=0.8)
    ax.vlines(np.arange(L - 1) + 0.5, -0.5, rows - 0.5, color="white", linewidth=0.8)
    ax.set_yticks([])
    ax.tick_params(length=0, labelbottom=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color=GREY, linewidth=0.4)
    return image


def _sums(ax: Axes, holders: np.ndarray, most: float) -> None:
    ax.bar(range(len(holders)), holders, color="#4C86B8", width=0.8)
    ax.set_ylim(0, most)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    layer_axis(ax, len(holders))
    ax.tick_params(labelbottom=True)
