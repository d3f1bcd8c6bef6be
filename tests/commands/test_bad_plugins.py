"""Plugins that exit or hang where they should answer: one line names each, and the others are shown."""

from __future__ import annotations

import json
import os
import time

import pytest
from command import fedbench, manifests

SUITE = """\
suite: tiny
defaults:
  backbone: micro_vit
  adapter: {name: lora, rank: 2, alpha: 2, dropout: 0.0}
  data: {name: strokes6, classes: 2, train_per_class: 4, test_per_class: 2}
  capacities: [6, 6, 6, 6, 6, 6]
  train: {rounds: 1, max_steps: 1, batch_size: 2}
scenarios: {small: {}}
methods: [METHODS]
"""
BAD = """
import os, time
from dataclasses import replace
from fedbench import hookimpl
from fedbench.families.layerwise import layerwise

def exits():
    os._exit(7)

def hangs():
    time.sleep(3600)

def bad(setup, place: str, how: str):
    fault = {"exits": exits, "hangs": hangs}[how]
    if place == "make":
        fault()
    method = layerwise(setup)
    return replace(method, **{place: lambda *given, **named: fault()})

@hookimpl
def fedbench_register_methods(register):
    register("bad", bad)
"""
NOTING = """
import os, pathlib
from fedbench import hookimpl
from fedbench.types import Client, Dataset
import numpy as np

with open(pathlib.Path(__file__).with_name("pids"), "a") as pids:
    pids.write(f"{os.getpid()}\\n")

def everybody():
    return lambda y, domain, num_domains, generator: [
        Client(d, d, np.flatnonzero(domain == d)) for d in range(num_domains)
    ]

@hookimpl
def fedbench_register_partitions(register):
    register("everybody", everybody)

@hookimpl
def fedbench_suite_started(suite):
    pathlib.Path(__file__).with_name("told").write_text(suite)
"""
FAULTS = {"exits": "import os\nos._exit(7)\n", "hangs": "import time\ntime.sleep(3600)\n"}
READING, CALLING, ASKING = 2, 3, 6  # seconds of deadlines; the longest one is for processes that have work to do


def write(folder, methods: str, changes: tuple[str, str] = ("", "")) -> None:
    (folder / "tiny.yaml").write_text(SUITE.replace("METHODS", methods).replace(*changes))


def told(done) -> str:
    return " ".join((done.stdout + done.stderr).split())


def methods(*places: str) -> str:
    bad = [f"{{name: {how}_{place}, extends: bad, place: {place}, how: {how}}}" for place in places for how in FAULTS]
    return ", ".join(["fedra", *bad])


LIST = ("plugins", "list", "--components")
PLAN, DEVICES = ("plan", "tiny.yaml", "--format", "json"), ("devices", "tiny.yaml", "--format", "csv")


@pytest.mark.parametrize(
    ("words", "how"),
    [
        *((LIST, "exits"), (PLAN, "hangs")),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((LIST, "hangs"), (PLAN, "exits"), (DEVICES, "exits"), (DEVICES, "hangs"))
        ),
    ],
)
def test_a_plugin_that_is_bad_on_import_is_named_and_the_others_are_shown(tmp_path, words, how):
    write(tmp_path, "fedra")
    (tmp_path / "bad.py").write_text(FAULTS[how])
    fedbench(*words, cwd=tmp_path)  # so that the server of processes is there, and costs are known
    began = time.monotonic()
    done = fedbench(
        *words, "--plugin", "bad.py", "--timeout", READING if words[0] != "devices" else ASKING, cwd=tmp_path
    )
    assert time.monotonic() - began < 2 * ASKING + 20
    assert done.exit_code == 1
    assert "fedra" in done.stdout
    reason = "ended with exit code 7" if how == "exits" else "was not done after"
    assert f"plugin 'bad.py' of {tmp_path / 'bad.py'} does not load: the process that imported it {reason}" in told(
        done
    )


@pytest.mark.parametrize("place", ["make", pytest.param("cost", marks=pytest.mark.slow)])
def test_a_plan_names_what_is_bad_and_shows_the_others(tmp_path, place):
    write(tmp_path, methods(place))
    (tmp_path / "bad.py").write_text(BAD)
    fedbench("plan", "tiny.yaml", "--plugin", "bad.py", "--method", "fedra", cwd=tmp_path)  # whose costs are known then
    done = fedbench("plan", "tiny.yaml", "--plugin", "bad.py", "--timeout", CALLING, "--format", "json", cwd=tmp_path)
    rows = {row["names"][0][1]: row for row in json.loads(done.stdout)["cells"]}
    assert done.exit_code == 1
    assert rows.pop("fedra")["flops"] > 0
    exits, hangs = "ended with exit code 7", f"was not done after {CALLING} s"
    process = "the method 'bad' of bad.py: the process that called it"
    assert {name: row["unknown"] for name, row in rows.items()} == {
        f"{how}_{place}": f"{process} {exits if how == 'exits' else hangs}" for how in FAULTS
    }


def test_a_plan_does_not_call_init(tmp_path):
    write(tmp_path, "{name: x, extends: bad, place: init, how: exits}")
    (tmp_path / "bad.py").write_text(BAD)
    done = fedbench("plan", "tiny.yaml", "--plugin", "bad.py", "--format", "json", cwd=tmp_path)
    assert done.exit_code == 0 and all(row["flops"] for row in json.loads(done.stdout)["cells"])


@pytest.mark.slow
def test_devices_name_what_is_bad_and_show_the_others(tmp_path):
    write(tmp_path, methods("make"))
    (tmp_path / "bad.py").write_text(BAD)
    done = fedbench("devices", "tiny.yaml", "--plugin", "bad.py", "--timeout", ASKING, cwd=tmp_path, columns=200)
    assert done.exit_code == 1 and "fedra" in done.stdout
    process = "failed: the method 'bad' of bad.py: the process that called it"
    assert f"exits_make: {process} ended with exit code 7" in told(done)
    assert f"hangs_make: {process} was not done after {ASKING} s" in told(done)


@pytest.mark.parametrize("how", ["exits", pytest.param("hangs", marks=pytest.mark.slow)])
def test_a_bad_data_set_ends_a_plan_with_a_line(tmp_path, how):
    write(tmp_path, "fedra", ("{name: strokes6, classes: 2, train_per_class: 4, test_per_class: 2}", "worse"))
    fault = {"exits": "os._exit(7)", "hangs": "time.sleep(3600)"}[how]
    (tmp_path / "bad.py").write_text(
        f"import os, time\nfrom fedbench import hookimpl\n\ndef worse(image_size: int = 8):\n    {fault}\n\n"
        "@hookimpl\ndef fedbench_register_datasets(register):\n    register('worse', worse)\n"
    )
    done = fedbench("plan", "tiny.yaml", "--plugin", "bad.py", "--timeout", ASKING, cwd=tmp_path)
    assert done.exit_code == 2
    assert "the dataset 'worse' of bad.py: the process that called it" in told(done)


def test_a_third_party_module_is_imported_in_child_processes_alone(tmp_path):
    write(tmp_path, "fedra", ("test_per_class: 2}", "test_per_class: 2, partition: {name: everybody}}"))
    (tmp_path / "noting.py").write_text(f"{NOTING}# {tmp_path}\n")
    done = fedbench("run", "tiny.yaml", "--results", "r", "--plugin", "noting.py", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    pids = (tmp_path / "pids").read_text().split()
    assert pids and str(os.getpid()) not in pids
    assert (tmp_path / "told").read_text() == "tiny"
    assert manifests(tmp_path / "r")["fedra/0"]["status"] == "finished"


def test_what_a_plugin_registers_is_read_once(tmp_path):
    (tmp_path / "noting.py").write_text(f"{NOTING}# {tmp_path}\n")
    words = ("plugins", "show", "everybody", "--plugin", "noting.py")
    first, second = (fedbench(*words, cwd=tmp_path) for _ in range(2))
    (pid,) = (tmp_path / "pids").read_text().split()
    assert first.stdout == second.stdout and pid != str(os.getpid())
    (tmp_path / "noting.py").write_text(NOTING + "# an edit\n")
    fedbench(*words, cwd=tmp_path)
    assert len((tmp_path / "pids").read_text().split()) == 2
