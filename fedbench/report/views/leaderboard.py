"""Leaderboards as frames: scores, and those of single clients."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import Any

import pandas

from fedbench.errors import UserError
from fedbench.report.budget import MEANING
from fedbench.report.frames import (
    DOMAIN,
    FORMATS,
    ONE_OF_MANY,
    PLACE,
    Format,
    frame,
    is_blank,
    page,
    tables,
    with_attrs,
)
from fedbench.report.layout import unit_of
from fedbench.report.leaderboards import Leaderboard
from fedbench.report.run_scores import MANY_DOMAINS, SHARES, MeanScore, among_domains, score
from fedbench.report.significance import (
    conclusion,
    correction_of,
    legend_of_groups,
    legend_of_verdicts,
    margin_text,
)
from fedbench.report.statistics.pairs import BCA_FROM, Pair
from fedbench.results.scores import CONSTANT, higher_is_better
from fedbench.words import amount, counted

BOARD = (
    *PLACE,
    "method",
    "role",
    "mean",
    "std",
    "group",
    "ci_low",
    "ci_high",
    "n_seeds",
    "n_draws",
    "round",
    "status",
    "ranked",
)
# The costs of a leaderboard; the others stand in the view of costs.
COSTS = (
    "bytes", "gflops", "memory_min", "memory_median", "memory_max", "server_gflops", "server_memory", "simulated",
    "energy", "epsilon",
)  # fmt: skip

# What the columns of a leaderboard mean, where their titles do not say it.
MEANINGS = {
    "worst": "average, worst: over the domains of each seed.",
    "quartile": "lower quartile, median domain: a quarter and a half of the domains of each seed are no better; "
    "`--columns domains` shows all.",
    "client_sd": "average: plain mean over clients, each tested on its own examples. client sd, worst 10 %: standard "
    "deviation over clients, and mean of the worst tenth of them (at least one), of each seed; then means over seeds.",
    "n_draws": "draw: the seeds that give each client the same size, which rotate_capacities repeats. They are "
    "averaged, and draws are tested; shuffle_capacities gives each seed a draw of its own.",
    "collapsed": "collapsed: seeds that end more than 10 points of accuracy (0.5 of a loss) below an earlier score of "
    "theirs, or predict one class; they are in the mean.",
    "bytes": "down + up, GFLOPs: mean of one client in one round.",
    "memory_min": "memory min/med/max: the estimate of the weakest, the median and the largest client.",
    "server_gflops": "srv: what the server computes for one client in one round, and its memory for one at a time.",
    "spent": "round, spent: the last evaluated round within the budget, and what had been spent by then; other costs "
    "are of the whole run.",
    "simulated": "simulated: what all rounds take on the clients' devices, as the server waits.",
    "energy": "energy: of all clients in all rounds, while they compute.",
    "epsilon": "ε: of the client whose uploads were used most often, after all rounds, at the suite's delta; smaller "
    "is more private.",
}


def about(boards: Sequence[Leaderboard]) -> dict[str, Any]:
    """What a frame of leaderboards says of itself: metric, split, round, correction and margin."""
    first = boards[0] if boards else None
    return {
        "metric": first.metric if first else "accuracy",
        "split": first.split if first else "test",
        "round": first.at if first else "final",
        "correction": correction_of([board.pairs for board in boards]),
        "margin": margin_text(first.metric, first.margin) if first else "",
    }


def leaderboard(boards: Sequence[Leaderboard], every_domain: bool = False) -> pandas.DataFrame:
    """A row for each method of each leaderboard, ceilings first, then the best mean.

    Columns: suite, scenario, variant, backbone, dataset and profile; method, role, mean, std, group, ci_low, ci_high
    (95 % interval of the mean), n_seeds, round, status; the difference to the baseline with its interval and verdict;
    costs; and the mean of each domain. Scores are fractions, costs bytes, GFLOPs and seconds.

    every_domain: whether tables show each of more than MANY_DOMAINS domains.
    """
    rows = [row for board in boards for row in _board_rows(board)]
    domains = dict.fromkeys(_domain(name) for board in boards for name in board.domains)
    few = {_domain(name) for board in boards if not has_many_domains(board) for name in board.domains}
    shares = ("quartile", "median_domain") if any(map(has_many_domains, boards)) else ()
    scored = (
        "collapsed",
        "client_sd",
        "worst_clients",
        "worst",
        *shares,
        "gap",
        "gap_low",
        "gap_high",
        "gap_p",
        "gap_q",
    )
    names = (*BOARD, *scored, "verdict", "within", "spent", *COSTS, *domains)
    formats = {name: DOMAIN if every_domain or name in few else ONE_OF_MANY for name in domains}
    budget = next((board.at for board in boards if board.budget is not None), None)
    if budget:
        formats |= {"spent": Format("spent", budget, "low", "cost"), "round": Format("round", part="cost")}
    found = frame(
        rows,
        names,
        caption="Leaderboards: methods in one scenario and variant",
        pages=[page_of(board) for board in boards],
        formats=formats,
        **about(boards),
    )
    present = {name for row in rows for name, value in row.items() if not is_blank(value)}
    if not any(board.collapses[row.label] for board in boards for row in board.rows):
        present.discard("collapsed")
    found.attrs["legend"] = _legend(boards, present)
    return found


def has_many_domains(board: Leaderboard) -> bool:
    """Whether tables show the worst, the lower quartile and the median domain, and not each of them."""
    return len(board.domains) > MANY_DOMAINS


def page_of(board: Leaderboard, caption: str | None = None) -> dict[str, Any]:
    """What stands around the table of one leaderboard."""
    text = subtitle(board) if caption is None else caption
    above = conclusion(board.scores, board.pairs, board.replicate)
    notes = [*board.notes, *_collapses(board)]
    return page(board.place, caption=text, above=above, warning=board.warning, notes=notes)


def _collapses(board: Leaderboard) -> Iterable[str]:
    """A sentence on the rows of which seeds collapsed: how many, and how."""
    told = []
    for row in board.shown:
        hows = list(board.collapses[row.label].values())
        falls = sorted({int(how.rpartition(" ")[2]) for how in hows if how != CONSTANT})
        constant, of = hows.count(CONSTANT), f" of {counted(len(row.runs), 'seed')}"
        parts = [f"{constant}{of} predict{'s' * (constant == 1)} one class"] if constant else []
        if falls:
            rounds = f"{falls[0]} to {falls[-1]}" if len(falls) > 3 else " or ".join(map(str, falls))
            parts.append(f"{len(hows) - constant}{'' if parts else of} fell after round {rounds}")
        if parts:
            told.append(f"{row.label}: {', '.join(parts)}")
    if told:
        yield f"collapsed seeds: {'; '.join(told)}"


def _domain(name: str) -> str:
    """The column of a domain, which may be called like another column."""
    return f"{name} (domain)" if name in FORMATS or name in (*BOARD, *PLACE, "other", "domains") else name


def _board_rows(board: Leaderboard) -> Iterable[dict[str, Any]]:
    several = len(board.domains) > 1
    for row in board.shown:
        found: dict[str, Any] = {
            **board.place._asdict(),
            "method": row.label,
            "role": "" if row.output else row.role,
            **score_columns(row.average),
            "group": row.group,
            "n_seeds": len(row.runs),
            "n_draws": len(row.by_draw) if board.replicate == "draw" else None,
            "round": str(row.round) if row.runs else "",
            "status": row.status,
            "ranked": row.ranked,
            "collapsed": len(board.collapses[row.label]) if row.runs else None,
        }
        if board.by_client:
            found |= {"client_sd": mean_of(row.spread), "worst_clients": mean_of(row.worst_clients)}
        elif several:
            found["worst"] = mean_of(row.worst)
        if has_many_domains(board) and row.runs:
            for name in ("quartile", "median_domain"):
                by_seed = {run.seed: among_domains(run.domains, board.metric, SHARES[name]) for run in row.runs}
                found[name] = score(by_seed, row.draws).mean
        found |= _gap(row.gap)
        if board.budget is not None:
            found["spent"] = row.spent
        if not row.output and row.cost:
            found |= {name: row.cost[name] for name in COSTS}
        if several or not board.by_client:
            found |= {_domain(name): mean_of(row.domains.get(name)) for name in board.domains}
        yield found


def score_columns(one: MeanScore | None) -> dict[str, Any]:
    """mean, std, ci_low and ci_high of a score."""
    if one is None:
        return {"mean": None, "std": None, "ci_low": None, "ci_high": None}
    return {"mean": one.mean, "std": one.std, "ci_low": one.low, "ci_high": one.high}


def mean_of(one: MeanScore | None) -> float | None:
    return one.mean if one else None


def _gap(gap: Pair | None) -> dict[str, Any]:
    if gap is None:
        return {}
    ends = {"gap": gap.difference, "gap_low": gap.ci_low, "gap_high": gap.ci_high, "gap_p": gap.p, "gap_q": gap.q}
    return {**ends, "verdict": gap.verdict if gap.p == gap.p else "", "within": gap.within}


def _legend(boards: Sequence[Leaderboard], present: set[str]) -> list[str]:
    """A sentence for each column that is there and whose title does not explain it."""
    found = []
    if "ci_low" in present:
        kinds = {row.average.interval for board in boards for row in board.rows if row.average}
        below = ", Student's t below" if "t" in kinds else ""
        how = f"BCa bootstrap from {BCA_FROM} seeds on{below}" if "bca" in kinds else "Student's t"
        over = " or ".join(sorted({f"{board.replicate}s" for board in boards}, reverse=True))
        found.append(f"95 % interval: of the mean over {over}, {how}.")
    if "group" in present:
        found.append(legend_of_groups(unranked(boards)))
    if "gap" in present:
        baselines = sorted({board.baseline for board in boards if board.baseline})
        found.append(f"gap: average minus that of {' or '.join(baselines)}, paired by seed.")
    if "gap_low" in present:
        verdicts = legend_of_verdicts(boards[0].metric, boards[0].margin)
        found.append(f"gap, verdict: intervals of gaps are Student's t; q is p after Benjamini-Hochberg. {verdicts}")
    return found + [text for name, text in MEANINGS.items() if name in present]


def unranked(boards: Iterable[Leaderboard]) -> dict[str, list[str]]:
    """The methods that are never better or worse, by their role."""
    found: dict[str, dict[str, None]] = {}
    for row in (row for board in boards for row in board.rows):
        if not row.ranked and not row.output and row.runs:
            found.setdefault(row.role, {})[row.label] = None
    return {role: list(names) for role, names in found.items()}


def subtitle(board: Leaderboard) -> str:
    """What a leaderboard shows: metric, round, seeds."""
    rounds = list(dict.fromkeys(str(row.round) for row in board.rows if row.runs))
    if not rounds and board.budget is None:
        return f"{board.metric}: no cell has finished"
    at = {
        "final": f"round {' or '.join(rounds)}",
        "best": "each seed's best round on validation examples",
        "last4": f"mean of the last four evaluated rounds, up to round {' or '.join(rounds)}",
    }.get(board.at) or f"within {amount(board.budget or 0.0, board.at)} ({MEANING[board.at]})"
    return f"{unit_of(board.metric)} · {at} · {_seeds(board)}"


def _seeds(board: Leaderboard) -> str:
    found = replicates([board])
    return found if found in ("no seed", "1 seed") else f"mean of {found}, ± their standard deviation"


def replicates(boards: Iterable[Leaderboard]) -> str:
    """How many replicates the methods have: `10 seeds`, or where seeds share draws of sizes `6 draws x 2 seeds`."""
    seeds, draws, each = set[int](), set[int](), set[int]()
    for board in boards:
        for row in filter(lambda row: row.runs, board.rows):
            if board.replicate == "seed":
                seeds.add(len(row.runs))
            else:
                draws.add(len(row.by_draw))
                each |= set(Counter(row.draws[run.seed] for run in row.runs).values())
    texts = [_span(seeds, "seed")] if seeds or not draws else []
    if draws:
        texts.append(f"{_span(draws, 'draw')} {'x' if len(each) == 1 else 'of'} {_span(each, 'seed')}")
    return " or ".join(texts)


def _span(counts: Collection[int], noun: str) -> str:
    """`no seed`, `1 seed`, `3 seeds`, `3 to 5 seeds`."""
    if not counts:
        return f"no {noun}"
    least, most = min(counts), max(counts)
    return counted(most, noun) if least == most else f"{least} to {counted(most, noun)}"


MOST_CLIENTS = 30  # lines of a table that people read


def clients(boards: Sequence[Leaderboard]) -> pandas.DataFrame:
    """A row for each client with the mean over seeds of every method, on the client's own test images.

    Raises:
        UserError: where no leaderboard tested its clients.
    """
    own = [board for board in boards if board.by_client]
    if not own:
        raise UserError(
            "these cells were tested by domain, so no client has a score of its own.\n"
            "A suite with `evaluation: {by: client}` tests every client on examples of its own."
        )
    methods = list(dict.fromkeys(row.label for board in own for row in board.rows if row.runs))
    return frame(
        [row for board in own for row in _clients(board)],
        (*PLACE, "client", "domain", *methods),
        caption="Clients, each on its own test examples: mean over seeds",
        pages=[page(board.place, caption=subtitle(board), warning=board.warning) for board in own],
        formats={**dict.fromkeys(methods, Format("", "score", "metric")), "domain": Format(part="name")},
        legend=["Each client on its own test examples: mean over seeds."],
        **about(own),
    )


def _clients(board: Leaderboard) -> list[dict[str, Any]]:
    scores: dict[tuple[int, str], dict[str, list[float]]] = {}
    for row in board.rows:
        for run in row.runs:
            for (domain, client), value in run.clients.items():
                scores.setdefault((client, domain), {}).setdefault(row.label, []).append(value)
    return [
        {**board.place._asdict(), "client": client, "domain": domain, **{m: fmean(v) for m, v in scores[key].items()}}
        for key in sorted(scores, key=lambda key: key[0])
        for client, domain in [key]
    ]


def worst_clients(found: pandas.DataFrame) -> pandas.DataFrame:
    """Of many clients those that do worst in the mean over methods, which is what fits a screen."""
    methods = [name for name in found.columns if name not in (*PLACE, "client", "domain")]
    sign = 1 if higher_is_better(found.attrs["metric"]) else -1
    order = (sign * found[methods].mean(axis=1)).fillna(math.inf).tolist()  # the worst first
    kept, notes = list[int](), dict[tuple[str, ...], str]()
    for key, positions in tables(found).items():
        if len(positions) > MOST_CLIENTS:
            notes[key] = f"{MOST_CLIENTS} of {len(positions)} clients, those that do worst; csv has all"
            positions = sorted(sorted(positions, key=order.__getitem__)[:MOST_CLIENTS])
        kept += positions
    pages = [
        {**one, "notes": [notes[key]]} if (key := tuple(one["key"])) in notes else one for one in found.attrs["pages"]
    ]
    return with_attrs(found.iloc[kept], pages=pages)
