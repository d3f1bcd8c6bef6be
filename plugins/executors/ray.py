"""Cells on a Ray cluster, by the CPUs and the share of a GPU that each takes. Needs the extra `ray`."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fedbench import hookimpl, machine
from fedbench.errors import UserError
from fedbench.options import Count, Text, judged
from fedbench.runs.executors import Execute, OnEvent, remote
from fedbench.runs.executors.dispatch import Dispatch, Lost, changes

POLL = 0.5  # seconds
REACH = 10.0  # seconds
ROOM = 60.0  # seconds that cells wait for a machine that has room for one, where all that did are gone
STORE = 80 * 2**20  # bytes of Ray's store of objects; an errand is a few kB
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@judged("--executor ray")
def on_ray(
    most: int | None = None,
    timeout: float | None = None,
    memory_limit: int | None = None,
    gpu: float = 0.0,
    address: Annotated[str, Text("HOST:PORT or auto")] | None = None,
    cpus_per_cell: Count = 1,
    resources: dict[str, float] = {},  # noqa: B006 (an option's default, never changed)
    attempts: Count = 3,
) -> Execute:
    """Run cells as tasks of a Ray cluster: `address` is `HOST:PORT`, `auto` for the one this machine belongs to, or
    null to start one here. `--jobs` says how many run side by side; else as many do as the cluster has room for. A
    cell takes `cpus_per_cell` CPUs, `--gpu-fraction` of a GPU and `resources` of your own. One whose node is lost goes
    on elsewhere, and has failed after `attempts` losses in a row without getting further.
    """
    library = _library()
    if not all(isinstance(amount, int | float) and amount > 0 for amount in resources.values()):
        raise UserError("--executor ray: resources: expected {name: amount}, each amount above 0")

    def execute(jobs: Iterable[str], on_event: OnEvent) -> None:
        with _connected(library, address, most, cpus_per_cell):
            cluster = _Cluster(library, most, {"CPU": cpus_per_cell, "GPU": gpu, **resources})
            limits = {"timeout": timeout, "memory_limit": memory_limit}
            Dispatch(cluster, limits, changes(gpu, cpus_per_cell), attempts, on_event).run(jobs)

    return execute


class _Cluster:
    """Ray's nodes as a `dispatch.Cluster`. needs: what a cell takes of each resource."""

    def __init__(self, library: Any, most: int | None, needs: dict[str, float]) -> None:
        """Raises: UserError where no node has room for a cell."""
        self.ray, self.most = library, most
        self.needs = {name: amount for name, amount in needs.items() if amount}
        own = {name: amount for name, amount in self.needs.items() if name not in ("CPU", "GPU")}
        self.cell = library.remote(remote.cell).options(
            num_cpus=needs["CPU"], num_gpus=needs["GPU"], resources=own, max_retries=0
        )
        self.last = time.monotonic() if self._places() else float("-inf")  # when there was room
        self._check()

    def room(self, busy: int) -> int:
        return (self.most or self._places()) - busy

    def submit(self, errands: Sequence[str]) -> Sequence[Any]:
        return [self.cell.remote(errand) for errand in errands]

    def ended(self, tasks: Sequence[Any]) -> Sequence[Any]:
        self._check()
        if not tasks:
            time.sleep(POLL)
            return []
        self.ray.wait(list(tasks), num_returns=1, timeout=POLL)
        return self.ray.wait(list(tasks), num_returns=len(tasks), timeout=0)[0]

    def answer(self, task: Any) -> str:
        try:
            return self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            raise UserError(f"--executor ray: an order broke: {error.cause!r}") from error
        except self.ray.exceptions.RayError as error:
            raise Lost(str(error).strip().partition("\n")[0]) from error

    def cancel(self, task: Any) -> None:
        self.ray.cancel(task, force=True)

    def _places(self) -> int:
        """How many cells the nodes that are alive have room for together."""
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(min(int(has.get(name, 0.0) / amount + 1e-9) for name, amount in self.needs.items()) for has in alive)

    def _check(self) -> None:
        if self._places():
            self.last = time.monotonic()
        elif time.monotonic() > self.last + ROOM:
            wanted = ", ".join(f"{amount:g} {name}" for name, amount in self.needs.items())
            raise UserError(f"--executor ray: no node of the Ray cluster has room for a cell, which takes {wanted}")


def _library() -> Any:
    """The package `ray`. Raises: UserError where it is not installed."""
    with _unchanged():
        try:
            import ray
        except ImportError as error:
            raise UserError(
                f"--executor ray needs the package ray ({error}); pip install 'fedbench[ray]' installs it"
            ) from None
    return ray


@contextmanager
def _connected(library: Any, address: str | None, most: int | None, cpus: int) -> Iterator[None]:
    """Within, this process is a driver of the cluster, if it was none. Raises: UserError where no cluster answers."""
    if library.is_initialized():
        yield
        return
    if address not in (None, "auto"):
        _reach(address)
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as scratch:  # sockets: a short path
        here: dict[str, Any] = {"num_cpus": (most or machine.cores() // cpus or 1) * cpus, "object_store_memory": STORE}
        here |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "_temp_dir": scratch}
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            with _unchanged():
                os.environ.update(QUIET)
                library.init(address=address or "local", **quiet, **({} if address else here))
        except (ConnectionError, RuntimeError, ValueError) as error:
            told = str(error).strip().partition("\n")[0]
            raise UserError(f"--executor ray: no Ray cluster that can be used at {address!r}: {told}") from error
        try:
            yield
        finally:
            with _unchanged():
                library.shutdown()


def _reach(address: str) -> None:
    """Raises: UserError where nobody listens at HOST:PORT; Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"--executor ray: no Ray cluster at {address!r} ({error}); expected HOST:PORT or auto"
        ) from None


@contextmanager
def _unchanged() -> Iterator[None]:
    """The environment and the handlers of signals are afterwards what they were: Ray sets its own."""
    before = dict(os.environ)
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@hookimpl
def fedbench_register_executors(register):
    register("ray", on_ray, elsewhere=True)
