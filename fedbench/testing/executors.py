"""Checks of executors, as far as they can be without cells: asked with nothing to do, they look for work and return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.testing.world import expect


def check_executor(registry: Registry, ref: dict[str, Any]) -> None:
    """Is made of what the runner gives, asks for a job, and returns where there is none. One for other machines is made
    and not called."""
    given = {"workers": 1, "most": 1, "timeout": 60.0, "memory_limit": None, "gpu": None}
    asked: list[bool] = []

    def nothing() -> Iterator[str]:
        asked.append(True)
        yield from ()

    try:
        execute = registry.make("executor", ref, **given)
    except UserError:  # what it stands on is not installed here
        return
    expect(callable(execute), f"an executor returns execute(jobs, on_event), not {type(execute).__name__}")
    if registry.catalogue.find("executor", ref["name"]).elsewhere:
        return
    end = execute(nothing(), lambda event: True)
    expect(asked, "the executor returns without asking for a job: take jobs from the iterator, `for job in jobs`")
    expect(end is None, f"`execute` tells what happens by on_event, and returns nothing, not {type(end).__name__}")
