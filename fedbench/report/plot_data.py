"""Data of plots: curves over rounds or costs, who trained which layer how often, and the look of each method."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedbench.errors import UserError
from fedbench.report.budget import check_known
from fedbench.report.grouping import Place, by_label, distinct, headings, registered, settings
from fedbench.report.run_scores import MANY_DOMAINS, SHARES, among_domains, curve
from fedbench.results import Result

if TYPE_CHECKING:
    import pandas

# What the x axis may be, and how it is called.
AXES = {
    "rounds": "round",
    "bytes": "bytes down + up, all clients",
    "flops": "FLOPs of all clients",
    "seconds": "simulated time",
    "joules": "energy of all clients",
}

# The panels of more than MANY_DOMAINS domains, and which share of them each is of.
OF_MANY = dict(zip(("worst domain", "lower quartile", "median domain"), SHARES.values(), strict=True))
MOST_CLIENTS = 24  # rows that stay readable; above, clients are drawn by domain


@dataclass(frozen=True)
class Board:
    """A leaderboard's results: every method's finished seeds, by the method's label.

    title: what sets it apart from the other boards, whose `shared` is what they have in common; or its scenario
    where there is nothing of that.
    """

    place: Place
    title: str
    methods: Mapping[str, Sequence[Result]]
    shared: str = ""

    @property
    def suite(self) -> str:
        return self.place.suite

    @property
    def registered(self) -> dict[str, str]:
        """By label, the name its method is registered under."""
        return {label: registered(part) for label, part in self.methods.items()}

    def one_seed(self) -> dict[str, Result]:
        """Each method's result of the first seed that all have, because capacities may rotate with the seed; where
        they share none, of its own first."""
        shared = set.intersection(*({r.entry.seed for r in part} for part in self.methods.values()))
        return {
            label: min((r for r in part if not shared or r.entry.seed in shared), key=lambda r: r.entry.seed)
            for label, part in self.methods.items()
        }


def slug(text: str) -> str:
    """A name as a part of a file's name."""
    return re.sub(r"[^\w.=]+", "-", text).strip("-")


def boards(results: Sequence[Result]) -> list[Board]:
    """The settings that `compare` would show as leaderboards, as far as cells have finished.

    Raises: UserError where none has.
    """
    found = []
    for variant, group in settings(results):
        methods = {label: [r for r in part if r.status == "finished"] for label, part in by_label(group).items()}
        if methods := {label: part for label, part in methods.items() if part}:
            e = group[0].entry
            place = Place(group[0].suite, e.scenario, variant, e.backbone, e.dataset, e.profile)
            found.append((place, methods))
    if not found:
        raise UserError("no cell of these results has finished yet: there is nothing to draw")
    places = [place for place, _ in found]
    shared = headings(places).shared
    return [
        Board(place, title, methods, shared) for (place, methods), title in zip(found, distinct(places), strict=True)
    ]


class CurvePoint(NamedTuple):
    """One evaluated round of one seed: where on the x axis, and its average and domains."""

    x: float
    average: float
    domains: Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """One method in one panel: x (R,) of its evaluated rounds, mean and sample standard deviation over seeds (R,), NaN
    for one seed. What was spent is a mean over seeds, too."""

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def by_panel(boards: Sequence[Board], metric: str, by_domain: bool, x: str) -> dict[str, dict[str, Line]]:
    """The lines of every panel, by title and method, in order. Raises: UserError where of no result is known what it
    has spent."""
    if x != "rounds":
        check_known([r for board in boards for part in board.methods.values() for r in part], x)
    panels: dict[str, dict[str, Line]] = {}
    for board in boards:
        for label, results in board.methods.items():
            seeds = [found for r in results if (found := points(r, metric, x))]
            domains = dict.fromkeys(d for seed in seeds for point in seed.values() for d in point.domains)
            many = len(domains) > MANY_DOMAINS
            for domain in (OF_MANY if many else domains) if by_domain else [None] if seeds else ():
                title = " · ".join(filter(None, (board.title if len(boards) > 1 or not domain else "", domain)))
                share = OF_MANY[domain] if many and domain else None
                panels.setdefault(title, {})[label] = line(seeds, domain, share, metric)
    return panels


def points(result: Result, metric: str, x: str) -> dict[int, CurvePoint]:
    """By evaluated round; none where it is not known what was spent."""
    found = curve(result.scores(metric))
    if x == "rounds":
        return {t: CurvePoint(t, *values) for t, values in found.items()}
    spent = result.paid(x)
    return {t: CurvePoint(spent.by(t), *values) for t, values in found.items()} if spent else {}


def line(
    seeds: Sequence[Mapping[int, CurvePoint]], domain: str | None, share: float | None = None, metric: str = ""
) -> Line:
    """The average, the value of a domain, or where there are many what `among_domains` says of a share of them."""
    found = [[seed[t] for seed in seeds if t in seed] for t in sorted({t for seed in seeds for t in seed})]
    if share is None:
        values = [[_value(point, domain) for point in each] for each in found]
    else:
        values = [[among_domains(point.domains, metric, share) for point in each] for each in found]
    std = [np.std(v, ddof=1) if len(v) > 1 else np.nan for v in values]
    x = [np.mean([point.x for point in each]) for each in found]
    return Line(np.array(x), np.array([np.mean(v) for v in values]), np.array(std))


def _value(point: CurvePoint, domain: str | None) -> float:
    return point.average if domain is None else point.domains.get(domain, np.nan)


@dataclass(frozen=True)
class Shares:
    """What is drawn of one method: by row (a client, or all of a domain) and layer, the share (rows, L) of its rounds
    in which it trained the layer and its work arrived; and clients that did, in a mean round (L,)."""

    share: np.ndarray
    holders: np.ndarray
    gamma: int
    coverage: float


def by_method(results: Mapping[str, Result]) -> tuple[dict[str, Shares], dict[str, list[int]]]:
    """(what is drawn of every method that trains layers, by label; the clients of each row, by its name); both empty
    where none does, or their tables of rounds are lost."""
    import pandas  # which takes a while, and most of the program goes without

    results = {label: r for label, r in results.items() if r.totals["rows"]}
    if not results:
        return {}, {}
    read = ["round", "client", "domain", "capacity", "trained_layers", "arrived"]
    tables = [r.rounds.select(read).to_pandas().assign(method=label) for label, r in results.items()]
    rounds = pandas.concat(tables, ignore_index=True)
    layers = rounds.explode("trained_layers").dropna(subset="trained_layers").astype({"trained_layers": int})
    layers = layers[layers["trained_layers"] >= 0]
    labels = list(layers["method"].unique())
    if not labels:
        return {}, {}
    rounds = rounds[rounds["method"].isin(labels)]
    known = [label for label in labels if "capacities" not in results[label].manifest.get("ignored", ())]
    depths = rounds[rounds["method"].isin(known)].groupby("client")["capacity"].agg(["min", "max"])
    groups = _groups(rounds.groupby("client")["domain"].last(), depths)
    L = int(max(rounds["capacity"].max(), 1 + layers["trained_layers"].max()))
    place = {client: i for i, clients in enumerate(groups.values()) for client in clients}
    # In how many rounds each client was there at all, whichever method asked it.
    asked = rounds.groupby("client")["round"].nunique().rename(place).groupby(level=0).sum()
    found = {}
    for label in labels:
        own = layers[(layers["method"] == label) & layers["arrived"]]
        trained = np.zeros((len(groups), L))
        np.add.at(trained, (own["client"].map(place), own["trained_layers"]), 1)
        totals, holders = results[label].totals, trained.sum(0) / results[label].num_rounds
        share = trained / asked.to_numpy()[:, None]
        found[label] = Shares(share, holders, totals["gamma"] or 0, totals["coverage"] or 0.0)
    return found, groups


def _groups(domains: pandas.Series, depths: pandas.DataFrame) -> dict[str, list[int]]:
    """The rows of the heat-maps: a client each, or all clients of a domain where there are many.

    Args:
        domains: By client.
        depths: By client, as far as methods read them, the `min` and `max` of its capacities.
    """
    if len(domains) > MOST_CLIENTS:
        names = {d: domains.index[domains == d].tolist() for d in domains.unique()}
        return {f"{d} ({len(clients)})": clients for d, clients in names.items()}
    spans = {n: f" · {least}" if least == most else f" · {least} to {most}" for n, least, most in depths.itertuples()}
    clients = zip(domains.index.tolist(), domains, strict=True)
    return {f"{n} · {domain}{spans.get(n, '')}": [n] for n, domain in clients}


# Looks of methods: a colour, a marker and a line each, by name, the same in every picture and on the page

MOST = 8  # methods of a panel in colour; of more, the others are grey and the points have names
FAINT = "#A9A9A9"  # of methods in grey

# Okabe and Ito's colours without yellow, and two of Paul Tol's: a reader with any kind of colour blindness sees nine.
COLORS = {
    "vermilion": "#D55E00",
    "blue": "#0072B2",
    "green": "#009E73",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "pink": "#CC79A7",
    "indigo": "#332288",
    "wine": "#882255",
    "black": "#000000",  # of the ceiling
}
MARKERS = "os^vDp*h<>dXP"
# Ways to draw a line, as matplotlib has them: a name, or (offset, lengths of strokes and gaps in widths of the line).
LINES: dict[str, Any] = {
    "solid": "-",
    "dash-dot": "-.",
    "long": (0, (8, 2)),
    "dash-dot-dot": (0, (6, 1.5, 1, 1.5, 1, 1.5)),
    "short": (0, (3, 1.5)),
    "ceiling": "--",
    "control": ":",
    "constant": ":",
}
OF_METHODS = ("solid", "dash-dot", "long", "dash-dot-dot")

# Any two methods differ in every two of the three parts: points read without lines, and both without colour.
# They are data, so that the code knows no method by name.
_LOOKS = json.loads(files("fedbench.report").joinpath("looks.json").read_text(encoding="utf-8"))
BUILT_IN: Mapping[str, tuple[str, str, str]] = {name: tuple(look) for name, look in _LOOKS.items()}
_USED = {(color, marker) for color, marker, _ in BUILT_IN.values()}
FREE = [pair for pair in product([name for name in COLORS if name != "black"], MARKERS) if pair not in _USED]


def styles(methods: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Matplotlib's line options by label of a method.

    A built-in method has the look of its name. Any other label has one that follows from its letters; where a picture
    has its colour already, it takes the next that is free, as long as there are colours.

    Args:
        methods: By label, the name that its method is registered under.
        roles: Of registered methods, by name: what each is there for, one of ROLES.
    """
    found: dict[str, tuple[str, str, str]] = {}
    taken: set[tuple[str, str]] = set()
    found |= {label: BUILT_IN[label] for label in methods if label in BUILT_IN}
    colors = {color for color, _, _ in found.values()}
    for label in sorted(methods.keys() - found.keys()):
        number = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])
        turned = FREE[number % len(FREE) :] + FREE[: number % len(FREE)]
        pair = min(turned, key=lambda pair: (pair in taken, pair[0] in colors))
        taken.add(pair)
        colors.add(pair[0])
        role = roles.get(methods[label], "method")
        found[label] = (*pair, role if role in LINES else OF_METHODS[number // len(FREE) % len(OF_METHODS)])
    return {label: _options(*found[label]) for label in methods}


def _options(color: str, marker: str, line: str) -> dict[str, Any]:
    return {"color": COLORS[color], "linestyle": LINES[line], "marker": marker}


def greyed(looks: Mapping[str, dict[str, Any]], ordered: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The looks of one picture: all but the first MOST labels in grey. ordered: the labels, what matters most first."""
    first = list(dict.fromkeys(ordered))[:MOST]
    return {label: look if label in first else {**look, "color": FAINT} for label, look in looks.items()}
