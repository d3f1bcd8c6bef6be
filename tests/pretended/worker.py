"""A worker process that has a pretended GPU."""

from __future__ import annotations

from typing import Any

import pretended
from fedbench.processes.guard import guard


def supervised(total: int, *given: Any) -> None:
    """Replaces `fedbench.processes.guard.guard`, with a GPU of so many bytes; each worker has a separate one, and knows
    nothing of what others take."""
    with pretended.gpu(total):
        guard(*given)
