"""Runs the cells of a suite: what is finished is kept, what is equal runs once, what fails stays alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench import suite as suites
from fedbench.registry.assets import Assets
from fedbench.registry.registry import READING, Registry
from fedbench.runner.cells import Cell, cells_of
from fedbench.runner.exit_status import Outcome
from fedbench.runner.options import Options, Preparing, unheard
from fedbench.runner.run import Observe, Run
from fedbench.runner.successive_halving import decide, leave, of_shard, tried


def load(path: str | Path, registry: Registry, **choices: Any) -> suites.Suite:
    """Read a suite against what is installed. choices: of `fedbench.suite.load`."""
    return suites.load(path, registry.catalogue, facts=Assets(registry), **choices)


def run(
    path: str | Path,
    *,
    scenarios: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    variants: Sequence[str] = (),
    sets: Sequence[str] = (),
    profile: str | None = None,
    data: str | None = None,
    plugins: Sequence[str] = (),
    observe: Observe | None = None,
    preparing: Preparing = unheard,
    **options: Any,
) -> Outcome:
    """Run a suite and return what is now on disk.

    scenarios, methods, seeds, variants: only these, see `Suite.points` · sets: `dotted.key=value` overrides ·
    plugins: files with plugins of one's own · options: fields of `Options` · observe(suite, all cells, those to do)
    returns a listener for events, and is called once for each stage of a suite that is tuned first ·
    preparing(done, of): is called before that, as cells are prepared. Raises UserError for input that cannot work,
    before anything is written.
    """
    registry = Registry(plugins, reading=min(READING, options.get("timeout") or READING))
    suite = load(path, registry, sets=sets, profile=profile, data=data)
    chosen = Options(**{"timeout": suite.timeout} | {key: value for key, value in options.items() if value is not None})
    stages = _Stages(suite, registry, Assets(registry, suite.base), observe, preparing)
    points = suite.points(scenarios, methods, seeds, variants)
    if suite.tuning is None:
        return stages.compute(cells_of(points, registry, stages.assets), chosen)
    candidates = suite.candidates(scenarios, methods, variants)
    contests = of_shard(tried(suite, candidates, registry, stages.assets), chosen.shard)
    here = replace(chosen, shard=None)  # a contest is decided, and reported, within one shard
    winners = decide(contests, Path(chosen.results) / suite.name, suite.tuning.metric, here, stages.compute)
    if winners is not None:
        leave(contests, Path(chosen.results) / suite.name)
        stages.suite = suite.tuned(winners)
        points = stages.suite.points(scenarios, methods, seeds, variants)
        stages.compute(cells_of(points, registry, stages.assets), here, "reporting")
    assert stages.outcome is not None
    lost = [] if winners is None else [one.key for one in contests if one.key not in winners]
    return replace(stages.outcome, undecided=tuple(" · ".join(filter(None, key)) for key in lost))


@dataclass
class _Stages:
    """The stages of a run, one after the other; outcome: of those so far."""

    suite: suites.Suite
    registry: Registry
    assets: Assets
    observe: Observe | None
    preparing: Preparing = unheard
    outcome: Outcome | None = None

    def compute(self, cells: list[Cell], options: Options, stage: str = "") -> Outcome:
        """Compute those cells that are not there yet. Failures count over all stages."""
        if self.outcome and options.max_failures is not None:
            options = replace(options, max_failures=options.max_failures - self.outcome.failures)
        run = Run.prepare(self.suite, cells, self.registry, self.assets, options, stage, self.preparing)
        outcome = run.close(run.compute(self.observe))
        self.outcome = outcome.after(self.outcome) if self.outcome else outcome
        return self.outcome
