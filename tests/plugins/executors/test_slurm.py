"""The executor `slurm`: submitit's own local jobs, and Slurm's commands as far as submitit asks for them."""

from __future__ import annotations

import json
import os
import pickletools
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import TINY, run, write_suite
from slurm_commands import install

from fedbench.errors import UserError
from fedbench.results import content_hash
from fedbench.results.lock import lock_file
from fedbench.runner import runner
from fedbench_plugins.executors.slurm import on_slurm

submitit = pytest.importorskip("submitit")

SEEDS = {"scenarios:": "seeds: [0, 1]\nscenarios:"}
LOCAL = {"name": "slurm", "cluster": "local"}
LONG = 60  # rounds of a cell that is killed in its midst
LATER = 11  # the round after whose end it is killed; slow from then on, lest it ends before it is lost


@pytest.fixture
def lost_one(tmp_path):
    """The file that tells cells that they need not wait any more for one of them to be lost."""
    return tmp_path / "lost"


@pytest.fixture
def whole(tmp_path, lost_one):
    """The content hash of a suite of two long cells, computed by one worker of this machine."""
    lost_one.touch()
    method = f"{{name: chained, until: {lost_one}, since: {LATER + 1}}}"
    write_suite(tmp_path, method, {**SEEDS, "rounds: 2": f"rounds: {LONG}"})
    assert run("--jobs", 1, "--results", "whole", cwd=tmp_path).exit_code == 0
    lost_one.unlink()
    return content_hash(tmp_path / "whole/tiny")


def told(folder: Path, also=lambda event: None, **options) -> tuple:
    """The outcome of a run of the suite in `folder`, and its events, of which `also` hears at once."""
    events: list[dict] = []

    def listen(event: dict) -> None:
        events.append(event)
        also(event)

    given = {"plugins": [str(TINY)], "results": folder / "r", "checkpoint_every": 0, "observe": lambda *_: listen}
    return runner.run(folder / "tiny.yaml", **given, **options), events


def worker_of(folder: Path) -> psutil.Process | None:
    """The process that computes a cell: it has the cell's lock open."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(file.path == str(lock_file(folder)) for file in process.open_files()):
                return process
    return None


def job_of(worker: psutil.Process) -> psutil.Process:
    """submitit's process of a job, in which the executor `local` has the worker."""
    return next(parent for parent in worker.parents() if "submitit.core._submit" in parent.cmdline())


def in_later_round(folder: Path, seconds: float = 90) -> tuple[Path, psutil.Process]:
    """The first cell in `folder` that has kept a checkpoint of a later round, and its process."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for file in folder.glob("r/tiny/cells/*/checkpoint/?/checkpoint.json"):
            with suppress(OSError, ValueError):
                cell = file.parents[2]
                if json.loads(file.read_text())["round"] >= LATER and (worker := worker_of(cell)):
                    return cell, worker
        time.sleep(0.1)
    raise AssertionError("no cell got there")


def interrupting(do) -> threading.Thread:
    thread = threading.Thread(target=do)
    thread.start()
    return thread


@pytest.mark.slow
def test_jobs_give_the_numbers_of_one_worker_and_the_next_run_resumes_a_killed_one(whole, lost_one, tmp_path):
    left_behind = []

    def kill() -> None:
        _, worker = in_later_round(tmp_path)
        left_behind.append(worker)
        job_of(worker).kill()
        lost_one.touch()

    thread = interrupting(kill)
    outcome, events = told(tmp_path, executor={**LOCAL, "logs": str(tmp_path / "logs")}, jobs=2)
    thread.join()
    assert outcome.counts == {"finished": 1, "running": 1}
    (lost,) = [event for event in events if event["event"] == "ended" and event["status"] == "interrupted"]
    assert (
        lost["reason"].startswith("its machine or its job was lost (job ") and str(tmp_path / "logs") in lost["reason"]
    )
    assert not psutil.wait_procs(left_behind, timeout=20)[1]
    outcome, events = told(tmp_path, executor={**LOCAL, "logs": str(tmp_path / "logs")}, jobs=2)
    assert outcome.counts == {"finished": 2} and content_hash(outcome.folder) == whole
    assert all(path.suffix == ".lock" for path in outcome.folder.glob(".*")), "submitit's files lie elsewhere"


def pickled(folder):
    """The text of the one job that submitit keeps in a folder, which is all that it has pickled besides a name."""
    (submitted,) = folder.rglob("*_submitted.pkl")
    strings = [argument for _, argument, _ in pickletools.genops(submitted.read_bytes()) if isinstance(argument, str)]
    assert {"fedbench.runner.elsewhere", "compute"} <= set(strings)
    named = {text.partition(".")[0] for text in strings if text.startswith(("fedbench", "torch", "numpy"))}
    assert named == {"fedbench"}
    (job,) = [text for text in strings if text.startswith("{")]
    return json.loads(job)


def test_what_submitit_pickles_is_a_function_by_name_and_one_string(tmp_path, monkeypatch):
    submit = lambda cluster, *_: SimpleNamespace(run=cluster.submit)  # noqa: E731
    monkeypatch.setattr("fedbench_plugins.executors.slurm.Dispatch", submit)
    monkeypatch.setattr("submitit.local.local.start_controller", lambda **_: SimpleNamespace(pid=1, poll=lambda: 0))
    on_slurm(cluster="local", logs=str(tmp_path))(['{"manifest": "of a cell"}'], print)
    assert pickled(tmp_path) == {"manifest": "of a cell"}


@pytest.mark.slow
def test_it_is_so_of_a_cell_of_a_run(tmp_path):
    write_suite(tmp_path, "chained")
    outcome, _ = told(tmp_path, executor={**LOCAL, "logs": str(tmp_path / "logs")}, jobs=1)
    assert outcome.counts == {"finished": 1}
    assert pickled(tmp_path / "logs")["manifest"]["config"]["method"]["name"] == "chained"


@pytest.mark.slow
def test_a_run_that_is_interrupted_leaves_no_job(tmp_path, hears_signals):
    write_suite(tmp_path, "chained", {**SEEDS, "rounds: 2": "rounds: 5000"})
    at_work: list[psutil.Process] = []

    def interrupt() -> None:
        _, worker = in_later_round(tmp_path)
        at_work.extend([worker, job_of(worker)])
        os.kill(os.getpid(), signal.SIGINT)

    interrupting(interrupt)
    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, executor=LOCAL, jobs=1)
    assert at_work and not psutil.wait_procs(at_work, timeout=20)[1]
    statuses = [json.loads(file.read_text())["status"] for file in tmp_path.glob("r/tiny/cells/*/manifest.json")]
    assert statuses == ["interrupted"]


# --- Slurm's commands ----------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder in which Slurm's commands keep what was submitted, and the states that jobs are to end with."""
    home, commands = tmp_path / "slurm", tmp_path / "bin"
    home.mkdir()
    commands.mkdir()
    install(home, commands)
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), os.environ["PATH"]]))
    return home


@pytest.mark.slow
def test_an_array_gives_the_numbers_of_one_worker_and_the_next_run_resumes_a_preempted_job(
    slurm, whole, lost_one, tmp_path
):
    def preempt() -> None:
        _, worker = in_later_round(tmp_path)
        job = job_of(worker)
        (slurm / f"{job.environ()['NAME']}.state").write_text("PREEMPTED")
        job.terminate()
        lost_one.touch()

    thread = interrupting(preempt)
    asked = {"partition": "short", "account": "us", "memory": 1.5, "additional": {"qos": "low"}, "at_once": 2}
    outcome, _ = told(tmp_path, executor={"name": "slurm", **asked}, timeout=600, device="cpu")
    thread.join()
    assert outcome.counts == {"finished": 1, "interrupted": 1}
    outcome, events = told(tmp_path, executor={"name": "slurm", **asked}, timeout=600, device="cpu")
    assert outcome.counts == {"finished": 2} and content_hash(outcome.folder) == whole
    first, second = (file.read_text() for file in sorted(slurm.glob("*.sbatch")))
    assert "--array=0-1%2" in first
    for word in ("partition=short", "account=us", "mem=1536MB", "qos=low", "time=20", "cpus-per-task=1", "no-requeue"):
        assert f"#SBATCH --{word}\n" in first


@pytest.mark.parametrize(("options", "places"), [({}, 100), ({"at_once": 7}, 7), ({"most": 12, "at_once": 7}, 12)])
def test_a_run_has_no_more_cells_in_the_queue_than_it_may(slurm, monkeypatch, options, places):
    rooms = []

    def look(cluster, *_):
        rooms.append(cluster.room())
        return SimpleNamespace(run=lambda jobs: None)

    monkeypatch.setattr("fedbench_plugins.executors.slurm.Dispatch", look)
    on_slurm(logs=str(slurm), **options)([], print)
    assert rooms == [places]


def test_a_machine_without_slurm_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="srun"):
        on_slurm()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cluster": "moon"}, 'expected "slurm" or "local"'),
        ({"cpus_per_cell": 0}, "cpus_per_cell: expected a whole number of at least 1, got 0"),
        ({"at_once": 0}, "at_once: expected a whole number of at least 1, got 0"),
        ({"partitoin": "short"}, 'did you mean "partition"?'),
    ],
)
def test_what_cannot_work_is_told_in_a_line(tmp_path, options, told):
    write_suite(tmp_path, "chained")
    done = run("--executor", json.dumps({**LOCAL, **options}), cwd=tmp_path)
    assert done.exit_code == 2 and told in done.stderr, done.stderr


def test_a_share_of_a_gpu_needs_a_slurm_that_gives_shares(slurm):
    with pytest.raises(UserError, match="shard:1"):
        on_slurm(gpu=0.25)
    assert on_slurm(gpu=0.25, additional={"gres": "shard:1"})
