"""A Slurm of one machine, as far as submitters ask for it: its commands, whose jobs are processes."""

from __future__ import annotations

import sys
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "squeue", "scancel")

# sbatch starts every task of an array, and the others ask what became of their processes. Jobs end as NAME.state says.
SLURM = """#!PYTHON
import os, re, signal, subprocess, sys
from pathlib import Path
home, command, words = Path("HOME"), Path(sys.argv[0]).name, sys.argv[1:]

def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

if command == "sbatch":
    script = next((word for word in words if Path(word).is_file()), None)
    text = Path(script).read_text() if script else sys.stdin.read()
    number = str(1 + len(list(home.glob("*.sbatch"))))
    (home / f"{number}.sbatch").write_text(text)
    array = re.search("--array=0-([0-9]+)", " ".join(words) + text)
    for task in map(str, range(int(array[1]) + 1)) if array else [""]:
        own = {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": task} if task else {}
        name = f"{number}_{task}" if task else number
        job = subprocess.Popen(["bash", str(home / f"{number}.sbatch")], env={**os.environ, **own, "NAME": name,
                               "SLURM_JOB_ID": number}, start_new_session=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        (home / f"{name}.pid").write_text(str(job.pid))
    print(number if "--parsable" in words else f"Submitted batch job {number}")
elif command == "srun":
    if "--output" in words:
        out, error = (open(words[words.index(word) + 1].replace("%A_%a", os.environ["NAME"]).replace(
            "%j", os.environ["NAME"]).replace("%t", "0"), "a") for word in ("--output", "--error"))
        sys.exit(subprocess.call(words[words.index("--error") + 2 :], stdout=out, stderr=error))
    while words and words[0].startswith("-"):
        words.pop(0)
    sys.exit(subprocess.call(words))
elif command == "sacct":
    print("JobID|State|NodeList")
    for file in sorted(home.glob("*.pid")):
        word = home / (file.stem + ".state")
        state = "RUNNING" if alive(file.read_text()) else word.read_text() if word.exists() else "COMPLETED"
        print(f"{file.stem}|{state}|here")
elif command == "squeue":
    print("\\n".join(file.stem for file in sorted(home.glob("*.pid")) if alive(file.read_text())))
elif command == "scancel":
    for name in (word for word in words if (home / (word + ".pid")).exists()):
        (home / (name + ".state")).write_text("CANCELLED by 0")
        try:
            os.killpg(int((home / (name + ".pid")).read_text()), signal.SIGTERM)
        except ProcessLookupError:
            pass
"""


def install(home: Path, commands: Path) -> None:
    """Write the commands into a folder for PATH; home: where they keep what was submitted."""
    for name in COMMANDS:
        file = commands / name
        file.write_text(SLURM.replace("PYTHON", sys.executable).replace("HOME", str(home)))
        file.chmod(0o755)
