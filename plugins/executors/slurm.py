"""Cells as jobs of Slurm, through submitit. Needs the extra `slurm`."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fedbench import hookimpl, machine
from fedbench.disk import cache_dir
from fedbench.errors import UserError
from fedbench.options import Count, PathText, Positive, Text, judged
from fedbench.runner.elsewhere import Dispatch, compute, library
from fedbench.runner.local import Execute

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
    logs: Annotated[str, PathText("a folder")] | None = None,
    at_once: Count = 100,
    cluster: Literal["slurm", "local"] = "slurm",
) -> Execute:
    """Run cells as jobs of Slurm, in arrays. `--jobs` of them, or else `at_once`, are in its queue or at work at a
    time; more follow as these end. `time` is in minutes (null: enough for `--timeout`, or a day), `memory` in GB, and
    `additional` goes to sbatch as it is. The next run resumes a cell that is preempted, out of time or on a lost node.
    `logs` is a folder that all machines see, for submitit's files; null: one in the cache folder. `cluster: local` runs
    jobs on this machine, without Slurm. With `--device cuda` each asks for a GPU, or for its `gres`.
    """
    if "gres" not in additional and gpu not in (0.0, 1.0):
        raise UserError(f"--gpu-fraction {gpu:g}: Slurm gives whole GPUs; shares: additional: {{gres: 'shard:1'}}")
    room = min(ARRAY, most or (machine.cores() // cpus_per_cell or 1 if cluster == "local" else at_once))
    wanted = {
        "timeout_min": time or (math.ceil(timeout / 60) + 10 if timeout else 24 * 60),  # 10 to load torch and data
        "cpus_per_task": cpus_per_cell,
        "mem_gb": memory,
        "gpus_per_node": None if "gres" in additional else int(gpu) or None,
        "slurm_partition": partition,
        "slurm_account": account,
        "slurm_array_parallelism": room,
        "slurm_additional_parameters": {"no-requeue": True, **additional},
    }
    try:
        folder = Path(logs or cache_dir() / "slurm").resolve() / secrets.token_hex(4)
        executor = library("submitit", "slurm").AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(**{name: value for name, value in wanted.items() if value is not None})
    except (RuntimeError, ValueError, TypeError, NameError, OSError) as error:
        raise UserError(f"--executor slurm: {error}") from error
    slurm = _Cluster(executor, {"timeout": timeout, "memory_limit": memory_limit}, room)
    return lambda jobs, on_event: Dispatch(slurm, on_event, cpus_per_cell, gpu).run(jobs)


class _Cluster:
    """submitit's jobs as tasks of an `elsewhere.Cluster`. What they return is pickled, and never read."""

    def __init__(self, executor: Any, limits: dict[str, Any], most: int) -> None:
        self.executor, self.limits, self.room = executor, limits, lambda: most

    def submit(self, jobs: Sequence[str]) -> Sequence[Any]:
        try:
            return self.executor.map_array(compute, jobs, [self.limits] * len(jobs))
        except Exception as error:  # submitit's, or the system's
            raise UserError(f"--executor slurm: sbatch takes no job: {error}") from error

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        return [task for task in tasks if task.paths.result_pickle.exists() or _state(task) not in UNDONE]

    def fault(self, task: Any) -> str:
        if task.paths.result_pickle.exists() and _state(task) in (*UNDONE, "COMPLETED", "FINISHED"):
            return ""
        last = (task.stderr() or "").strip().rpartition("\n")[2]
        return f"job {task.job_id} is {_state(task)}: {last or 'it printed nothing'} ({task.paths.stderr})"

    def cancel(self, task: Any, at_once: bool) -> None:
        task.cancel(check=False)


def _state(task: Any) -> str:
    """Slurm's word for the state of a job, or that of submitit's local jobs; Slurm is asked once a minute."""
    info = task.get_info(mode="standard")
    return (info.get("State") or info.get("jobState") or "UNKNOWN").split()[0].rstrip("+")


@hookimpl
def fedbench_register_executors(register):
    register("slurm", on_slurm, elsewhere=True)
