"""Which files of fedbench a run of one cell passes through, and `compare`: `python benchmarks/files_touched.py`.

A file is counted if one of its functions is called in any of the processes: the command, the server of workers, the
guard and the worker. What is executed on import alone does not count. `--list` prints the files, by process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).parents[1]
OURS = (str(TOP / "fedbench") + os.sep, str(TOP / "plugins") + os.sep)
CELL = ("run", "quickstart", "--method", "fedra", "--seed", "0", "--set", "train.rounds=1")
# Python imports a module of this name in every process that it starts; forked ones inherit the profiler.
TRACER = """
import os, sys, threading

OURS, FOLDER, seen, pid = {ours!r}, {folder!r}, set(), [0]

def is_imported(frame):
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False

def profile(frame, event, argument):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(OURS):
        return
    if pid[0] != os.getpid():
        seen.clear()
        pid[0] = os.getpid()
    if code.co_filename not in seen and not is_imported(frame):
        seen.add(code.co_filename)
        file = os.open(os.path.join(FOLDER, str(pid[0])), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (code.co_filename + "\\n").encode())
        os.close(file)

threading.setprofile(profile)
sys.setprofile(profile)
"""


def traced(words: tuple[str, ...], cwd: Path) -> dict[str, set[str]]:
    """The files that `fedbench WORDS` passes through, by process, relative to the repository."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (Path(folder) / "sitecustomize.py").write_text(TRACER.format(ours=OURS, folder=folder))
        path = os.pathsep.join([folder, str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "fedbench", *words]
        subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.DEVNULL)
        files = {file.name: set(file.read_text().split()) for file in Path(folder).iterdir() if file.name.isdigit()}
    return {process: {str(Path(name).relative_to(TOP)) for name in names} for process, names in files.items()}


def files_of_a_cell(cwd: Path) -> dict[str, set[str]]:
    """As `traced`, of a run that computes one cell of one round; the caches of its data are there."""
    for folder in ("first", "second"):
        found = traced((*CELL, "--results", folder), cwd)
    return found


def files_of_compare(cwd: Path) -> dict[str, set[str]]:
    """As `traced`, of `compare` on the reference results of one suite."""
    return traced(("compare", str(TOP / "results/reference/quickstart")), cwd)


def main() -> None:
    """Print both counts."""
    with tempfile.TemporaryDirectory() as folder:
        for title, of in (("one cell", files_of_a_cell), ("compare", files_of_compare)):
            by_process = of(Path(folder))
            every = sorted(set().union(*by_process.values()))
            print(f"{title}: {len(every)} files")
            rooms: dict[str, list[str]] = {}
            for name in every:
                rooms.setdefault(str(Path(name).parent), []).append(Path(name).name)
            for room, names in rooms.items():
                print(f"  {room} ({len(names)}){': ' + ' '.join(names) if '--list' in sys.argv else ''}")


if __name__ == "__main__":
    main()
