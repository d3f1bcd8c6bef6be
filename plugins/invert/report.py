"""What the probe found, a block for each method: for a terminal, for other programs and for papers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.errors import UserError
from fedbench.report.columns import Cell, Column
from fedbench.report.grouping import by_label, settings
from fedbench.report.terminal import indented, pages, table
from fedbench.report.text import escape_markdown, piped_table, plain

from .findings import Finding, Probe, findings, is_split

if TYPE_CHECKING:
    from rich.console import Console

    from fedbench.registry.registry import Registry
    from fedbench.results import Result

CSV_COLUMNS = (
    "suite", "scenario", "variant", "backbone", "dataset", "method", "seen", "attack", "victims", "psnr_db",
    "correlation", "mean_psnr_db", "mean_correlation", "blind_psnr_db", "blind_correlation",
)  # fmt: skip
TITLES = ("PSNR", "mean", "blind", "corr.", "mean", "blind")
LEGEND = (
    "How like the true image what was rebuilt is, on average over victims: PSNR in dB, and correlation over pixels. "
    "Beside each: mean, the mean training image as a guess, and blind, the same attack on noise.",
    "seen: the features, which cross at every step, or the server's gradient, here of one image. The attacker knows "
    "weights and labels. That an attack fails proves nothing: see docs/privacy.md.",
)


@dataclass(frozen=True)
class Report:
    """The findings on one method of one leaderboard, its seeds together; truth: the victims (3, H, W), in order."""

    where: Mapping[str, str]
    method: str
    findings: Sequence[Finding]
    truth: Sequence[np.ndarray]

    @property
    def title(self) -> str:
        return " · ".join(filter(None, self.where.values()))


def reports(results: Sequence[Result], registry: Registry, probe: Probe) -> list[Report]:
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
            "one of fedv, fedvz or festa"
        )
    return [report for report in found if report.findings]


def _report(where: Mapping[str, str], label: str, seeds: Sequence[tuple[list[Finding], list[np.ndarray]]]) -> Report:
    together: dict[tuple[str, str], Finding] = {}
    for found, _ in seeds:
        for one in found:
            together.setdefault((one.seen, one.how), Finding(one.seen, one.how)).extend(one)
    return Report(where, label, list(together.values()), [image for _, truth in seeds for image in truth])


def show(found: Sequence[Report], console: Console) -> None:
    """Print a table for each leaderboard, and once at the end what the columns mean."""
    from rich.text import Text

    for title, part in _boards(found).items():
        console.print(Text(title, style="bold"))
        page = _columns(part)
        for one in pages(page, console.width):
            console.print(table(one, [False] * len(page[0].cells), console))
            console.print()
    for sentence in LEGEND:
        console.print(indented(sentence, "dim"))


def render(found: Sequence[Report], format: str) -> str:
    """The text in one of FORMATS, ending with a line break."""
    return FORMATS[format](found)


def to_csv(found: Sequence[Report]) -> str:
    """A row for each method, thing seen and attack; scores are means over the victims."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_records(found))
    return out.getvalue()


def to_json(found: Sequence[Report]) -> str:
    """The rows of the CSV, each with `by_victim`: the same scores in lists."""
    return json.dumps(plain(_records(found)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(found: Sequence[Report]) -> str:
    """A pipe table for each leaderboard."""
    parts = ["\n".join([f"### {escape_markdown(t)}", "", *piped_table(_columns(p))]) for t, p in _boards(found).items()]
    return "\n\n".join([*parts, *map(escape_markdown, LEGEND)]) + "\n"


def _boards(found: Sequence[Report]) -> dict[str, list[Report]]:
    boards: dict[str, list[Report]] = {}
    for report in found:
        boards.setdefault(report.title, []).append(report)
    return boards


def _records(found: Sequence[Report]) -> list[dict[str, Any]]:
    records = []
    for report in found:
        for one in report.findings:
            scores = {
                "psnr_db": one.attack.psnr, "correlation": one.attack.correlation,
                "mean_psnr_db": one.mean.psnr, "mean_correlation": one.mean.correlation,
                "blind_psnr_db": one.blind.psnr, "blind_correlation": one.blind.correlation,
            }  # fmt: skip
            what = {"method": report.method, "seen": one.seen, "attack": one.how, "victims": len(one.images)}
            means = {name: fmean(values) for name, values in scores.items()}
            records.append({**report.where, **what, **means, "by_victim": scores})
    return records


def _columns(found: Sequence[Report]) -> list[Column]:
    rows = _records(found)
    names = [Column(n, "name", [Cell(row[n]) for row in rows]) for n in ("method", "seen", "attack")]
    numbers = [n for kind in ("psnr_db", "correlation") for n in (kind, f"mean_{kind}", f"blind_{kind}")]
    digits = [1 if n.endswith("db") else 2 for n in numbers]
    return names + [
        Column(title, "score", [Cell(f"{row[n]:.{d}f}") for row in rows])
        for title, n, d in zip(TITLES, numbers, digits, strict=True)
    ]


FORMATS: Mapping[str, Callable[[Sequence[Report]], str]] = {
    "csv": to_csv,
    "json": to_json,
    "markdown": to_markdown,
}
