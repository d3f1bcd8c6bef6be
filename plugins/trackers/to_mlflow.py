"""MLflow: a run for each cell in an experiment called as the suite, and one for the suite with the report.

`MLFLOW_TRACKING_URI=http://localhost:5000 fedbench run SUITE --tracker mlflow`; without that variable MLflow decides
where it goes. A cell that resumes from its checkpoint resumes its run, found by its id. One that starts over, as after
`--force`, gets a new run, and the earlier one the tag `fedbench.replaced`. Nothing is sent by a thread.
MLflow's telemetry is off, and a server that does not answer is given up soon, unless the environment says otherwise.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedbench import hookimpl
from fedbench.disk import hash_of_bytes
from fedbench_plugins.trackers.following import REPORT, WELL, ReportedOnce, named, of_round, parameters, report

CELL = "fedbench.simulation"  # the tag by which a run is found again
REPLACED = "fedbench.replaced"  # the tag of a run whose cell was computed again from its first round
ENDED = {**dict.fromkeys(WELL, "FINISHED"), "interrupted": "KILLED"}
AT_ONCE = 100  # parameters that MLflow takes in one call
MOST = 250  # letters of a key
FOLDER = "mlruns"  # of the current folder, where no server is set
ALLOW = "MLFLOW_ALLOW_FILE_STORE"
LONGEST = 500  # letters of a parameter that every version of it takes
CHOSEN = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

NEEDS = "mlflow"  # the package, and the extra that brings it
reported_once = ReportedOnce("mlflow")
_runs: dict[str, str] = {}  # by folder, of this process


@hookimpl
@reported_once
def fedbench_suite_started(suite):
    if ALLOW in environment():
        print(f"tracker mlflow: no server is set; runs go into ./{FOLDER} (MLFLOW_TRACKING_URI names another place)")
    _experiment(suite)


@hookimpl
@reported_once
def fedbench_cell_started(manifest, folder):
    from mlflow.entities import Param

    if not manifest.get("round"):
        _set_aside(folder, manifest["id"])
    run = _run(folder, manifest["id"])
    known = _client().get_run(run).data.params
    texts = parameters(manifest)
    keys = keys_of(texts)
    given = [(keys[name], text[:LONGEST]) for name, text in texts.items()]
    new = [Param(key, text) for key, text in given if key not in known]  # one that is there cannot be changed
    for i in range(0, len(new), AT_ONCE):
        _client().log_batch(run, params=new[i : i + AT_ONCE])


@hookimpl
@reported_once
def fedbench_round_finished(manifest, round, rows, evaluation, folder):
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    numbers = of_round(rows, evaluation)
    keys = keys_of(numbers)
    metrics = [Metric(keys[name], value, now, round) for name, value in numbers.items()]
    _client().log_batch(_run(folder, manifest["id"]), metrics=metrics)


@hookimpl
@reported_once
def fedbench_cell_finished(manifest, folder):
    run = _run(folder, manifest["id"])
    _client().set_tag(run, "fedbench.status", manifest["status"])
    if manifest.get("reason"):
        _client().set_tag(run, "fedbench.reason", manifest["reason"][:LONGEST])
    _client().set_terminated(run, ENDED.get(manifest["status"], "FAILED"))
    del _runs[folder]


@hookimpl
@reported_once
def fedbench_suite_finished(suite, folder):
    run = _found(suite, suite)
    _client().log_text(run, report(folder), REPORT)
    _client().set_terminated(run)


def environment() -> dict[str, str]:
    """The settings of MLflow that this tracker makes: a folder of files where no server is set and there is no SQLite
    store, as with `mlflow-skinny`."""
    if os.environ.get("MLFLOW_TRACKING_URI") or find_spec("sqlalchemy"):
        return CHOSEN
    return {**CHOSEN, "MLFLOW_TRACKING_URI": Path(FOLDER).absolute().as_uri(), ALLOW: "true"}


@cache
def _client() -> Any:
    for name, value in environment().items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient()


@cache
def _experiment(suite: str) -> str:
    """Its id; made where there is none, by whichever process is first."""
    from mlflow.exceptions import MlflowException

    client = _client()
    found = client.get_experiment_by_name(suite)
    if found is None:
        try:
            return str(client.create_experiment(suite))
        except MlflowException:
            if (found := client.get_experiment_by_name(suite)) is None:
                raise
    return str(found.experiment_id)


def _run(folder: str, id: str) -> str:
    """The run of a cell."""
    if folder not in _runs:
        suite, cell = named(folder)
        _runs[folder] = _found(suite.name, id, cell)
    return _runs[folder]


def _set_aside(folder: str, id: str) -> None:
    """Tag the run in which this cell already has rounds as replaced, so that no step is drawn twice."""
    run = _run(folder, id)
    if _client().get_run(run).data.metrics:
        _client().delete_tag(run, CELL)
        _client().set_tag(run, REPLACED, id)
        del _runs[folder]


def _found(suite: str, id: str, name: str = "") -> str:
    """The run with that id as its tag; made where there is none."""
    experiment = _experiment(suite)
    there = _client().search_runs([experiment], f"tags.`{CELL}` = '{id}'", max_results=1)
    if there:
        return str(there[0].info.run_id)
    made = _client().create_run(experiment, run_name=name or suite, tags={CELL: id})
    return str(made.info.run_id)


def keys_of(names: Iterable[str]) -> dict[str, str]:
    """Names as MLflow takes them. Names that would become one, such as of the domains `a+b` and `a*b`, end with a hash.

    In MLflow's folders no key can be called as the beginning of another, and file systems may not know case.
    """
    keys = {name: re.sub(r"[^\w\-. ]", "_", name.replace("/", "."))[:MOST] for name in names}
    folded = Counter(unicodedata.normalize("NFC", key).casefold().strip() for key in keys.values())
    return {
        name: key
        if folded[unicodedata.normalize("NFC", key).casefold().strip()] == 1
        else f"{key[: MOST - 9]}-{hash_of_bytes(name.encode())[:8]}"
        for name, key in keys.items()
    }
