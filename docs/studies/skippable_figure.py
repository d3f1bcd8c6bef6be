"""Draws how well layers can be left out against FedRA minus InclusiveFL; the command line stands at the end.

A dot is a recipe of pre-training on one backbone; what it is the mean of, and what its bars are 95 % intervals over,
are pre-training runs (seeds of the weights): those are the replicates of the question. Seeds of the federation are
averaged within each run, paired: both methods had the same data and the same draws.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import layers_left_out
import numpy as np
from layers_left_out import Score
from matplotlib.figure import Figure

from fedbench.errors import UserError
from fedbench.report.pictures.style import GREY, WIDTH, legend_below, paper, save
from fedbench.report.statistics.pairs import benjamini_hochberg, interval
from fedbench.results import Result, load
from fedbench.results.scores import average, by_round

CHANCE = 1 / 30  # of strokes6's classes
LEFT_OUT = 6  # of 12: what a client of the scenario all_6 does without
OURS, THEIRS, CONTROL = "fedra", "inclusivefl", "head_only"
COLORS = {"micro_vit": "#0072B2", "micro_mixer": "#D55E00"}  # Okabe and Ito's
MARKERS = "o^vsDPXph<>*"
TITLES = {"all_6": "6 of 12 layers each", "mixed": "depths at most 10"}
BACKBONES = {"micro_vit": "ViT", "micro_mixer": "MLP-Mixer"}

Scores = Mapping[tuple[str, str, str], Mapping[int, float]]  # by scenario, weights and method, then by seed


@dataclass(frozen=True)
class Dot:
    """One recipe on one backbone in one scenario, a value for each pre-training run: which share of the probe's score
    is kept, and in points FedRA minus InclusiveFL, and either minus head_only (no value where
    a run has no such cells)."""

    scenario: str
    backbone: str
    recipe: str
    kept: list[float]
    gain: list[float]
    ours: list[float]
    theirs: list[float]


def kept(found: Iterable[Score], k: int) -> dict[str, float]:
    """By weights: the mean score over random draws of k layers left out, of that of the whole model, both above
    chance."""
    whole: dict[str, float] = {}
    without: dict[str, list[float]] = defaultdict(list)
    for score in found:
        if score.left_out == "none":
            whole[score.weights] = score.accuracy
        elif (score.left_out, score.k) == ("random", k):
            without[score.weights].append(score.accuracy)
    return {key: (float(np.mean(values)) - CHANCE) / (whole[key] - CHANCE) for key, values in without.items()}


def accuracies(results: Iterable[Result]) -> Scores:
    """The accuracy after the last round, the mean over domains, in percent, of every finished cell."""
    found: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for result in results:
        if result.status == "finished":
            one, rounds = result.entry, by_round(result.eval, "accuracy", "test")
            key = (one.scenario, result.manifest["fingerprints"]["weights"], one.method)
            found[key][one.seed] = 100 * average(rounds[max(rounds)])
    return found


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The mean over the seeds that both have; None where there are none."""
    both = ours.keys() & theirs.keys()
    return float(np.mean([ours[seed] - theirs[seed] for seed in sorted(both)])) if both else None


def dots(found: Sequence[Score], cells: Scores, k: int = LEFT_OUT) -> list[Dot]:
    """What is to be drawn, by scenario, backbone and recipe. Raises: UserError where scores and cells share no
    weights."""
    share, names = kept(found, k), {score.weights: (score.backbone, score.recipe) for score in found}
    made: dict[tuple[str, str, str], Dot] = {}
    for scenario, weights in dict.fromkeys((scenario, weights) for scenario, weights, _ in cells):
        methods = [cells.get((scenario, weights, method), {}) for method in (OURS, THEIRS, CONTROL)]
        gain, ours, theirs = (difference(methods[a], methods[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
        if gain is None or weights not in share:
            continue
        dot = made.setdefault((scenario, *names[weights]), Dot(scenario, *names[weights], [], [], [], []))
        dot.kept.append(100 * share[weights])
        dot.gain.append(gain)
        for part, value in ((dot.ours, ours), (dot.theirs, theirs)):
            part.extend([] if value is None else [value])
    if not made:
        raise UserError(f"no weights have both scores with {k} layers left out and finished cells of {OURS}, {THEIRS}")
    return list(made.values())


def link(x: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's rho and its p by all permutations, drawn ones from nine values on; None below four values."""
    from scipy.stats import permutation_test, rankdata

    if len(x) < 4 or min(len(set(x)), len(set(y))) < 2:
        return None
    a, b = (ranks - ranks.mean() for ranks in (rankdata(x), rankdata(y)))
    scale = np.sqrt((a @ a) * (b @ b))

    def rho(one: np.ndarray, axis: int) -> np.ndarray:
        return np.tensordot(one, b, (axis, 0)) / scale

    tested = permutation_test((a,), rho, permutation_type="pairings", n_resamples=50_000, rng=0, vectorized=True)
    return float(tested.statistic), float(tested.pvalue)


def told(found: Sequence[Dot]) -> list[str]:
    """The figure in words: a line for each dot, and for each scenario and backbone how the two go together."""
    lines = [f"{'':44} runs  {'score kept %':22} {'FedRA-InclusiveFL':22} {'FedRA-head_only':22} InclusiveFL-head_only"]
    for dot in found:
        name = f"{dot.scenario:8} {dot.backbone:12} {dot.recipe:22}"
        values = [with_interval(part) for part in (dot.kept, dot.gain, dot.ours, dot.theirs)]
        lines.append(f"{name} {len(dot.gain):4}  {values[0]:22} {values[1]:22} {values[2]:22} {values[3]}".rstrip())
    groups: dict[tuple[str, str], list[Dot]] = defaultdict(list)
    for dot in found:
        groups[dot.scenario, dot.backbone].append(dot)
    links = {
        key: one
        for key, part in groups.items()
        if (one := link([np.mean(dot.kept) for dot in part], [np.mean(dot.gain) for dot in part]))
    }
    adjusted = benjamini_hochberg([p for _, p in links.values()])
    for ((scenario, backbone), (rho, p)), q in zip(links.items(), adjusted, strict=True):
        count = len(groups[scenario, backbone])
        lines.append(f"{scenario} {backbone}: rho {rho:+.2f} over {count} recipes, p {p:.3f}, adjusted {q:.3f}")
    return lines


def with_interval(values: Sequence[float]) -> str:
    """The mean, and its 95 % interval where there are three values."""
    if not values:
        return ""
    one = interval(values)
    return f"{np.mean(values):.1f}" + (f" [{one.low:.1f}, {one.high:.1f}]" if one else "")


def figure(found: Sequence[Dot], k: int = LEFT_OUT) -> Figure:
    """A panel for each scenario: colours are backbones, markers recipes."""
    scenarios = list(dict.fromkeys(dot.scenario for dot in found))
    recipes = dict(zip(dict.fromkeys(dot.recipe for dot in found), MARKERS, strict=False))
    with paper():
        drawn = Figure(figsize=(WIDTH, 3.9))
        axes = drawn.subplots(1, len(scenarios), sharex=True, sharey=True, squeeze=False)[0]
        for ax, scenario in zip(axes, scenarios, strict=True):
            ax.axhline(0, color=GREY, linewidth=0.6)
            for dot in (dot for dot in found if dot.scenario == scenario):
                color = COLORS.get(dot.backbone, GREY)
                ax.errorbar(
                    np.mean(dot.kept), np.mean(dot.gain), xerr=bar(dot.kept), yerr=bar(dot.gain), color=color,
                    marker=recipes[dot.recipe], markersize=6, elinewidth=0.7, capsize=1.5, linestyle="none",
                )  # fmt: skip
            ax.set_title(TITLES.get(scenario, scenario))
            ax.set_xlabel(f"probe's score kept without {k} random layers (%)")
            ax.grid()
        axes[0].set_ylabel("FedRA minus InclusiveFL (points)")
        for backbone in dict.fromkeys(dot.backbone for dot in found):
            name = BACKBONES.get(backbone, backbone)
            axes[0].plot([], [], marker="o", linestyle="none", color=COLORS.get(backbone, GREY), label=name)
        for recipe, marker in recipes.items():
            axes[0].plot([], [], marker=marker, linestyle="none", color=GREY, label=recipe.replace("_", " "))
        legend_below(drawn, axes, WIDTH)
    return drawn


def bar(values: Sequence[float]) -> list[list[float]] | None:
    """Lengths of an error bar below and above the mean, none without an interval."""
    one, mean = interval(values), float(np.mean(values))
    return [[mean - one.low], [one.high - mean]] if one else None


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--k", type=click.IntRange(min=1), default=LEFT_OUT, show_default=True, help="Layers left out.")
@click.option(
    "--output", "-o", "out", type=click.Path(dir_okay=False, path_type=Path), default="skippable.png", show_default=True
)
def main(table: Path, results: tuple[Path, ...], k: int, out: Path) -> None:
    """Draw TABLE, which layers_left_out.py wrote, against the cells under RESULTS, and print the same in words.

    \b
    python docs/studies/skippable_figure.py skippable.csv results/skippable --output docs/skippable.png
    """
    scores = [score for score in layers_left_out.read(table) if score.probe == "full"]
    found = dots(scores, accuracies(load(results)), k)
    save(figure(found, k), out)
    click.echo("\n".join([*told(found), f"wrote {out}"]))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"Error: {error}") from error
