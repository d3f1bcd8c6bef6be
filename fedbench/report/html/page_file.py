"""The page as one file: results read, then template, style, script and data put together. Nothing is fetched.

Pictures are SVG, drawn in the browser by 64 kB of script of our own. Plotly (3.5 MB) and Vega-Lite (800 kB) are larger
than all reference results together; Chart.js and uPlot draw on a canvas, which prints as dots and is mute for a screen
reader. The template is Jinja2's, which escapes what it is given.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.grouping import roles_of, select
from fedbench.report.html.page_data import Asked, Gathered, gather
from fedbench.report.views.tuning import undecided
from fedbench.results import examine
from fedbench.results.result import COMPARED
from fedbench.words import counted, visible

SCRIPTS = (
    "dom", "state", "numbers", "tables", "take", "chart", "curves", "bars", "pareto", "heat", "ranks", "tuning",
    "filters", "origin", "board", "main",
)  # fmt: skip
# What stands in the data as an escape: HTML's signs, ends of lines, marks of direction, and half of a pair.
RAW = "[<>&\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def whole_page(
    paths: Sequence[str],
    metric: str = "accuracy",
    at: str = "final",
    baseline: str | None = None,
    equivalent: float | None = None,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    variants: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """The page, and a line on everything that is left out because its checksum does not match. Raises: UserError for
    what no result has, and where there is none, not even one that waits."""
    chosen = partial(select, scenarios=scenarios, methods=methods, seeds=seeds, variants=variants)
    found = examine(paths).only(chosen).read(COMPARED)
    lacks = undecided(found, paths, boards=False)
    if not found.results:
        raise UserError(f"nothing is reported yet\n{lacks}")
    catalogue = Registry(plugins).catalogue
    roles = roles_of(found.results, catalogue.roles)
    asked = Asked(metric, at, baseline, equivalent, roles, catalogue.papers)
    return document(gather(found.results, asked, found.wrong, lacks)), found.wrong


def document(gathered: Gathered) -> str:
    """The whole page. Equal results give equal pages."""
    data = _visible(gathered.data)
    style, script = _asset("page.css"), _script()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("page.html")).render(
        title=title(data),
        lede=lede(data),
        style=_Whole(style),
        script=_Whole(script),
        policy=policy(style, script),
        data=_Whole(embedded(data)),
        texts=_packed(gathered.texts),
    )


def title(data: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(suite["name"] for suite in data["suites"]))
    return ", ".join(names) if len(names) < 4 else f"Results of {counted(len(names), 'suite')}"


def lede(data: Mapping[str, Any]) -> str:
    """How much there is, of what, from when and by which version."""
    boards = sum(len(suite["boards"]) for suite in data["suites"])
    states = ", ".join(f"{n:,} {status.replace('_', ' ')}" for status, n in data["statuses"].items())
    cells = sum(data["statuses"].values())
    days = list(dict.fromkeys(time[:10] for time in data["origin"]["started"]))
    parts = [
        counted(boards, "leaderboard"),
        f"{counted(cells, 'cell')} ({states})",
        data["metric"],
        *([f"computed {' to '.join(days)}"] if days else []),
        f"written by fedbench {data['fedbench']}",
    ]
    return " · ".join(parts)


class _Whole(str):
    """What stands in the page as it is, because it is ours or has been escaped."""

    def __html__(self) -> str:
        return self


def embedded(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends that or a line of it, or turns the direction of what
    an editor shows of the page."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub(RAW, lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(value: Any) -> Any:
    """Names that steer neither a terminal nor the direction of writing."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(key)): _visible(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_visible(inner) for inner in value]
    return value


def _packed(texts: Mapping[str, Mapping[str, str]]) -> str:
    """Base64 of gzip: the texts repeat the tables, three times over, and shrink to a fifth."""
    return base64.b64encode(gzip.compress(json.dumps(texts).encode(), 9, mtime=0)).decode()


def _asset(name: str) -> str:
    return files("fedbench.report.html").joinpath("assets", name).read_text(encoding="utf-8")


def _script() -> str:
    whole = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{whole}\n}})();\n'


def policy(style: str, script: str) -> str:
    """What the browser may do with a page: run this script and this style, and fetch nothing at all."""

    def sealed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    ours = f"style-src {sealed(style)}; script-src {sealed(script)}"
    return f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"
