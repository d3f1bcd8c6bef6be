"""Runs the cells of a suite: what is finished is kept, what is equal runs once, what fails stays alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbench import suite as suites
from fedbench.registry.assets import Assets
from fedbench.registry.registry import Registry
from fedbench.runs.options import Options
from fedbench.runs.outcome import Outcome
from fedbench.runs.plan import cells_of
from fedbench.runs.run import Observe, Run


def load(path: str | Path, registry: Registry, **choices: Any) -> suites.Suite:
    """Read a suite against what is installed. choices: `sets`, `profile`, `data` of `fedbench.suite.load`."""
    return suites.load(path, registry.catalogue, facts=Assets(registry), **choices)


def run(
    path: str | Path,
    *,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    sets: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    plugins: Sequence[str] = (),
    observe: Observe | None = None,
    **options: Any,
) -> Outcome:
    """Run a suite and return what is now on disk.

    scenarios, methods, seeds: only these · sets: `dotted.key=value` overrides · plugins: files with plugins of
    one's own · options: fields of `Options` · observe(suite, all cells, those to do) returns a listener for events.
    Raises UserError for input that cannot work, before anything is written.
    """
    registry = Registry(plugins)
    suite = load(path, registry, sets=sets, profile=profile, data=data)
    chosen = Options(**{"timeout": suite.timeout} | {key: value for key, value in options.items() if value is not None})
    points, assets = suite.points(scenarios=scenarios, methods=methods, seeds=seeds), Assets(registry)
    this = Run.prepare(suite, cells_of(points, registry, assets), registry, assets, chosen)
    ends = this.compute(observe)
    return this.close(ends)
