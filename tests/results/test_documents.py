"""fedbench/results/documents.py: a file is there whole or not at all, in processes that are really killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from factories import eval_rows, write_cell
from samples import VALUES

from fedbench.results import load

KILLED = """
import os, signal, sys
from pathlib import Path
from fedbench.disk import write_atomically

def half(path):
    path.write_text("half of the new te")
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(Path(sys.argv[1]), half)
"""


def test_writer_killed_half_way_leaves_the_old_file(tmp_path):
    folder = write_cell(tmp_path / "suite", "fedra", evaluation=eval_rows(VALUES))
    before = (folder / "eval.parquet").read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder / "eval.parquet")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder / "eval.parquet").read_bytes() == before
    assert any(p.name.endswith(".tmp") for p in folder.iterdir())  # the half, where no reader looks
    assert len(load([tmp_path])) == 1
    assert load([folder])[0].eval.num_rows == 4
