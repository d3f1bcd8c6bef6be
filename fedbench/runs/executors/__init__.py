"""Executors run cells: execute(jobs, on_event). A job is one JSON string, so that it can go anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

OnEvent = Callable[[dict[str, Any]], bool]  # takes what a cell tells, with its `folder`; False: start no more cells
Execute = Callable[[Iterable[str], OnEvent], None]
