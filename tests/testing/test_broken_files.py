"""Plugin files that register nothing, or not what they mean to: `fedbench plugins check` has a word for each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from command import MAIN, environment, fedbench
from faults import HEAD, judged, plugin, why

from fedbench.commands.verdicts import PluginCheck
from fedbench.errors import UserError
from fedbench.testing.component_check import found

ROW = "    return torch.arange(num_layers) < capacities[:, None]"
SOUND = f"def it(capacities, num_layers):\n{ROW}"

FILES = {
    "exits": (f"{HEAD}\nimport sys\nsys.exit(0)", r"does not load: SystemExit: 0 .*faulty.py:"),
    "no import": ("import no_such_package", r"ModuleNotFoundError: No module named 'no_such_package'"),
    "syntax": ("def it(:", "SyntaxError"),
    "no hook": (f"{HEAD}\n{SOUND}", "registers nothing: write a function called as one of .* with @fedbench.hookimpl"),
    "empty": ("", "registers nothing"),
    "unmarked": (
        plugin("allocation", SOUND).replace("@hookimpl", ""),
        "fedbench_register_allocations is not marked as a hook and would never be called: write @fedbench.hookimpl",
    ),
    "unknown kind": (
        plugin("alocation", SOUND),
        "no hook fedbench_register_alocations; did you mean 'fedbench_register_allocations'",
    ),
    "misspelt argument": (
        plugin("allocation", SOUND).replace("(register):", "(registr):").replace(" register(", " registr("),
        "takes 'registr', which no hook is given; it may take register",
    ),
    "no argument": (
        plugin("allocation", SOUND).replace("(register):", "():"),
        r"can register nothing without its argument: def fedbench_register_allocations\(register\): register\(NAME",
    ),
    "twice": (
        plugin("allocation", SOUND) + "    register('it', it)\n",
        "registers the allocation 'it' twice; give one of them another name",
    ),
    "taken": (plugin("allocation", SOUND).replace("'it'", "'random'"), "two packages register .*rename the latter"),
    "no name": (plugin("metric", "it = len").replace("'it', it", "it, 'it'"), r"is a text.*register\(name, make\)"),
    "no function": (plugin("metric", "it = 3"), "the second argument of `register` is the function that makes it"),
    "fact": (plugin("metric", "it = dict", "rol='x'"), "`register` takes no 'rol'; did you mean 'role'"),
    "default": (plugin("metric", "def it(a=object()): pass"), "a default that JSON cannot write"),
    "starred": (plugin("metric", "def it(*a): pass"), r"takes \*a, which a suite cannot set"),
    "misspelt input": (
        plugin("allocation", SOUND.replace("capacities", "capacites")),
        "'capacites' is an option of suites; did you mean 'capacities', .* Call it 'capacities'",
    ),
    "misspelt chance": (
        plugin("allocation", SOUND.replace("num_layers)", "num_layers, generater=None)", 1)),
        "'generater' is an option of suites; did you mean 'generator'",
    ),
    "misspelt set-up": (plugin("method", "def it(setpu): pass"), "did you mean 'setup', which fedbench passes"),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_file_that_cannot_be_used_is_told(tmp_path, fault):
    source, told = FILES[fault]
    said = why(tmp_path, source)
    assert said.startswith("BROKEN: ") and re.search(told, said), said


def test_an_option_without_a_default_has_to_be_given(tmp_path):
    source = plugin("allocation", f"def it(capacities, num_layers, most):\n{ROW}")
    assert why(tmp_path, source) == "skipped: it needs most: give --set most=..."
    assert judged(tmp_path, source, most=3)[0].verdict == "ok"


def test_what_a_check_leaves_otherwise_in_the_process_is_told(tmp_path):
    import torch

    try:
        source = plugin("allocation", f"def it(capacities, num_layers):\n    torch.set_grad_enabled(False)\n{ROW}")
        assert "changes settings of the process (gradients)" in why(tmp_path, source)
    finally:
        torch.set_grad_enabled(True)


def test_a_tracker_registers_nothing_and_is_sound(tmp_path):
    source = f"{HEAD}\n@hookimpl\ndef fedbench_suite_started(suite):\n    pass\n"
    assert [(one.verdict, one.what) for one in judged(tmp_path, source)] == [("ok", "tracker faulty.py")]


def test_the_command_checks_in_a_process_of_its_own_and_gives_every_component_a_verdict(tmp_path):
    body = SOUND.replace("it(", "good(") + (
        "\n\ndef leaves(capacities, num_layers):\n    import os\n    print('bye', flush=True)\n    os._exit(0)"
        "\n\ndef last(capacities, num_layers, by=1):\n    return good(by * capacities, num_layers)"
    )
    source = plugin("allocation", body).replace(
        "register('it', it)", "[register(make.__name__, make) for make in (good, leaves, last)]"
    )
    (tmp_path / "mine.py").write_text(source)
    done = fedbench("plugins", "check", "mine.py", "--set", "by=2", cwd=tmp_path)
    assert done.exit_code == 1 and "bye" in done.stderr
    assert "ok      allocation good" in done.stdout and "BROKEN  allocation last" in done.stdout
    assert "its capacity is" in done.stdout
    assert "the process that checks it ended with exit code 0: a plugin must not end it" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("while True:\n    pass", "the process that loads it was not done after 3 s (mine.py:1): does it loop"),
        ("import os\nos._exit(0)", "the process that loads it ended with exit code 0"),
        ("import os\nos.abort()", "the process that loads it was killed by SIGABRT (mine.py:2)"),
    ],
)
def test_the_command_outlives_what_a_file_does_as_it_loads(tmp_path, source, told):
    (tmp_path / "mine.py").write_text(source)
    done = fedbench("plugins", "check", "mine.py", "--deadline", 3, cwd=tmp_path)
    assert done.exit_code == 1 and "BROKEN  plugin mine.py" in done.stdout and told in done.stdout


EATS = """
def eats(capacities, num_layers):
    taken = []
    while True:
        taken.append(b"x" * 2**28)
"""


@pytest.mark.slow
def test_a_check_that_takes_too_much_memory_is_one_failed_check(tmp_path):
    body = f"{SOUND}\n{EATS}"
    source = plugin("allocation", body).replace("register('it', it)", "[register(f.__name__, f) for f in (eats, it)]")
    (tmp_path / "mine.py").write_text(source)
    check = PluginCheck([str(tmp_path / "mine.py")])
    check.memory_limit = 2**30
    eats, it = check.verdicts()
    assert eats[:2] == ("BROKEN", "allocation eats") and it[0] == "ok"
    assert re.match(r"the process that checks it took .* of memory, and the limit is 1.* GB", eats[2]), eats


@pytest.mark.slow
def test_a_signal_ends_the_process_that_judges_too(tmp_path):
    told = tmp_path / "pid"
    saying = f"import os\nopen({str(told)!r}, 'w').write(str(os.getpid()))\n"
    (tmp_path / "mine.py").write_text(f"{saying}while True:\n    pass")
    process = subprocess.Popen([*MAIN, "plugins", "check", "mine.py"], cwd=tmp_path, env=environment())
    while not (told.is_file() and told.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_who_asks_for_what_is_not_there_is_told(tmp_path):
    missing = fedbench("plugins", "check", "mine.py", cwd=tmp_path)
    assert missing.exit_code == 2 and "there is no such file" in missing.stderr
    with pytest.raises(UserError, match="no component is called 'fedar', and no plugin or package; did you mean"):
        list(PluginCheck(["fedar"]).verdicts())
    with pytest.raises(UserError, match="--set runds: nothing that is checked has such an option; "):
        list(PluginCheck(["mutual_kl"], options={"runds": 3}).verdicts())
    assert list(PluginCheck(["prefix", "prefix"]).verdicts()) == [("ok", "allocation prefix", "")]
    names = {one["name"] for one in found({"name": "allocations", "plugins": []})["components"]}
    assert {"prefix", "random"} <= names


def test_files_that_need_each_other_are_checked_together(tmp_path):
    allocation, method = tmp_path / "rows.py", tmp_path / "mine.py"
    allocation.write_text(plugin("allocation", SOUND).replace("'it'", "'my_rows'"))
    made = "def it(setup): return layerwise(setup, allocation='my_rows')"
    source = f"from fedbench.families.layerwise import layerwise\n{made}"
    method.write_text(plugin("method", source).replace("'it'", "'mine'"))
    alone = fedbench("plugins", "check", method, cwd=tmp_path)
    assert alone.exit_code == 1 and "my_rows" in alone.output
    for order in ((allocation, method), (method, allocation)):
        done = fedbench("plugins", "check", *order, cwd=tmp_path)
        assert done.exit_code == 0 and done.output.count("ok ") == 2, done.output
