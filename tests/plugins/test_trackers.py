"""plugins/trackers: a row for each round, the manifest as parameters, the report as an artefact; never in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import fedbench, run, write_suite
from factories import config, eval_rows, round_row, write_cell

import fedbench as package
from fedbench.commands.run import files
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.results import content_hash, read_rows
from fedbench_plugins.trackers import to_mlflow
from fedbench_plugins.trackers.following import ReportedOnce, named, of_round, parameters
from fedbench_plugins.trackers.to_mlflow import keys_of

TESTED = [*eval_rows({2: {"solid": 0.5, "sketch": 0.7}}), *eval_rows({2: {"solid": 0.4}}, split="validation")]
ROWS = [round_row(2, 0, [0, 1], loss=1.0), round_row(2, 1, [0], loss=float("nan"), arrived=False)]


def test_the_numbers_of_a_round():
    found = of_round(ROWS, [*TESTED, *eval_rows({2: {"solid": 3.0}}, metric="loss")])
    assert (found["loss"], found["clients"], found["arrived"], found["bytes_down"]) == (1.0, 2, 1, 3_000_000)
    assert found["accuracy"] == pytest.approx(0.6) and found["accuracy/sketch"] == 0.7
    assert (found["validation/accuracy"], found["test_loss"]) == (0.4, 3.0)
    assert of_round([], []) == {"clients": 0, "arrived": 0}


@contextmanager
def followed(tmp_path, name, begun=0):
    """A suite's folder with one finished cell, whose two rounds a tracker was told of, as a run does it.

    begun: the round of the checkpoint from which the cell was resumed.
    """
    suite = tmp_path / "r" / "s"
    folder = write_cell(suite, "fedra", evaluation=eval_rows({2: {"solid": 0.5, "sketch": 0.7}}))
    manifest = json.loads((folder / "manifest.json").read_text()) | {"config": config("fedra"), "round": begun}
    registry, where = Registry(files([name])), {"folder": str(folder)}
    registry.tell("fedbench_suite_started", suite="s", cells=[manifest], folder=str(suite))
    registry.tell("fedbench_cell_started", manifest=manifest, **where)
    for t in (1, 2):
        rows = [round_row(t, 0, [0], loss=1.0 / t)]
        registry.tell(
            "fedbench_round_finished", manifest=manifest, round=t, rows=rows, evaluation=TESTED * (t == 2), **where
        )
    registry.tell("fedbench_cell_finished", manifest=manifest, evaluation=TESTED, **where)
    registry.tell("fedbench_suite_finished", suite="s", cells=[manifest], folder=str(suite))
    yield folder


def test_tensorboard_reads_back_what_was_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    monkeypatch.delenv("FEDBENCH_TENSORBOARD", raising=False)
    with followed(tmp_path, "tensorboard") as folder:
        logs = tmp_path / "r" / "tensorboard" / "s"
        read = EventAccumulator(str(logs / folder.name))
        read.Reload()
        assert [(e.step, e.value) for e in read.Scalars("loss")] == [(1, 1.0), (2, 0.5)]
        assert [(e.step, round(e.value, 6)) for e in read.Scalars("accuracy")] == [(2, 0.6)]
        assert {"accuracy/solid", "bytes_up", "validation/accuracy"} <= set(read.Tags()["scalars"])
        found = HParamsPluginData.FromString(read.summary_metadata["_hparams_/session_start_info"].plugin_data.content)
        assert found.session_start_info.hparams["config.train.rounds"].string_value == "12"
        assert "_hparams_/session_end_info" in read.summary_metadata
        assert "fedbench report" in (logs / "report.html").read_text()
    assert capsys.readouterr().err == ""
    assert fedbench("compare", "r", cwd=tmp_path).exit_code == 0  # its folder is no suite's


@pytest.mark.parametrize(
    ("starts", "left"),
    [
        ([(0, 3), (1, 4)], [1, 22, 23, 24]),  # killed in round 4, gone on with after its checkpoint of round 1
        ([(0, 2), (2, 4)], [1, 2, 23, 24]),  # interrupted
        ([(0, 3), (0, 2)], [21, 22]),  # --force, or no checkpoint
        ([(0, 4), (0, 3), (1, 2)], [21, 32]),
    ],
)
def test_tensorboard_draws_no_step_twice(tmp_path, monkeypatch, starts, left):
    """A value names the start that it is of, and its round."""
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("FEDBENCH_TENSORBOARD", str(tmp_path / "logs"))
    registry, folder = Registry(files(["tensorboard"])), str(tmp_path / "r" / "s" / "cells" / "0a")
    for number, (begun, end) in enumerate(starts, 1):
        manifest = {"id": "0a", "config": config("fedra"), "round": begun}
        registry.tell("fedbench_cell_started", manifest=manifest, folder=folder)
        for t in range(begun + 1, end + 1):
            rows = [round_row(t, 0, [0], loss=float(t + 10 * number * (number > 1)))]
            registry.tell(
                "fedbench_round_finished", manifest=manifest, round=t, rows=rows, evaluation=[], folder=folder
            )
    read = EventAccumulator(str(tmp_path / "logs" / "s" / "0a"))
    read.Reload()
    assert [e.value for e in read.Scalars("loss")] == left
    assert [e.step for e in read.Scalars("loss")] == [round(value) % 10 for value in left]
    assert "_hparams_/session_start_info" in read.summary_metadata


@pytest.mark.parametrize(
    ("folder", "suite"),
    [("r/s/cells/0a1b2c3d4e5f", "s"), ("cells/cells/0a", "cells")],
)
def test_a_cell_is_of_the_suite_whose_folder_it_lies_in(tmp_path, folder, suite):
    place, cell = named(str(tmp_path / folder))
    assert (place.name, cell) == (suite, Path(folder).name)


@pytest.mark.parametrize("status", ["finished", "halved", "failed", "timeout"])
def test_tensorboard_counts_a_halved_candidate_as_a_success(tmp_path, monkeypatch, status):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    monkeypatch.setenv("FEDBENCH_TENSORBOARD", str(tmp_path / "logs"))
    registry, folder = Registry(files(["tensorboard"])), tmp_path / "r" / "s" / "cell"
    registry.tell("fedbench_cell_finished", manifest={"status": status}, evaluation=[], folder=str(folder))
    read = EventAccumulator(str(tmp_path / "logs" / "s" / "cell"))
    read.Reload()
    (about,) = read.summary_metadata.values()
    told = HParamsPluginData.FromString(about.plugin_data.content).session_end_info.status
    assert told == Status.Value("STATUS_SUCCESS" if status in ("finished", "halved") else "STATUS_FAILURE")


@pytest.mark.slow  # importing MLflow takes two seconds
def test_mlflow_has_a_run_for_each_cell_and_one_with_the_report(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow import MlflowClient

    _mlflow_at((tmp_path / "store").as_uri(), monkeypatch)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for begun in (0, 2, 0):  # at first, resumed, and computed again from the first round
        with followed(tmp_path, "mlflow", begun=begun) as folder:
            client = MlflowClient()
            experiment = client.get_experiment_by_name("s").experiment_id
            every = client.search_runs([experiment])
            replaced = [run for run in every if "fedbench.replaced" in run.data.tags]
            runs = {run.info.run_name: run for run in every if run not in replaced}
            assert runs.keys() == {folder.name, "s"}
    assert [run.info.run_name for run in replaced] == [folder.name]
    cell = runs[folder.name]
    assert cell.info.status == "FINISHED" and cell.data.tags["fedbench.status"] == "finished"
    assert (
        cell.data.params["config.train.rounds"] == "12" and cell.data.params["versions.fedbench"] == package.__version__
    )
    history = client.get_metric_history(cell.info.run_id, "loss")
    assert sorted((m.step, m.value) for m in history) == [(1, 1.0), (2, 0.5)]
    assert cell.data.metrics["accuracy"] == pytest.approx(0.6) and cell.data.metrics["accuracy.sketch"] == 0.7
    (artefact,) = client.list_artifacts(runs["s"].info.run_id)
    assert artefact.path == "report.html" and artefact.file_size > 10_000
    assert capsys.readouterr().err == ""


def _mlflow_at(uri, monkeypatch):
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)


@contextmanager
def server(folder):
    """MLflow's own server on this machine, with a data base and artefacts in a folder; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"server --host 127.0.0.1 --port {port} --workers 1 --backend-store-uri sqlite:///m.db"
    command = [sys.executable, "-m", "mlflow", *words.split(), "--artifacts-destination", str(folder / "artefacts")]
    address = f"http://127.0.0.1:{port}"
    with open(folder / "server.log", "wb") as log:
        made = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(300):
            with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=1):
                break
            assert made.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(made.pid, signal.SIGKILL)
        made.wait()


@pytest.mark.slow  # a server takes seconds to begin
def test_mlflows_server_has_rows_parameters_and_the_report(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    pytest.importorskip("flask", reason="MLflow's server is not installed: pip install mlflow")
    write_suite(tmp_path, "fedra, allsmall")
    with server(tmp_path) as address:
        _mlflow_at(address, monkeypatch)
        done = run("--tracker", "mlflow", cwd=tmp_path)
        assert done.exit_code == 0 and "mlflow" not in done.stderr, done.output
        from mlflow import MlflowClient

        client, there = MlflowClient(address), (tmp_path / "r" / "tiny").glob("*/manifest.json")
        cells = {file.parent: json.loads(file.read_text()) for file in there}
        experiment = client.get_experiment_by_name("tiny").experiment_id
        runs = {run.info.run_name: run for run in client.search_runs([experiment])}
        assert len(cells) == 2 and runs.keys() == {"tiny", *(cell.name for cell in cells)}
        for cell, manifest in cells.items():
            one, rows = runs[cell.name], read_rows(cell, "rounds")
            assert one.info.status == "FINISHED" and one.data.params["id"] == manifest["id"]
            assert one.data.params["config.train.rounds"] == "2"
            sent = {m.step: m.value for m in client.get_metric_history(one.info.run_id, "bytes_up")}
            assert sent == {t: sum(row["bytes_up"] for row in rows if row["round"] == t) for t in (1, 2)}
        (artefact,) = client.list_artifacts(runs["tiny"].info.run_id)
        page = Path(client.download_artifacts(runs["tiny"].info.run_id, artefact.path, str(tmp_path))).read_text()
        assert '<meta name="generator" content="fedbench">' in page and all(m["id"] in page for m in cells.values())


class PretendedRun:
    """A run of Weights & Biases that keeps what it is given."""

    def __init__(self, **given):
        self.given, self.logged, self.summary, self.code = given, [], {}, None

    def log(self, numbers, step=None):
        self.logged.append((step, numbers))

    def finish(self, exit_code=0):
        self.code = exit_code


def test_wandb_has_a_run_for_each_cell_and_one_with_the_report(tmp_path, monkeypatch, capsys):
    runs = []
    pretended = SimpleNamespace(
        Settings=dict,
        Html=lambda page, inject: page,
        init=lambda **given: runs.append(PretendedRun(**given)) or runs[-1],
        __spec__=ModuleSpec("wandb", None),
    )
    monkeypatch.setitem(sys.modules, "wandb", pretended)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with followed(tmp_path, "wandb") as folder:
        cell, suite = runs
    assert (cell.given["project"], cell.given["name"], cell.given["mode"]) == ("s", folder.name, "offline")
    assert cell.given["dir"] == str(tmp_path / "r") and cell.given["resume"] == "allow"
    assert cell.given["config"]["config.train.rounds"] == "12" and cell.given["id"] == cell.given["config"]["id"]
    assert [(step, numbers["loss"]) for step, numbers in cell.logged] == [(1, 1.0), (2, 0.5)]
    assert cell.logged[1][1]["accuracy"] == pytest.approx(0.6)
    assert (cell.code, cell.summary, suite.code) == (0, {"status": "finished"}, 0)
    assert '<meta name="generator" content="fedbench">' in suite.logged[0][1]["report"]
    assert capsys.readouterr().err == ""


def test_wandb_itself_writes_runs_that_can_be_sent_later(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    environ = dict(os.environ)
    try:
        with followed(tmp_path, "wandb"):
            assert len(list((tmp_path / "r/wandb").glob("offline-run-*/run-*.wandb"))) == 2
    finally:
        os.environ.clear()
        os.environ.update(environ)  # wandb names its service there


def test_a_run_says_the_same_with_a_tracker_and_with_one_that_fails(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    write_suite(tmp_path, "fedra")
    assert run("--quiet", cwd=tmp_path).exit_code == 0
    plain = content_hash(tmp_path / "r")
    for broken in (False, True):
        shutil.rmtree(tmp_path / "r")
        if broken:
            (tmp_path / "r").mkdir()
            (tmp_path / "r" / "tensorboard").write_text("a file, where a folder is to be")
        done = run("--tracker", "tensorboard", cwd=tmp_path)
        assert done.exit_code == 0 and content_hash(tmp_path / "r") == plain
        assert done.stderr.count("follows this run no more") == broken
        outputs = [file.read_text() for file in (tmp_path / "r" / "tiny" / "cells").glob("*/output.txt")]
        assert sum(text.count("follows this run no more") for text in outputs) == broken


def test_a_tracker_that_fails_is_told_once_and_called_no_more(capsys):
    told, calls = ReportedOnce("mine"), []

    @told
    def hook(round):
        calls.append(round)
        raise OSError("no server\nand more")

    for t in range(3):
        hook(t)
    err = capsys.readouterr().err
    assert calls == [0] and err.count("tracker mine") == 1 and "no server); results are not affected" in err


def test_a_tracker_is_asked_for_by_a_name_that_is_there_with_what_it_needs(monkeypatch):
    assert "fedbench_plugins" not in str(Registry().catalogue.lifecycle) and not Registry().catalogue.lifecycle
    with pytest.raises(UserError, match="did you mean 'mlflow'"):
        files(["mlfow"])
    monkeypatch.setattr("fedbench.commands.run.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install tensorboard$"):
        files(["tensorboard"])


def test_parameters_are_the_manifest_as_flat_texts():
    manifest = {"id": "x", "config": {"a": {"b": 1, "c": "d"}}, "versions": {"torch": "2"}, "machine": None}
    assert parameters(manifest) == {"id": "x", "config.a.b": "1", "config.a.c": "d", "versions.torch": "2"}


@pytest.mark.parametrize(
    "names",
    [
        ["accuracy/a+b", "accuracy/a*b"],
        ["accuracy/cafe\u0301", "accuracy/caf\xe9"],
        ["accuracy/Sketch", "accuracy/sketch"],
        ["accuracy/" + "x" * 300 + "1", "accuracy/" + "x" * 300 + "2"],
        ["accuracy/a/b", "accuracy/a.b"],
    ],
)
def test_no_two_domains_become_one_metric_of_mlflow(names):
    keys = keys_of(["loss", *names])
    assert len({key.casefold() for key in keys.values()}) == 3 and keys["loss"] == "loss"
    assert all(len(key) <= 250 for key in keys.values())


def test_mlflow_without_a_server_or_a_data_base_follows_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(to_mlflow, "find_spec", lambda name: None)
    assert to_mlflow.environment()["MLFLOW_TRACKING_URI"] == (tmp_path / "mlruns").as_uri()
    monkeypatch.setattr(to_mlflow, "find_spec", lambda name: "there")
    assert "MLFLOW_TRACKING_URI" not in to_mlflow.environment()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    monkeypatch.setattr(to_mlflow, "find_spec", lambda name: None)
    assert "MLFLOW_TRACKING_URI" not in to_mlflow.environment()
