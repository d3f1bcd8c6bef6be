"""Reports to look at: of reference results, and of made-up ones whose names would act if they could."""

from __future__ import annotations

from pathlib import Path

from command import fedbench
from factories import eval_rows, prefix_rounds, write_cell

SHOWN = ("results/reference/feature_skew", "--variant", "*mixer*", "--variant", "*digits*")
HOSTILE = "</script><script>alert(1)</script>"
NAMES = {
    "scenario": HOSTILE,
    "quotes": "\"'`<img src=x onerror=alert(2)>&amp;",
    "rtl": "שלום\u202eabc",
    "long": "very_long_" * 15,
}


def report(path: Path, *results: str | Path) -> Path:
    """What `fedbench report` writes."""
    done = fedbench("report", *results, "-o", path, cwd=Path.cwd())
    assert done.exit_code == 0, done.output
    return path


def hostile_report(folder: Path) -> Path:
    """Of results in which names of scenarios, methods and domains would act if they could."""
    suite = folder / "results" / "hostile"
    suite.mkdir(parents=True)
    for seed in (0, 1, 2):
        for i, name in enumerate(NAMES.values()):
            domains = {HOSTILE: 0.5 + i / 10 + seed / 100, NAMES["rtl"]: 0.6, "300 letters " * 25: 0.5}
            rows = eval_rows({6: domains, 12: domains})
            write_cell(suite, "fedra", seed, label=name, scenario=HOSTILE, evaluation=rows, rounds=prefix_rounds())
    write_cell(suite, "allsmall", 0, scenario=HOSTILE, status="failed", reason=f"{HOSTILE} {NAMES['long']}")
    return report(folder / "report.html", suite)
