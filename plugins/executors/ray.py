"""Cells on a Ray cluster, by the CPUs and the share of a GPU that each takes. Needs the extra `ray`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

from fedbench import hookimpl, machine
from fedbench.errors import UserError
from fedbench.options import Count, Positive, Text, judged
from fedbench.runner.elsewhere import Dispatch, check_reachable, compute, library, unchanged, variables
from fedbench.runner.local import Execute, OnEvent

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@judged("--executor ray")
def on_ray(
    most: int | None = None,
    timeout: float | None = None,
    memory_limit: int | None = None,
    gpu: float = 0.0,
    address: Annotated[str, Text("HOST:PORT or auto")] | None = None,
    cpus_per_cell: Count = 1,
    resources: dict[str, Positive] = {},  # noqa: B006 (an option's default, never changed)
) -> Execute:
    """Run cells as tasks of a Ray cluster: `address` is `HOST:PORT`, `auto` for the one of this machine, or null to
    start one here. `--jobs` run side by side, or as many as there is room for. A cell takes `cpus_per_cell` CPUs,
    `--gpu-fraction` of a GPU and `resources` of your own. The next run computes a cell whose node was lost.
    """
    ray = library("ray", "ray")
    needs = {name: amount for name, amount in {"CPU": cpus_per_cell, "GPU": gpu, **resources}.items() if amount}
    limits = {"timeout": timeout, "memory_limit": memory_limit}
    cpus = (most or machine.cores() // cpus_per_cell or 1) * cpus_per_cell

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        with nullcontext() if ray.is_initialized() else _connected(ray, address, cpus):
            Dispatch(_Cluster(ray, limits, needs, most), on_event, cpus_per_cell, gpu).run(jobs)

    return execute


class _Cluster:
    """Ray's nodes as an `elsewhere.Cluster`. needs: what a cell takes of each resource."""

    def __init__(self, ray: Any, limits: dict[str, Any], needs: dict[str, float], most: int | None) -> None:
        self.ray, self.limits, self.needs, self.most = ray, limits, needs, most
        own = {name: amount for name, amount in needs.items() if name not in ("CPU", "GPU")}
        how = {"num_cpus": needs["CPU"], "num_gpus": needs.get("GPU", 0.0), "resources": own, "max_retries": 0}
        self.cell = ray.remote(compute).options(**how, runtime_env={"env_vars": variables()})

    def room(self) -> int:
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        room = sum(min(int(node.get(name, 0) / amount + 1e-9) for name, amount in self.needs.items()) for node in alive)
        if not room:
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in self.needs.items())
            raise UserError(f"--executor ray: no node of the Ray cluster has room for a cell, which takes {wanted}")
        return self.most or room

    def submit(self, jobs: Sequence[str]) -> Sequence[Any]:
        return [self.cell.remote(job, self.limits) for job in jobs]

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        return self.ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[0]

    def fault(self, task: Any) -> str:
        try:
            return self.ray.get(task) and ""
        except self.ray.exceptions.RayTaskError as error:
            raise UserError(f"--executor ray: {error.cause}") from error
        except self.ray.exceptions.RayError as error:
            return str(error).strip().partition("\n")[0]

    def cancel(self, task: Any, at_once: bool) -> None:
        self.ray.cancel(task, force=at_once)


@contextmanager
def _connected(ray: Any, address: str | None, cpus: int) -> Iterator[None]:
    """Within, this process is a driver of the cluster. Raises: UserError where no cluster answers, or none starts."""
    if not os.path.isabs(os.path.expanduser("~")):  # a user whom the system does not know, as in a container
        raise UserError("--executor ray: this user has no home folder, and Ray needs one; set HOME to a folder")
    if address not in (None, "auto"):
        check_reachable(address, "--executor ray: no Ray cluster at")
    here = {"num_cpus": cpus, "object_store_memory": 80 * 2**20, "_node_ip_address": "127.0.0.1"}
    how = {"log_to_driver": False, "logging_level": "error", "include_dashboard": False}
    try:
        with unchanged(QUIET):
            ray.init(address or "local", **(how if address else {**how, **here}))
    except (ConnectionError, RuntimeError, ValueError) as error:
        which = f"no Ray cluster that can be used at {address!r}" if address else "no Ray cluster starts here"
        raise UserError(f"--executor ray: {which}: {error}") from error
    else:
        yield
    finally:
        with unchanged():
            ray.shutdown()


@hookimpl
def fedbench_register_executors(register):
    register("ray", on_ray, elsewhere=True)
