"""fedbench/runs/executors/ending.py: what is said of a cell that could not finish its round."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fedbench.results.manifest import CHECKPOINT
from fedbench.runs.executors.ending import outcome


@pytest.mark.parametrize(("kept", "said"), [(True, "goes on from its checkpoint"), (False, "begins it anew")])
def test_a_cell_that_was_ended_goes_on_only_from_what_there_is(tmp_path, kept, said):
    order = SimpleNamespace(manifest={}, claim=None)
    asked = {"asked": "stop", "late": False, "before": None, "seconds": 1.5, "order": order, "folder": tmp_path}
    if kept:
        (tmp_path / CHECKPOINT).mkdir()
    ended = outcome(SimpleNamespace(**asked, report=lambda: {"memory": False}), None, None)
    reason = f"ended before its round was done; the next run {said}"
    assert ended == {"status": "interrupted", "reason": reason, "seconds": 1.5}
