"""The executor `slurm`: submitit's own local jobs, and Slurm's commands as far as submitit asks for them."""

from __future__ import annotations

import json
import os
import pickletools
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import TINY, run, write_suite

import fedbench
from fedbench.errors import UserError
from fedbench.results import content_hash
from fedbench.testing.slurm import install
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
    return fedbench.run(folder / "tiny.yaml", **given, **options), events


def worker_of(folder: str) -> psutil.Process:
    """The process that computes a cell."""
    claim = json.loads((Path(folder).parent / f".{folder[-12:]}.claim").read_text())
    return psutil.Process(claim["worker"]["pid"])


def job_of(worker: psutil.Process) -> psutil.Process:
    """submitit's process of a job, in which the executor `local` has the worker."""
    return next(parent for parent in worker.parents() if "submitit.core._submit" in parent.cmdline())


def test_jobs_give_the_numbers_of_one_worker_and_a_killed_one_goes_on(whole, lost_one, tmp_path):
    left_behind = []

    def kill(event: dict) -> None:
        if event["event"] == "round" and event["round"] >= LATER and not left_behind:
            left_behind.append(worker_of(event["folder"]))
            job_of(left_behind[0]).kill()
        if event["event"] == "lost":
            lost_one.touch()

    outcome, events = told(tmp_path, kill, executor={**LOCAL, "logs": str(tmp_path / "logs")}, jobs=2)
    assert outcome.counts == {"finished": 2} and content_hash(outcome.folder) == whole
    (lost,) = [event for event in events if event["event"] == "lost"]
    assert str(tmp_path / "logs") in lost["reason"]
    after = events[events.index(lost) :]
    assert next(e["round"] for e in after if e["event"] == "round" and e["folder"] == lost["folder"]) >= LATER
    assert not psutil.wait_procs(left_behind, timeout=20)[1]
    left = {path.name for path in outcome.folder.glob(".*")}
    assert left == {".claims.lock", ".index.json.lock"}, "submitit's files lie elsewhere"
    assert list((tmp_path / "logs").rglob("*_log.err")), "the logs of a job that was lost are kept"


def test_what_submitit_pickles_is_a_function_by_name_and_one_string(tmp_path, monkeypatch):
    write_suite(tmp_path, "chained")
    kept = tmp_path / "logs"
    monkeypatch.setattr("fedbench_plugins.executors.slurm.shutil.rmtree", lambda *_, **__: None)
    told(tmp_path, executor={**LOCAL, "logs": str(kept)}, jobs=1)
    (submitted,) = kept.rglob("*_submitted.pkl")
    strings = [argument for _, argument, _ in pickletools.genops(submitted.read_bytes()) if isinstance(argument, str)]
    assert {"fedbench.runs.executors.remote", "printed"} <= set(strings)
    named = {text.partition(".")[0] for text in strings if text.startswith(("fedbench", "torch", "numpy"))}
    assert named == {"fedbench"}
    (errand,) = [text for text in strings if text.startswith("{")]
    assert json.loads(json.loads(errand)["job"])["manifest"]["config"]["method"]["name"] == "chained"


@pytest.mark.slow
def test_a_run_whose_jobs_all_end_well_leaves_no_file_of_submitits(tmp_path):
    write_suite(tmp_path, "chained")
    told(tmp_path, executor={**LOCAL, "logs": str(tmp_path / "logs")}, jobs=1)
    assert not list((tmp_path / "logs").iterdir())


@pytest.mark.slow
def test_a_run_that_is_interrupted_leaves_no_job(tmp_path):
    write_suite(tmp_path, "chained", {**SEEDS, "rounds: 2": "rounds: 5000"})
    at_work: list[psutil.Process] = []

    def interrupt(event: dict) -> None:
        if event["event"] == "round" and not at_work:
            worker = worker_of(event["folder"])
            at_work.extend([worker, job_of(worker)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, interrupt, executor=LOCAL, jobs=1)
    assert at_work and not psutil.wait_procs(at_work, timeout=20)[1]
    statuses = [json.loads(file.read_text())["status"] for file in tmp_path.glob("r/tiny/*/manifest.json")]
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
    monkeypatch.setattr("fedbench_plugins.executors.slurm.POLL", {"slurm": 0.25, "local": 0.25})
    monkeypatch.setattr("fedbench_plugins.executors.slurm.ASK", 1.0)
    return home


@pytest.mark.slow
def test_an_array_gives_the_numbers_of_one_worker_and_a_preempted_job_goes_on(slurm, whole, lost_one, tmp_path):
    preempted = []

    def preempt(event: dict) -> None:
        if event["event"] == "round" and event["round"] >= LATER and not preempted:
            job = job_of(worker_of(event["folder"]))
            preempted.append(job)
            (slurm / f"{job.environ()['NAME']}.state").write_text("PREEMPTED")
            job.terminate()
        if event["event"] == "lost":
            lost_one.touch()

    asked = {"partition": "short", "account": "us", "memory": 1.5, "additional": {"qos": "low"}}
    outcome, events = told(tmp_path, preempt, executor={"name": "slurm", **asked}, timeout=600, device="cpu")
    assert outcome.counts == {"finished": 2} and content_hash(outcome.folder) == whole
    (lost,) = [event for event in events if event["event"] == "lost"]
    after = events[events.index(lost) :]
    assert next(e["round"] for e in after if e["event"] == "round" and e["folder"] == lost["folder"]) >= LATER
    first, second = (file.read_text() for file in sorted(slurm.glob("*.sbatch")))
    assert "--array=0-1%2" in first and "--array" not in second
    for word in ("partition=short", "account=us", "mem=1536MB", "qos=low", "time=20", "cpus-per-task=1", "no-requeue"):
        assert f"#SBATCH --{word}\n" in first


@pytest.mark.slow
def test_a_job_that_does_not_end_when_asked_is_cancelled(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.runs.executors.dispatch.ENDING", 0.0)
    write_suite(tmp_path, "chained", {"rounds: 2": "rounds: 5000"})
    jobs: list[psutil.Process] = []

    def interrupt(event: dict) -> None:
        if event["event"] == "round" and not jobs:
            jobs.append(job_of(worker_of(event["folder"])))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(tmp_path, interrupt, executor="slurm")
    assert (slurm / "1.state").read_text().startswith("CANCELLED")
    assert not psutil.wait_procs(jobs, timeout=20)[1]


@pytest.mark.parametrize(
    ("options", "places"),
    [({}, 100), ({"at_once": 7}, 7), ({"most": 12, "at_once": 7}, 12), ({"most": 5000}, 1000)],
)
def test_a_run_takes_no_more_cells_than_it_may_have_in_the_queue(slurm, monkeypatch, options, places):
    rooms = []

    def look(cluster, *_):
        rooms.extend([cluster.room(0), cluster.room(5)])
        return SimpleNamespace(run=lambda jobs: None)

    monkeypatch.setattr("fedbench_plugins.executors.slurm.Dispatch", look)
    on_slurm(logs=str(slurm), **options)([], print)
    assert rooms == [places, places if options.get("most") == 5000 else places - 5]


def test_a_machine_without_slurm_is_told_of(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch"):
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
