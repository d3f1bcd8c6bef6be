"""Cells as jobs of Slurm, through submitit. Needs the extra `slurm`."""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any, Literal

from fedbench import hookimpl, machine
from fedbench.disk import cache_dir
from fedbench.errors import UserError
from fedbench.options import Count, Positive, Text, judged
from fedbench.runs.executors import Execute, OnEvent, remote
from fedbench.runs.executors.dispatch import Dispatch, Lost, changes
from fedbench.runs.executors.environment import NOT_FROM_HERE, environment
from fedbench.runs.executors.workers import LOADING

POLL = {"slurm": 2.0, "local": 0.25}  # seconds between two looks at the jobs
ASK = 30.0  # seconds between two questions to Slurm, one for all jobs
WRITTEN = 15.0  # seconds after its end in which what a job has printed must be seen here
DAY = 24 * 60  # minutes
ARRAY = 1000  # jobs of an array: Slurm's MaxArraySize is 1001 unless it is set
UNDONE = ("READY", "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "UNKNOWN")


@judged("--executor slurm")
def on_slurm(
    most: int | None = None,
    timeout: float | None = None,
    memory_limit: int | None = None,
    gpu: float = 0.0,
    partition: Annotated[str, Text("a partition of Slurm")] | None = None,
    account: Annotated[str, Text("an account of Slurm")] | None = None,
    time: Count | None = None,
    cpus_per_cell: Count = 1,
    memory: Positive | None = None,
    additional: dict[str, Any] = {},  # noqa: B006 (an option's default, never changed)
    logs: Annotated[str, Text("a folder")] | None = None,
    attempts: Count = 3,
    at_once: Count = 100,
    cluster: Literal["slurm", "local"] = "slurm",
) -> Execute:
    """Run cells as jobs of Slurm, in arrays. `--jobs` of them, or else `at_once`, are in its queue or at work at a
    time; more follow as these end. `time` is in minutes (null: enough for `--timeout`, or a day), `memory` in GB, and
    `additional` goes to sbatch as it is. A cell that is preempted, out of time or whose node is lost goes on in another
    job, and has failed after `attempts` losses in a row without getting further. `logs` is a folder that all machines
    see, for submitit's own files; null: one in the cache folder. `cluster: local` runs the jobs on this machine,
    without Slurm, and as many at a time as it has CPUs for unless `--jobs` says so. With `--device cuda` each asks for
    a GPU, or for what `additional` calls `gres`.
    """
    library = _library(cluster)
    wanted = {
        "timeout_min": time or (math.ceil((timeout + LOADING) / 60) if timeout else DAY),
        "cpus_per_task": cpus_per_cell,
        "mem_gb": memory,
        "gpus_per_node": _gpus(gpu, additional),
        "slurm_partition": partition,
        "slurm_account": account,
        "slurm_array_parallelism": most or at_once,
        "slurm_additional_parameters": {"no-requeue": True, **additional},  # a job that is lost is submitted anew here
    }
    room = most or (machine.cores() // cpus_per_cell or 1 if cluster == "local" else at_once)

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        folder = Path(logs or cache_dir() / "slurm").resolve() / secrets.token_hex(4)
        slurm = _Cluster(library, cluster, folder, wanted, room)
        try:
            limits = {"timeout": timeout, "memory_limit": memory_limit}
            Dispatch(slurm, limits, changes(gpu, cpus_per_cell), attempts, on_event).run(jobs)
        finally:
            if not slurm.troubled:
                shutil.rmtree(folder, ignore_errors=True)

    return execute


def _gpus(gpu: float, additional: dict[str, Any]) -> int | None:
    """How many to ask for; None where `additional` does. Raises: UserError for a part of one."""
    if "gres" in additional:
        return None
    if gpu not in (0.0, 1.0):
        raise UserError(
            f"--gpu-fraction {gpu:g}: Slurm gives whole GPUs. Where yours gives out parts of one, say which to "
            "--executor, such as '{name: slurm, additional: {gres: \"shard:1\"}}'"
        )
    return int(gpu) or None


class _Cluster:
    """submitit's jobs as tasks of a `dispatch.Cluster`. What they answer is read from what they print: submitit pickles
    results too, and nobody opens those. troubled: whether their logs should be kept."""

    def __init__(self, library: Any, cluster: str, folder: Path, wanted: dict[str, Any], room: int) -> None:
        """wanted: of each job; None leaves it to Slurm · room: for how many cells, in Slurm's queue or at work."""
        self.error, self.poll, self.most, self.troubled = library.core.utils.FailedJobError, POLL[cluster], room, False
        self.asked_at = -ASK
        try:
            self.executor = library.AutoExecutor(folder=folder, cluster=cluster)
            self.executor.update_parameters(**{name: value for name, value in wanted.items() if value is not None})
        except (RuntimeError, ValueError, TypeError, NameError, OSError) as error:
            raise UserError(f"--executor slurm: {error}") from error

    def room(self, busy: int) -> int:
        return min(self.most - busy, ARRAY)

    def submit(self, errands: Sequence[str]) -> Sequence[Any]:
        try:
            with environment(NOT_FROM_HERE):
                return self.executor.map_array(remote.printed, errands)
        except (self.error, OSError) as error:
            raise UserError(f"--executor slurm: sbatch takes no job: {error}") from error

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        sleep(self.poll)
        if ask := monotonic() > self.asked_at + ASK:
            self.asked_at = monotonic()
        ended = []
        for task in tasks:
            state = _state(task, "force" if ask else "cache")
            ask = False  # one question is for all jobs
            if task.paths.result_pickle.exists() or state not in UNDONE:
                ended.append(task)
        return ended

    def answer(self, task: Any) -> str:
        until = monotonic() + (WRITTEN if task.paths.result_pickle.exists() else 0.0)
        while True:
            if (answer := remote.answer_in(task.stdout() or "")) is not None:
                return answer
            if monotonic() > until:
                break
            sleep(POLL["local"])
        self.troubled = True
        last = (task.stderr() or "").strip().rpartition("\n")[2]
        raise Lost(f"its job {task.job_id} is {_state(task, 'cache')}: {last or 'no word of it'} ({task.paths.stderr})")

    def cancel(self, task: Any) -> None:
        task.cancel(check=False)


def _state(task: Any, mode: str) -> str:
    """Slurm's word for the state of a job, or that of submitit's local jobs."""
    info = task.get_info(mode=mode)
    return (info.get("State") or info.get("jobState") or "UNKNOWN").split()[0].rstrip("+")


def _library(cluster: str) -> Any:
    """The package `submitit`. Raises: UserError where it is not installed, or Slurm is not."""
    try:
        import submitit
    except ImportError as error:
        raise UserError(
            f"--executor slurm needs the package submitit ({error}); pip install 'fedbench[slurm]' installs it"
        ) from None
    if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise UserError(
            "--executor slurm: this machine has no sbatch or srun; start the run where Slurm's commands are"
        )
    return submitit


@hookimpl
def fedbench_register_executors(register):
    register("slurm", on_slurm, elsewhere=True)
