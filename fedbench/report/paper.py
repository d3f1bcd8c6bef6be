"""Papers: leaderboards next to printed numbers, what may be subtracted, and how the papers behind a table are cited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.report.grouping import registered
from fedbench.report.leaderboards import Leaderboard, Row, cell, leaderboards
from fedbench.results import Result
from fedbench.results.index import INDEX, Expected, read_expected
from fedbench.results.scores import is_fraction
from fedbench.words import counted

AVERAGE = "average"
# What papers call the mean over everything that is tested; over domains and, where each has a model, over clients.
CLIENTS = "mean_client_accuracy"
AVERAGES = (AVERAGE, CLIENTS)

# Parts of a variant that leave what is measured as it is, or that are compared by themselves.
ASIDE = {
    *("backbone.name", "backbone.pretrained", "data.name", "data.root", "profile"),
    *("engine", "precision", "evaluation.by", "evaluation.every", "evaluation.at"),
    *("evaluation.batch_size", "evaluation.sizes"),
}
# Options that may stand in brackets behind the name of a backbone or a data set: where its files lie.
WHERE = {"backbone": "pretrained", "data": "root"}


@dataclass(frozen=True)
class Paper:
    """A paper's numbers on one data set with one backbone. values: by (method, domain or "average")."""

    dataset: str
    backbone: str
    values: Mapping[tuple[str, str], Expected]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for method, _ in self.values))

    def percent(self, method: str, column: str) -> float | None:
        row = self.values.get((method, column))
        return None if row is None else row.value_percent


@dataclass(frozen=True)
class Comparison:
    """A leaderboard with the paper's numbers for it.

    apart: in what the two differ, "" where nothing does. Only then is there a difference, and there is one paper;
    otherwise there may be several, none of which is ever subtracted from, or averaged with, what was measured.
    weights: the fingerprint of the backbone's, which papers seldom name; "" where no cell has started.
    """

    board: Leaderboard
    papers: Sequence[Paper]
    apart: str
    weights: str = ""

    @property
    def methods(self) -> list[tuple[str, Row | None]]:
        """(label, row) of every method: those of the leaderboard, then those that the papers alone have."""
        rows = [(row.label, row) for row in self.board.rows]
        known = {label for label, _ in rows}
        others = dict.fromkeys(name for paper in self.papers for name in paper.methods if name not in known)
        return [*rows, *((name, None) for name in others)]

    @property
    def columns(self) -> list[str]:
        """The domains and the average; the average alone where nothing else can be set side by side."""
        if self.apart:
            return [AVERAGE]
        return [
            *dict.fromkeys([*self.board.domains, *(name for _, name in self.papers[0].values if name != AVERAGE)]),
            AVERAGE,
        ]

    def difference(self, label: str, row: Row | None, column: str) -> float | None:
        """Measured minus printed, in points; None where one is missing or the two are not comparable."""
        theirs = None if self.apart else self.papers[0].percent(label, column)
        ours = None if row is None else percent(row, column)
        return None if ours is None or theirs is None else ours - theirs


def percent(row: Row, column: str) -> float | None:
    """What was measured, in percent."""
    score = cell(row, column)
    return None if score is None else 100 * score.mean


def comparisons(results: Sequence[Result], at: str = "final", metric: str = "accuracy") -> list[Comparison]:
    """A comparison for each leaderboard whose scenario the paper has, in the order of `leaderboards`.

    Args:
        results: what is compared.
        at: the round.
        metric: what the paper printed, a share.

    Raises: UserError where no result has a paper's numbers next to it, or none that fits its scenario, and for a metric
        that is not in percent, which papers' numbers are.
    """
    if not is_fraction(metric):
        raise UserError(f"a paper's numbers are in percent, and {metric} is not")
    folders = list(dict.fromkeys(result.suite_folder for result in results))
    numbers = {folder: read_expected(folder) for folder in folders}
    if not any(numbers.values()):
        raise UserError(_without(folders))
    found = []
    for board in leaderboards(results, metric=metric, at=at):
        cells = [result for part in board.cells.values() for result in part]
        if rows := _for_board(numbers[cells[0].suite_folder], board):
            manifest = next((result.manifest for result in cells if result.manifest), {})
            found.append(_comparison(board, rows, manifest))
    if not found:
        have = ", ".join(dict.fromkeys(row.scenario for rows in numbers.values() for row in rows))
        raise UserError(f"the paper's numbers next to these results are for {have}; none of these leaderboards is")
    return found


def _without(folders: Sequence[Path]) -> str:
    names = ", ".join(folder.name for folder in folders)
    others = {file.parent for folder in folders for file in folder.parent.glob(f"*/{INDEX}")}
    known = sorted(other.name for other in others if read_expected(other))
    hint = f"Of the suites next to these, {', '.join(known)} have them." if known else (
        "The suites under suites/papers have them: `fedbench run suites/papers/PAPER/TABLE.yaml`."
    )  # fmt: skip
    return f"no paper's numbers lie next to the results of {names}: their {INDEX} has none.\n{hint}"


def _for_board(rows: Iterable[Expected], board: Leaderboard) -> list[Expected]:
    """The numbers of the leaderboard's scenario and sweep point, the most specific ones."""
    there = _parts(board.place.variant)
    fitting = [row for row in rows if row.scenario == board.place.scenario and _parts(row.variant) <= there]
    most = max((len(_parts(row.variant)) for row in fitting), default=0)
    return [row for row in fitting if len(_parts(row.variant)) == most]


def _parts(variant: str) -> set[str]:
    return set(filter(None, variant.split("; ")))


def _comparison(board: Leaderboard, rows: Sequence[Expected], manifest: Mapping[str, Any]) -> Comparison:
    values: dict[tuple[str, str], dict[tuple[str, str], Expected]] = {}
    for row in rows:
        column = AVERAGE if row.metric in AVERAGES else row.metric
        values.setdefault((row.dataset, row.backbone), {})[row.method, column] = row
    papers = [Paper(*combination, numbers) for combination, numbers in values.items()]
    there = board.place
    own = [p for name in _names(there.backbone) for p in papers if (p.dataset, p.backbone) == (there.dataset, name)][:1]
    others = {part for part in _parts(there.variant) - _parts(rows[0].variant) if part.partition("=")[0] not in ASIDE}
    others = {part for part in others if not _names_only(part, board, bool(own))}
    apart = _apart(board, own or papers, bool(own), manifest.get("config", {}), others)
    return Comparison(board, own or papers, apart, manifest.get("fingerprints", {}).get("weights", ""))


def _names_only(part: str, board: Leaderboard, has_own: bool) -> bool:
    """Whether a part of a variant does no more than name the backbone or the data set, and say where its files lie.

    On the paper's data, any other `data=NAME` is an overlay, which may have changed anything.
    """
    key, _, value = part.partition("=")
    name, _, options = value.removesuffix(")").partition("(")
    if key not in WHERE or (options and not options.startswith(f"{WHERE[key]}=")) or "," in options:
        return False
    return key == "backbone" or not has_own or name == board.place.dataset


def _names(backbone: str) -> list[str]:
    """What a paper may call a backbone of timm: as it is, or without the tag of its weights."""
    return list(dict.fromkeys([backbone, backbone.partition(".")[0]]))


def _apart(
    board: Leaderboard, papers: Sequence[Paper], has_own: bool, config: Mapping[str, Any], others: set[str]
) -> str:
    """One sentence on all that keeps the measured values from being compared with the printed ones; or nothing."""
    pairs = []
    if not has_own:
        first = papers[0]
        theirs = "the data and backbones below" if papers[1:] else f"{first.dataset} with {first.backbone}"
        pairs.append((f"on {board.place.dataset} with {board.place.backbone}", theirs))
    if board.metric not in (scores := sorted({row.score for paper in papers for row in paper.values.values()})):
        pairs.append((f"by {board.metric}", " or ".join(scores)))
    if board.place.profile != "paper":
        pairs.append((f"with the profile {board.place.profile}", "the profile paper"))
    if config.get("backbone", {}).get("pretrained") is False:
        pairs.append(("with random weights", "pre-trained ones"))
    if board.at != "final":
        pairs.append((f"with --at {board.at}", "the last round"))
    evaluation = config.get("evaluation", {})
    if part := evaluation.get("validation"):
        others = {other for other in others if not other.startswith("evaluation.validation=")}
        pairs.append((f"with {part:g} of the training examples held out", "all training examples"))
    by_client = evaluation.get("by") == "client"
    if by_client != any(row.metric == CLIENTS for paper in papers for row in paper.values.values()):
        both = ("by client", "by domain")
        pairs.append(both if by_client else both[::-1])
    rounds = config.get("train", {}).get("rounds")
    if printed := sorted({row.rounds for paper in papers for row in paper.values.values() if row.rounds is not None}):
        others = {part for part in others if not part.startswith("train.rounds=")}
        if rounds is not None and printed != [rounds]:
            several = f"{' or '.join(map(str, printed))} round{'' if printed == [1] else 's'}"
            pairs.append((f"after {counted(rounds, 'round')}", several))
    if others:
        pairs.append((f"with {', '.join(sorted(others))}", "the suite without that"))
    if not pairs:
        return ""
    ours, theirs = (", ".join(side) for side in zip(*pairs, strict=True))
    return f"measured {ours}; the paper's numbers are for {theirs}: not comparable"


class Orders(NamedTuple):
    """The methods that both have, from the best average to the worst; those that read the same stand together.

    swapped: how many of the `pairs` that neither ties stand the other way round in the paper.
    """

    measured: Sequence[Sequence[str]]
    paper: Sequence[Sequence[str]]
    swapped: int
    pairs: int


def order(comparison: Comparison, paper: Paper) -> Orders | None:
    """Both orders; None where fewer than two methods can be ordered."""
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for label, row in comparison.methods:
        measured = percent(row, AVERAGE) if row is not None else None
        printed = paper.percent(label, AVERAGE)
        if measured is not None and printed is not None:
            ours[label], theirs[label] = round(measured, 1), printed
    return ordered(ours, theirs) if len(ours) > 1 else None


def ordered(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Orders:
    """The two orders of the same methods, higher values first."""
    names = list(ours)
    signs = [
        (ours[a] - ours[b]) * (theirs[a] - theirs[b]) for position, a in enumerate(names) for b in names[position + 1 :]
    ]
    return Orders(_ranked(ours), _ranked(theirs), sum(s < 0 for s in signs), sum(s != 0 for s in signs))


def _ranked(values: Mapping[str, float]) -> list[list[str]]:
    ranks: dict[float, list[str]] = {}
    for name, value in values.items():
        ranks.setdefault(value, []).append(name)
    return [ranks[value] for value in sorted(ranks, reverse=True)]


# A paper as methods name theirs: `Su et al., FedRA, ECCV 2024, arXiv 2311.11227`, each part but the first optional.
SECTION = re.compile(r",? (?:Sec|Section|App|Appendix|Table|Eq)\b\.? .*$")
AFTER = "after "  # before the title, where a method is its authors' own and not the paper's
EPRINT = re.compile(r"arXiv[ :](\d{4}\.\d{4,5})")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
LATEX = str.maketrans({character: f"\\{character}" for character in "&%#_$"})


def cited(results: Sequence[Result], papers: Mapping[str, str]) -> dict[str, list[str]]:
    """By paper, the methods of these results that are from it: `fedra`, or `fedra_cover (based on fedra)` where a suite
    has another name for one. papers: of installed methods, by name; those of others stand in their results."""
    labels: dict[str, dict[str, None]] = {}
    for r in results:
        name, label = registered([r]), r.entry.method
        if paper := papers.get(name) or r.manifest.get("method", {}).get("paper"):
            labels.setdefault(paper, {})[label if label == name else f"{label} (based on {name})"] = None
    return {paper: list(names) for paper, names in labels.items()}


def listed(papers: Mapping[str, Sequence[str]]) -> list[str]:
    """`fedra, fedra_cover (based on fedra): Su et al., ...` for each paper. papers: as `cited` returns them."""
    return [f"{', '.join(names)}: {paper}" for paper, names in papers.items()]


def bibliography(papers: Mapping[str, Sequence[str]]) -> str:
    """BibTeX of these papers, as `cited` returns them, and of fedbench. Raises: UserError where there is none."""
    if not papers:
        raise UserError("nothing here names a paper: `fedbench methods --format bibtex` has those of all methods")
    whole: dict[str, list[str]] = {}
    for paper, names in papers.items():
        whole.setdefault(SECTION.sub("", paper), []).extend(names)
    entries = [f"% {' '.join(', '.join(names).split())}\n{bibtex(paper)}" for paper, names in whole.items()]
    own = {"author": "{The fedbench authors}", "title": "fedbench", "version": __version__}
    head = "% fedbench knows the names of methods, not the titles of papers: complete them."
    return "\n\n".join([head, *entries, _entry("software", "fedbench", own)]) + "\n"


def bibtex(paper: str, key: str = "") -> str:
    """The entry of a paper, as far as its parts are known; else the whole text as a note. key: made if not given."""
    first, *others = [part.strip() for part in paper.split(",")]
    if not others or ":" in first:
        return _entry("misc", key or _key(paper), {"note": paper})
    authors, title = first.replace(" et al.", " and others"), others[0].removeprefix(AFTER)
    eprint, year = EPRINT.search(paper), YEAR.search(EPRINT.sub("", paper))
    venue = next((part for part in others[1:] if YEAR.search(part) and not EPRINT.search(part)), "")
    fields = {"author": authors, "title": f"{{{title}}}"}
    if published := YEAR.sub("", venue).strip():
        fields["howpublished"] = published
    if year:
        fields["year"] = year[0]
    if eprint:
        fields |= {"eprint": eprint[1], "archiveprefix": "arXiv"}
    return _entry("misc", key or _key(first.split()[0], year[0] if year else "", title), fields)


def _key(*parts: str) -> str:
    return "".join(re.sub(r"[^a-z0-9]", "", part.lower()) for part in parts)


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    rows = [f"  {name} = {{{value.translate(LATEX)}}}" for name, value in fields.items()]
    return ",\n".join([f"@{kind}{{{key}", *rows]) + "\n}"
