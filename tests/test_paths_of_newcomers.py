"""Three newcomers' paths from an installed wheel in an empty folder: a student, an engineer and a reviewer.

Each step is a command with a part of what it prints; `fedbench` is the program of an environment that has the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta as b; print(b.build_wheel(sys.argv[1]))"
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def fedbench(tmp_path_factory):
    """`fedbench(command, folder)` runs a command there and returns (exit code, what it printed)."""
    home = tmp_path_factory.mktemp("wheel")
    for part in ("docs", "fedbench", "plugins", "suites"):
        shutil.copytree(ROOT / part, home / "source" / part, ignore=LEFT_OUT)
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, home / "source")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(home)], cwd=home / "source", capture_output=True, text=True, check=True
    )
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(home / "env")], check=True)
    pip = [str(home / "env/bin/python"), "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall"]
    subprocess.run([*pip, str(home / built.stdout.split()[-1])], check=True, capture_output=True)
    shutil.rmtree(home / "source")
    path = f"{home / 'env/bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "120", "FEDBENCH_CACHE": str(home / "cache")}
    environment.pop("PYTHONPATH", None)

    def run(command: str, folder: Path) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
        )
        return done.returncode, done.stdout + done.stderr

    return run


def walk(fedbench, folder: Path, steps) -> None:
    """Take steps, each (command, what it must print) or (command, what it must print, exit code)."""
    for command, told, *code in steps:
        status, printed = fedbench(command, folder)
        assert status == (code[0] if code else 0), f"{command}\n{printed}"
        assert told in " ".join(printed.split()), f"{command}\n{printed}"


def test_a_student_takes_an_idea_to_a_tested_table(fedbench, tmp_path):
    short = "--set train.rounds=1 --set train.max_steps=1 --jobs 2"
    seeds = "--seed 0 --seed 1 --seed 2"
    walk(
        fedbench,
        tmp_path,
        [
            ("fedbench init my_study", "fedbench run suite.yaml --plugin my_allocation.py"),
            ("cd my_study && fedbench plugins check my_allocation.py", "my_allocation"),
            ("cd my_study && fedbench plan suite.yaml --plugin my_allocation.py", "4 cells"),
            (f"cd my_study && fedbench run suite.yaml --plugin my_allocation.py {seeds} {short}", "mean of 3 seeds"),
            ("cd my_study && fedbench compare pairs my_study", "verdict"),
            ("cd my_study && fedbench compare my_study --format latex", r"\label{tab:my-study-"),
            ("cd my_study && fedbench compare my_study --format bibtex", "@misc{su2024fedra"),
            ("cd my_study && fedbench plot curves my_study -o curves.pdf", "curves.pdf"),
            ("cd my_study && fedbench report my_study -o all.html", "all.html"),
            ("cd my_study && fedbench run suite.yaml --plugin my_allocation.py --method fedrra", "fedra", 2),
        ],
    )
    assert "added after" not in fedbench("fedbench compare my_study", tmp_path / "my_study")[1]


def test_an_engineer_chooses_for_devices_and_tries_own_images(fedbench, tmp_path):
    for domain in ("north", "south"):
        for label in ("cat", "dog", "eel"):
            (tmp_path / "pictures" / domain / label).mkdir(parents=True)
            for k in range(10):
                colour = (80 * ("cat", "dog", "eel").index(label), 20 * k, 60 * (domain == "south"))
                Image.new("RGB", (32, 32), colour).save(tmp_path / f"pictures/{domain}/{label}/{k}.png")
    tiny = "--set backbone=micro_vit --set train.rounds=1 --set train.max_steps=1 --method fedra,head_only --jobs 2"
    walk(
        fedbench,
        tmp_path,
        [
            ("fedbench devices", "phone_high"),
            (
                "fedbench choose --backbone micro_vit --devices phone_high:4,laptop --method fedra,alllarge",
                "No recommendation",
            ),
            ("fedbench choose --backbone micro_vit --devices phone_hihg", 'did you mean "phone_high"?', 2),
            ("fedbench init --images pictures --clients 4", "fedbench run pictures_study/suite.yaml"),
            ("fedbench data check image_folder --root pictures", "every image can be read"),
            (f"fedbench run pictures_study/suite.yaml {tiny}", "fedra"),
            ("fedbench compare costs pictures_study", "fedra"),
            ("fedbench run pictures_study/suite.yaml --set data.root=nowhere", "--set data.root=nowhere: nowhere", 2),
            ("fedbench export pictures_study fedra --format peft -o model", "model"),
        ],
    )


def test_a_reviewer_looks_for_the_results_behind_the_headline(fedbench, tmp_path):
    for name in ("feature_skew_tuned", "quickstart"):
        shutil.copytree(ROOT / "results/reference" / name, tmp_path / "results" / name)
    walk(
        fedbench,
        tmp_path,
        [
            ("fedbench compare feature_skew_tuned --variant '*micro_vit*'", "all other ranked methods"),
            ("fedbench compare pairs feature_skew_tuned --baseline fedra", "verdict"),
            ("fedbench compare tuning feature_skew_tuned", "fedra"),
            ("fedbench compare hash results/quickstart", "quickstart"),
            ("fedbench reproduce results/quickstart --method majority --no-run", "1 cell"),
            ("fedbench pack results/quickstart --bundle -o all.zip", "all.zip"),
            ("fedbench reproduce all.zip --method majority --no-run", "1 cell"),
            ("fedbench compare results/nowhere", "nowhere", 2),
        ],
    )
