"""What `fedbench plan --cost` says beside what the run then takes: `python benchmarks/estimates.py SUITE...`.

Further words, from the first that begins with `-`, go to both commands: `--scenario all_4`, `--method fedra`. The cache
of this user is taken, so that a second call shows what kept rates are worth. Where other programs have the machine,
read the row of processor seconds: the estimate is for a machine that has nothing else to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from interleaved import Times, _own, timed

from fedbench.cli import main


def compare(suite: str, words: list[str], results: Path) -> list[str]:
    """Plan, run, and one line for each cell and for the whole."""
    planned = _plan(suite, words, results)
    times, before = Times(), _own()
    timed(lambda: CliRunner().invoke(main, ["run", suite, *words, "--results", str(results), "--quiet"]), times)
    processor = _own() - before
    ran = {cell["id"]: cell["seconds"] for cell in _plan(suite, words, results)["cells"] if "seconds" in cell}
    lines = [f"{suite} {' '.join(words)}", f"{'':<40}{'estimate':>10}{'measured':>10}{'ratio':>8}"]
    for cell in planned["cells"]:
        if cell.get("seconds"):
            lines.append(_line(" · ".join(map(str, cell["names"][0])), cell["seconds"], ran[cell["id"]]))
    time = planned["time"]
    one_core = sum(cell.get("seconds") or 0 for cell in planned["cells"])
    return [
        *lines,
        _line("in all, by the clock", time["seconds_left"], times.seconds[0]),
        _line("in all, processor seconds", one_core, processor),
        f"others had {times.others[0]:.0%} of the machine",
    ]


def _plan(suite: str, words: list[str], results: Path) -> dict[str, Any]:
    """`fedbench plan --cost` in a process of its own, as a user starts it."""
    script = "from fedbench.cli import main; main()"
    command = [sys.executable, "-c", script, "plan", suite, *words, "--results", str(results), "--cost", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _line(name: str, estimate: float, measured: float) -> str:
    return f"{name:<40}{estimate:>10.1f}{measured:>10.1f}{estimate / measured:>8.2f}"


if __name__ == "__main__":
    first = next((i for i, word in enumerate(sys.argv) if word.startswith("-")), len(sys.argv))
    for suite in sys.argv[1:first]:
        with tempfile.TemporaryDirectory() as results:
            print("\n".join(compare(suite, sys.argv[first:], Path(results))), flush=True)
