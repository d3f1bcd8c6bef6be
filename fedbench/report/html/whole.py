"""The page on what lies in results folders, from their files to its text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.grouping import roles_of, select
from fedbench.report.html.data import Asked, gather
from fedbench.report.html.document import document
from fedbench.report.undecided import undecided
from fedbench.results import examine
from fedbench.results.kept import Keeping
from fedbench.results.result import COMPARED


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
    keeping: Keeping | None = None,
) -> tuple[str, list[str]]:
    """The page, and a line on everything that is left out because it is not as it was written. Raises: UserError for
    what no result has, and where there is none, not even one that waits."""
    chosen = partial(select, scenarios=scenarios, methods=methods, seeds=seeds, variants=variants)
    found = examine(paths, keeping=keeping or Keeping()).only(chosen).read(COMPARED)
    lacks = undecided(found, paths)
    if not found.results:
        raise UserError(f"nothing is reported yet\n{lacks}")
    catalogue = Registry(plugins).catalogue
    roles = roles_of(found.results, catalogue.roles)
    asked = Asked(metric, at, baseline, equivalent, roles, catalogue.papers)
    return document(gather(found.results, asked, found.wrong, lacks)), found.wrong
