"""Every hook of fedbench, on one page.

A plugin is a module named by an entry point of the group `fedbench`. It implements the hooks it wants with
`@fedbench.hookimpl`; an implementation may take fewer arguments than the specification.

The `fedbench_register_*` hooks are each called with one function, `register(name, make, **facts)`:

:param name: how suites call the component; unique within its kind over all installed packages.
:param make: the function that makes it. Its parameters are the options a suite may set, its defaults their defaults
    (JSON values), their annotations what they take (`fedbench.options`), its docstring what `fedbench plugins show`
    prints, the first paragraph what the list does.
:param profiles: optional, `{"reference": {option: value}}`: what a fidelity profile sets instead of the defaults.
:param later: optional, names of options that came after results were kept. Where they have their defaults, a
    configuration leaves them out, and so the cells of before keep their identities.
:param paper: optional, where it is from: a citation on one line with its year, `"Su et al., FedRA, ECCV 2024, arXiv
    2311.11227"`. `fedbench plugins show` prints it, and tables cite the papers of their methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("fedbench")
Register = Callable[..., None]
Rows = list[dict[str, Any]]  # of a table of a cell


# --- components ---------------------------------------------------------------------------------------------------


@hookspec
def fedbench_register_allocations(register: Register) -> None:
    """Who holds which layers: `register(name, allocate, exact=True)`.

    `allocate` is itself the allocation, a plain function returning M, (N, L) bool, or a `fedbench.types.Plan` where
    clients train a part of what they hold (its exits are set by the method). It takes whichever it wants of

    :param capacities: (N,) int64, the L_n of the round's clients.
    :param num_layers: L.
    :param generator: a torch.Generator of this round; the only source of chance.
    :param round: t, from 0.
    :param client_ids: the N ids of the round's clients.
    :param layer_costs: (L,) float64, FLOPs of one image through each layer, forward and backward.
    :param budgets: (N,) float64, L_n mean layers' FLOPs.
    :param scores: (L,) float64, the norm of each layer's last aggregated update, of W too (0 before the first).
    :param history: (L,) int64, how many client updates each layer has received so far.
    :param ranks: (N,) int64, the r_n of the round's clients; None where the scenario gives no ranks.
    :param layer_memory: (L,) float64, bytes that each layer adds to the memory of a client that trains it.
    :param memory_budgets: (N,) float64, L_n mean layers' bytes.

    Any further parameter is an option. Row n of M, or of `Plan.trained`, must sum to L_n; with `exact=False` it may
    stay below.
    """


@hookspec
def fedbench_register_aggregators(register: Register) -> None:
    """How uploads become the next state: `make(**options) -> aggregate(state, uploads, plan, cohort) -> state`.

    What it remembers between rounds it keeps in `state["memory"]`, nested dicts and lists of tensors. One that sets
    `make(setup, ...)` is given the run's `Setup` too.

    :param ignores: optional, as of methods: what of `capacities`, `ranks` and `widths` it does not look at.
    """


@hookspec
def fedbench_register_objectives(register: Register) -> None:
    """What a client minimises: `make(**options) -> objective(exits, y, t) -> loss`.

    `exits` lists the logits (B, C) of every classifier of the client, shallow to deep; `y` is (B,) int64; t the round.
    An objective that sets `make(setup, ...)` is given the run's `Setup` too, and may say that it `ignores` some of it,
    as aggregators may; any other sees nothing of that.
    """


@hookspec
def fedbench_register_adapters(register: Register) -> None:
    """What is trained inside the frozen layers: `make(**options) -> attach(blocks)`, which puts its modules in place.

    Every parameter it adds is trainable and belongs to the layer it stands in; whatever stands in no layer is shared.
    """


@hookspec
def fedbench_register_backbones(register: Register) -> None:
    """The pre-trained network: `make(**options) -> fedbench.models.backbone.Source`.

    A reference to a name nobody registered is offered to the component named `timm`.

    :param source: optional, a `fedbench.data.DataSource` with `packages` that the weights are made from; see data sets.
    """


@hookspec
def fedbench_register_methods(register: Register) -> None:
    """An algorithm: `make(setup, **options) -> fedbench.method.Method`.

    :param setup: a `fedbench.method.Setup`. Options called `allocation`, `aggregator` or `objective` are references to
        components of that kind.
    :param ignores: optional, what of a configuration it does not depend on, whatever its options: some of `capacities`,
        `ranks`, `widths` and `adapter`. Cells that differ in nothing else are computed once. Without it, it is taken to
        depend on all. `fedbench plugins check` holds it to its word.
    :param tunable: optional, False where it reads no setting that a tuning may choose (`train`, its options): one
        candidate then stands for all.
    :param family: optional, what it has in common with others, as `"Depth"`; `fedbench methods` groups by it.
    :param role: optional, what the method is there for. `method`, the default: to be judged. `ceiling`: more than any
        client could do; tables measure gaps to it. `floor`: what the weakest client allows. `control`: what a part of
        the others is worth. `constant`: the same answer to every example. Ceilings are not ranked, nor are constants
        where clients are not tested. Pictures draw ceilings dashed, controls and constants dotted.
    """


@hookspec
def fedbench_register_datasets(register: Register) -> None:
    """Images: `make(image_size, **options) -> fedbench.types.Dataset`. Facts at once, pixels on `load()`.

    :param source: optional, a `fedbench.data.DataSource`: which files it reads below `root`, and where to get them. For
        `fedbench data list`, `check` and `prepare`; a data set that has one has an option `root: null`. Or its
        `packages` of PyPI or npm: `make.prepare(files, folder)`, an attribute of `make`, then makes the files in the
        cache folder, and returns what else its provenance says, a JSON object.
    """


@hookspec
def fedbench_register_partitions(register: Register) -> None:
    """Who owns which images: `make(**options) -> partition(y, domain, num_domains, generator) -> [Client]`.

    `y` and `domain` are the (n,) labels of the training split, `generator` a numpy.random.Generator.
    """


@hookspec
def fedbench_register_metrics(register: Register) -> None:
    """What is measured at evaluation: `make(**options) -> metric(logits (n, C), y (n,)) -> float`.

    A `fedbench.types.SummedMetric(sums, value)` is read off sums that add up over batches, so that no logits are kept.

    :param better: optional, `"higher"` or `"lower"`, which of two values is the better one.
    :param unit: optional, `"%"` for a fraction that tables show times 100, or any short text, as `"ms"`.
    :param format: optional, how tables show a value, one of Python's formats, as `".2f"`.
    """


@hookspec
def fedbench_register_executors(register: Register) -> None:
    """Where cells run: `make(workers, most, timeout, memory_limit, gpu, gpus, **options) -> execute(jobs, on_event)`.

    :param elsewhere: optional, True where cells run on other machines.
    :param engine: optional, `"sequential"` or `"cohort"` where cells can be computed by that engine alone.

    A job is a `fedbench.simulation.cell_job.CellJob` as a JSON string. `jobs` is an iterator, and a cell is handed out
    when its job is asked for; `execute` may be called again with more. `on_event` takes dicts with `event` (`started`,
    `resumed`, `torn`, `round`, `stopping`, `ended`) and `folder`, and returns whether further cells may start. An
    `execute` that is asked to end by a signal raises `fedbench.errors.Interrupted` when its cells have ended.
    `fedbench.runner.local` is the executor that ships.
    """


# --- life cycle, for trackers -------------------------------------------------------------------------------------


@hookspec
def fedbench_suite_started(suite: str, cells: list[dict[str, Any]], folder: str) -> None:
    """Called before the first cell: the suite's name, every cell's manifest, the suite's folder.

    A third-party plugin is called in a separate process, which ends afterwards; so it is with the next hook.
    """


@hookspec
def fedbench_suite_finished(suite: str, cells: list[dict[str, Any]], folder: str) -> None:
    """Called after the last cell, with the final manifests."""


@hookspec
def fedbench_cell_started(manifest: dict[str, Any], folder: str) -> None:
    """Called when a cell begins, with the folder of its results.

    The process is the cell's where that uses a component of the plugin, otherwise one next to it, which lives as long.
    """


@hookspec
def fedbench_round_finished(manifest: dict[str, Any], round: int, rows: Rows, evaluation: Rows, folder: str) -> None:
    """Called in the same process, after a round.

    :param rows: the round's rows of the table `rounds`, one a client.
    :param evaluation: its rows of the table `eval`; none where the models were not tested after it.
    """


@hookspec
def fedbench_cell_finished(manifest: dict[str, Any], evaluation: Rows, folder: str) -> None:
    """Called in the same process, with every row of eval.parquet."""
