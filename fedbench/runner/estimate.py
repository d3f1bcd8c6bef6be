"""The estimate that `plan` shows: cells and their cost, and how long they take, by past cells or a probe."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench.disk import cache_file, hash_of_json, keep, kept
from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.registry.registry import Registry
from fedbench.results import read_manifest, read_rows
from fedbench.results.columns import ENDED, HALVED, PENDING, RAN
from fedbench.results.identity import identity_of
from fedbench.results.loading import examine
from fedbench.runner.cells import BuildErrors, Cell, Options, Preparing, cells_of, folders_of, manifests_of, status
from fedbench.runner.successive_halving import Tried, standing, tried
from fedbench.simulation.cell_job import CellJob
from fedbench.simulation.cost_estimate import cost_estimates, of_one_method
from fedbench.suite import Suite
from fedbench.types import assignment

MACHINE = ("device", "cpu", "gpu")  # two machines with these in common are taken to be equally fast
SAME_SPEED = ("rounds", "local_epochs", "max_steps")  # of training, in which cells of one kind may differ
PROBED = 2  # rounds of a probe; the first also warms up
LONGEST = 120.0  # seconds after which a probe is ended
ROUND_FLOPS = {"cpu": 2e11, "cuda": 4e13}  # about the most that a round of a probe may cost, and its test
TRAINING = 3.0  # an image that is trained on costs about so many times what one costs that is tested
WAY = 5  # in which rates are measured: those that were kept of another are not comparable

Totals = Mapping[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Rates:
    """Seconds of a cell on one machine, by a probe.

    start: for what does not grow with the work · per_flop: of training and of testing.
    """

    start: float
    per_flop: float

    def seconds(self, totals: Totals) -> float:
        """Of a cell with these totals, see `RoundRecords.totals`."""
        return self.start + _work(totals["flops"], totals["images"], totals["tested"]) * self.per_flop


@dataclass(frozen=True)
class Time:
    """What a cell takes in seconds, and where that is from: `run` (it ran), `past runs` or `probe`; None where its
    probe failed, for a reason."""

    seconds: float | None
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """What a suite takes, in seconds, on `workers` processes.

    cells: by id, those that can be computed · total: all of them · left: those that have not run.
    """

    cells: dict[str, Time]
    total: float
    left: float
    workers: int
    device: str = "cpu"

    @property
    def sources(self) -> set[str]:
        """Where the times of the cells that have not run are from."""
        return {time.source for time in self.cells.values() if time.seconds is not None} - {"run"}


def estimate(
    cells: Sequence[Cell],
    totals: Mapping[str, Totals],
    manifests: Mapping[str, Row | None],
    registry: Registry,
    options: Options,
    shares: Mapping[str, float],
    probing: Preparing = lambda done, of: None,
) -> Estimate:
    """The time of a suite.

    Args:
        cells: of the suite; those without an estimate of their cost are left out.
        totals: of every cell by its id, see `RoundRecords.totals`.
        manifests: what is on disk of every cell, by its id.
        registry: makes the executor.
        options: of the run, for its folder of results, processes and device.
        shares: by id, which part of a cell's rounds is to be expected, where not all are.
        probing: called with how many of all probes have ended.
    """
    device, workers = "cpu", options.workers()
    if options.on_gpu:
        from fedbench.simulation.worker import resolved  # imports torch, and the time is seldom asked for

        device = resolved(options.device)
    cells = [cell for cell in cells if "flops" in totals[cell.id]]
    before = {cell.id: manifests[cell.id] or {"status": PENDING} for cell in cells}
    times = {id: Time(found["seconds"], "run") for id, found in before.items() if found["status"] in RAN}
    waiting = [cell for cell in cells if cell.id not in times and before[cell.id]["status"] != HALVED]
    here = machine.describe(device)
    past = past_rounds(Path(options.results), here) if waiting else {}
    unknown = [cell for cell in waiting if but_seed_and_rounds(cell.config) not in past]
    rates, reasons = probed_rates(unknown, totals, here, workers, registry, probing)
    for cell in waiting:
        which, share = kind_of(cell), shares.get(cell.id, 1.0)
        if a_round := past.get(but_seed_and_rounds(cell.config)):
            times[cell.id] = Time(a_round * cell.rounds * share, "past runs")
        else:
            seconds = rates[which].seconds(totals[cell.id]) * share if which in rates else None
            times[cell.id] = Time(seconds, "probe", reasons.get(which))

    total, left = (
        side_by_side([times[cell.id].seconds or 0.0 for cell in some], workers)
        for some in ([cell for cell in cells if cell.id in times], waiting)
    )
    return Estimate(times, total, left, workers, device)


def side_by_side(seconds: Sequence[float], workers: int) -> float:
    """About the seconds until the last cell ends."""
    return max(sum(seconds) / workers, *seconds, 0.0)


def of_earlier_cells(folder: Path, missing: Sequence[Cell], options: Options) -> float | None:
    """About the seconds until all are computed, by finished cells of the suite, see `past_rounds`; None where one of
    the missing has no such past. Nothing is called, and no cost is estimated.

    Args:
        folder: of the suite's results.
        missing: the cells to compute.
        options: of the run, for its processes and device.
    """
    past = past_rounds(folder, machine.describe("cuda" if options.on_gpu else "cpu"))
    seconds = [past[which] * cell.rounds for cell in missing if (which := but_seed_and_rounds(cell.config)) in past]
    return side_by_side(seconds, options.workers()) if 0 < len(seconds) == len(missing) else None


def past_rounds(folder: Path, machine: Mapping[str, Any]) -> dict[str, float]:
    """Seconds a round of the finished cells under `folder` that such a machine computed, candidates of a tuning too, by
    `but_seed_and_rounds`. Of several the fastest counts, which others disturbed least. What cannot be read is passed
    over.

    Args:
        folder: the results of one suite or of all.
        machine: see `fedbench.machine.describe`.
    """
    found: dict[str, float] = {}
    try:
        past = examine([folder], candidates=True).results if folder.is_dir() else []
    except UserError:  # there are none
        return found
    for manifest in (one.manifest for one in past if one.status == "finished"):
        with suppress(KeyError, TypeError, AttributeError, ZeroDivisionError):
            there, which = manifest["machine"], but_seed_and_rounds(manifest["config"])
            seconds = manifest["seconds"] / manifest["config"]["train"]["rounds"]
            if seconds > 0 and all(there.get(key) == machine.get(key) for key in MACHINE):
                found[which] = min(seconds, found.get(which, seconds))
    return found


def but_seed_and_rounds(config: Mapping[str, Any]) -> str:
    """Equal for cells that differ in seed and rounds alone, whose rounds take equally long, whoever has which size."""
    train = {key: value for key, value in config["train"].items() if key != "rounds"}
    parts = {part: _drawn_once(config[part]) for part in ("data", "backbone") if part in config}
    for (key, way), values in assignment(config).items():
        parts[key] = {**config[key], way: sorted(values)}
    return hash_of_json({**config, **parts, "seed": None, "train": train})


def _drawn_once(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that say which draw it is: another one takes as long."""
    return {key: value for key, value in options.items() if key != "draw" and "seed" not in key}


def kind_of(cell: Cell) -> str:
    """Equal for cells of one kind, in which a FLOP takes as long: the same packages compute them."""
    train = {key: value for key, value in cell.config["train"].items() if key not in SAME_SPEED}
    train["optimizer"] = {"name": train["optimizer"]["name"]}
    return hash_of_json([of_one_method({**cell.config, "train": train, "evaluation": None}), cell.versions])[:24]


def rates_of(folder: Path) -> Rates | None:
    """The rates of a finished cell. A FLOP takes what it took in training, and all else is its start. None where
    nothing was trained."""
    manifest = read_manifest(folder) or {}
    rounds, tested = read_rows(folder, "rounds"), read_rows(folder, "eval")
    last = [row for row in rounds if row["round"] > 1] or rounds
    training, flops = sum(row["seconds"] for row in last), sum(row["flops"] for row in last)
    if min(training, flops, manifest["seconds"]) <= 0:
        return None
    images = sum(row["steps"] for row in rounds) * manifest["config"]["train"]["batch_size"]
    of_tests = sum(row["examples"] for row in tested if row["metric"] == tested[0]["metric"])
    work = _work(sum(row["flops"] for row in rounds), images, of_tests)
    per_flop = min(training / flops, manifest["seconds"] / work)  # clients that were trained side by side overlap
    return Rates(manifest["seconds"] - work * per_flop, per_flop)


def _work(flops: float, images: float, tested: float) -> float:
    """FLOPs of training on so many images, and of testing so many."""
    return flops + tested * flops / max(1, images) / TRAINING


def probed_rates(
    cells: Sequence[Cell],
    totals: Mapping[str, Totals],
    machine: Mapping[str, Any],
    workers: int,
    registry: Registry,
    probing: Preparing = lambda done, of: None,
) -> tuple[dict[str, Rates], dict[str, str]]:
    """The rates of every kind among `cells`, and why others have none, by a probe of each kind.

    It is the cell with the median of FLOPs a round, computed as every cell is, but for a few steps and tests. Its rates
    are kept in the cache as soon as it has ended.
    """
    of_kind: dict[str, list[Cell]] = {}
    for cell in cells:
        of_kind.setdefault(kind_of(cell), []).append(cell)
    files = {which: cache_file("rates", [WAY, which, dict(machine)]) for which in of_kind}
    found = {which: Rates(**value) for which, file in files.items() if (value := kept(file))}
    unknown = {which: _median(of_kind[which], totals) for which in of_kind if which not in found}
    if not unknown:
        return found, {}
    reasons: dict[str, str] = {}

    def on_event(event: dict[str, Any]) -> bool:
        if event["event"] != "ended":
            return True
        which = Path(event["folder"]).name
        if event["status"] != "finished":
            reasons[which] = str(event.get("reason") or event["status"])
        elif rates := rates_of(Path(event["folder"])):
            keep(files[which], vars(rates))
            found[which] = rates
        else:
            reasons[which] = "nothing was trained in its probe"
        probing(sum(which in found or which in reasons for which in unknown), len(unknown))
        return True

    with tempfile.TemporaryDirectory() as folder:
        jobs = [_job(cell, Path(folder, which), totals[cell.id], machine, registry) for which, cell in unknown.items()]
        execute = registry.make("executor", {"name": "local"}, workers=min(workers, len(jobs)), timeout=LONGEST)
        execute(iter(jobs), on_event)
    return found, reasons


def _job(cell: Cell, folder: Path, totals: Totals, machine: Mapping[str, Any], registry: Registry) -> str:
    """The job of a probe."""
    device, plugins = str(machine["device"]), [str(file) for file in registry.files.values()]
    most = ROUND_FLOPS[device]
    manifest = {**cell.manifest(), "config": _shortened(cell.config, totals, most)}
    tested = int(most * totals["images"] / max(1, totals["flops"]))
    manifest["id"] = identity_of(manifest)
    return CellJob(folder, manifest, device, plugins, tested=tested, registered=registry.found).to_json()


def _median(cells: Sequence[Cell], totals: Mapping[str, Totals]) -> Cell:
    by_flops = sorted(cells, key=lambda cell: totals[cell.id]["flops"] / cell.config["train"]["rounds"])
    return by_flops[len(by_flops) // 2]


def _shortened(config: Mapping[str, Any], totals: Totals, most: float) -> dict[str, Any]:
    """The configuration with PROBED rounds, the last one tested, in which clients train for so few steps that a round
    has at most so many FLOPs. Where one step has more, there is one round of one step. Nothing goes wrong in it, since
    lost clients would leave little to time."""
    train, evaluation = dict(config["train"]), dict(config["evaluation"])
    a_round, rounds = totals["flops"] / train["rounds"], PROBED
    if a_round > most and not isinstance(train["max_steps"], str):
        steps = totals["images"] / max(1, totals["client_rounds"] * train["batch_size"]) * most / a_round
        train["max_steps"], rounds = max(1, int(steps)), PROBED if steps >= 1 else 1
    train["rounds"] = evaluation["every"] = rounds
    evaluation.pop("at", None)
    without_faults = {key: value for key, value in config.items() if key != "faults"}
    return {**without_faults, "train": train, "evaluation": evaluation}


def forecast(
    suite: Suite,
    chosen: Mapping[str, Sequence],
    folder: Path,
    registry: Registry,
    facts: CachedFacts,
    options: Options,
    timed: bool = False,
    preparing: Preparing = lambda done, of: None,
    probing: Preparing = lambda done, of: None,
) -> tuple[list[Row], Estimate | None]:
    """The rows: of a suite that is tuned first all candidates of a method as one, then the cells that report, as the
    candidates that lead by now would have them; and how long all takes here, where that is asked for.

    chosen: scenarios, methods, seeds and variants, as `Suite.points` has them · folder: of the suite's results ·
    timed: whether to find out the time · preparing: see `runner.cells.Options` · probing: see `estimate`. Raises
    UserError.
    """
    named = {key: chosen[key] for key in ("scenarios", "methods", "variants")}
    contests = tried(suite, suite.candidates(**named), registry, facts, folder) if suite.tuning else []
    given = suite
    if suite.tuning:
        suite = suite.tuned(standing(contests))
    reporting = cells_of(suite.points(**chosen), registry, facts)
    confirming = {one.key: one.confirming for one in contests}
    candidates = {cell.id: cell for one in contests for cell in (*one.every, *confirming[one.key])}
    every = [*candidates.values(), *reporting]
    totals = _estimated(every, facts, BuildErrors(given), preparing, options.timeout)
    shares = {cell.id: 1.0 for cells in confirming.values() for cell in cells}
    shares |= {cell.id: one.share for one in contests for cell in one.every}
    folders = folders_of(every, folder)
    manifests = manifests_of(folders, folder)
    time = estimate(every, totals, manifests, registry, options, shares, probing) if timed else None
    equal: dict[tuple[str, ...], list[Tried]] = {}
    for one in contests:
        cells = (*one.every, *confirming[one.key])
        equal.setdefault(tuple(sorted(cell.id for cell in cells)), []).append(one)
    rows = [_of_candidates(ones, confirming[ones[0].key], shares, totals, manifests, time) for ones in equal.values()]
    rows += [
        _of_cell(cell, totals[cell.id], status(cell, folders[cell.id], manifests[cell.id]), time) for cell in reporting
    ]
    return rows, time


def _estimated(
    cells: Sequence[Cell], facts: CachedFacts, refusals: BuildErrors, preparing: Preparing, timeout: float | None
) -> dict[str, Row]:
    """What each will cost, by its id; where a plugin is to blame that this is `unknown`, the row is `failed`. Raises
    UserError where no cell can run."""
    distinct = {cell.id: cell for cell in cells}
    found = cost_estimates([(id, cell.config) for id, cell in distinct.items()], facts, timeout, preparing)
    totals = {}
    for cell in cells:
        totals[cell.id] = row = found[cell.id]
        if refused := row.get("refused", row.get("broke")):
            refusals.add(cell, UserError(refused, option=row.get("option", "")))
            totals[cell.id] = {"unknown": refused}
        if failed := row.get("failed", row.get("broke")):
            totals[cell.id] = {"unknown": failed, "failed": True}
    refusals.raise_any(len(cells))
    return totals


def _of_cell(cell: Cell, totals: Row, status: str, time: Estimate | None) -> Row:
    row = {
        "names": [[point.scenario, point.method, point.variant, point.seed] for point in cell.points],
        "id": cell.id,
        "rounds": cell.config["train"]["rounds"],
        "status": status,
        **totals,
    }
    own = time and time.cells.get(cell.id)
    return row | {"seconds": own.seconds, "seconds_from": own.source, "seconds_unknown": own.reason} if own else row


def _of_candidates(
    equal: Sequence[Tried],
    confirming: Sequence[Cell],
    shares: Mapping[str, float],
    totals: Mapping[str, Row],
    manifests: Mapping[str, Row | None],
    time: Estimate | None,
) -> Row:
    """All candidates of one method, and of those whose candidates are the same: what they come to where the worse half
    is left behind at every rung and the best are confirmed at once."""
    one = equal[0]
    cells = {cell.id: cell for cell in (*one.every, *confirming)}
    done = sum(one is not None and one["status"] in ENDED for one in map(manifests.get, cells))
    row: Row = {
        "names": [[scenario, method, variant, None] for scenario, variant, method in (each.key for each in equal)],
        "ids": list(cells),
        "rounds": one.rungs[-1],
        "rungs": list(one.rungs),
        **({"confirm": len(confirming)} if confirming else {}),
        "status": f"{done} of {len(cells)} tried",
    }
    row |= _sum([(totals[id], shares[id]) for id in cells])
    if time is None:
        return row
    seconds = [own.seconds for id in cells if (own := time.cells.get(id)) and own.seconds is not None]
    return row | {"seconds": sum(seconds) if seconds else None}


def _sum(shared: Sequence[tuple[Row, float]]) -> Row:
    """What candidates come to, each with the share of its rounds that is to be expected. Of those whose cost is unknown
    the first one's reason stands there, and under `unpriced` how many they are; where no cost is known, that reason
    alone. One that is not applicable costs nothing."""
    parts = [part for part, _ in shared]
    estimated = [(part, share) for part, share in shared if "flops" in part]
    unknown = [part["unknown"] for part in parts if "unknown" in part]
    if not estimated:
        return dict(parts[0])
    row: Row = {}
    for key in dict.fromkeys(key for part, _ in estimated for key in part):  # in some no client may take part
        numbers = [(part[key], share) for part, share in estimated if key in part]
        total = sum(number * share for number, share in numbers)
        row[key] = round(total) if isinstance(numbers[0][0], int) else total
    if unknown:
        row |= {"unknown": unknown[0], "unpriced": len(unknown)}
    return row | {"failed": True} if any("failed" in part for part in parts) else row
