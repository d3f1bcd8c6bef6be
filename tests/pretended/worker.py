"""A worker process that has a pretended GPU."""

from __future__ import annotations

from typing import Any

import pretended
from fedbench.runs.executors.supervisor import supervise


def supervised(total: int, *given: Any) -> None:
    """What `fedbench.runs.executors.workers.supervise` is to be replaced by, with a GPU of so many bytes; each worker
    has its own, and knows nothing of what others take."""
    with pretended.gpu(total):
        supervise(*given)
