"""The core's allocations under their names in suites."""

from __future__ import annotations

from fedbench import hookimpl
from fedbench.families import allocation


@hookimpl
def fedbench_register_allocations(register):
    register("prefix", allocation.prefix)
    register("random", allocation.random)
    register("cover", allocation.cover)
