"""What every test may use: a cache of its own, and the installed plugins."""

from __future__ import annotations

import atexit
import copy
import gc
import json
import os
import random
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from fedbench import machine

for name, value in machine.same_bits().items():  # as in workers; MKL reads it when it is loaded
    os.environ.setdefault(name, value)

import counted  # noqa: E402
import torch  # noqa: E402
from command import NOTING, TINY  # noqa: E402

from fedbench.models import cost  # noqa: E402
from fedbench.processes import fork_server, supervisor  # noqa: E402
from fedbench.registry import installed  # noqa: E402
from fedbench.registry.registry import Registry  # noqa: E402

torch.set_num_threads(1)
# A process whose first backward pass comes after a compilation may not run one in its forks, and tests fork.
torch.ones(1, requires_grad=True).sum().backward()
# As under tox: processes by the hundred would compile the same modules again, and pytest rewrite all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# pytest, torch and scikit-learn set these for themselves
OF_OTHERS = {"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
# Shared machines stall for a second now and then; and the suite must give the same verdict twice.
hypothesis.settings.register_profile("fedbench", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("fedbench")


def pytest_configure():
    """What imports and collection make stays to the end: garbage collection needs to look at none of it."""
    gc.disable()


def pytest_collection_finish():
    """What stays frozen some libraries report as a leak at the end, after pytest has collected its own garbage."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)


@pytest.fixture(autouse=True)
def unchanged_environment():
    """No test may leave the process's environment other than it found it."""

    def environment() -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if key not in OF_OTHERS}

    before = environment()
    yield
    assert environment() == before


@pytest.fixture(autouse=True)
def same_draws():
    """What a test draws without a generator of its own is the same wherever, whenever and after whatever it runs."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests neither read nor fill the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("FEDBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk():
    """A test sees what was written whether it is on the disk yet or not. Other processes wait as ever."""
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", os.fstat)  # which knows a closed file too
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def installed_packages_are_read_once():
    """Every registry asks for all entry points, and nobody installs a package while tests run. A test that adds a
    folder to the path, or stands in for what is installed, has it read."""
    known, read, path, distributions = {}, installed.points, tuple(sys.path), installed.distributions

    def points(group):
        if tuple(sys.path) != path or installed.distributions is not distributions:
            return read(group)
        if group not in known:
            known[group] = read(group)
        found, unusable = known[group]
        return [*found], {**unusable}

    patch = pytest.MonkeyPatch()
    patch.setattr(installed, "points", points)
    yield
    patch.undo()


TESTS = str(Path(__file__).parent)
ASKED_ONCE = (TINY, NOTING, TINY.with_name("dying_plugin.py"))  # plugins that answer the same whoever asks


@pytest.fixture(scope="session", autouse=True)
def plugins_of_tests_are_asked_once(own_cache):
    """What a child process answered about the tiny plugin and its dots is kept for the same question. A question about
    any other plugin gets a process of its own, as ever."""
    answers, ask = {}, supervisor.call
    known = {file.read_bytes() for file in ASKED_ONCE}

    def call(function, argument, **limits):
        texts = [Path(file).read_bytes() for file in argument["files"]] if _about_dots(function, argument) else [b""]
        if not all(text in known or b"fedbench_register_executors" in text for text in texts):
            return ask(function, argument, **limits)
        names = [Path(file).name for file in argument["files"]]
        question = {**argument, "files": [*zip(names, map(hash, texts), strict=True)], "base": None}
        key = json.dumps([function, question], sort_keys=True)
        if key not in answers:
            answers[key] = ask(function, argument, **limits)
        return copy.deepcopy(answers[key])

    patch = pytest.MonkeyPatch()
    patch.setattr(supervisor, "call", call)
    yield
    patch.undo()


def _about_dots(function: str, argument) -> bool:
    """Whether it is asked what plugins register, or for a fact about the tiny backbone or the dots."""
    if function not in ("fedbench.registry.facts:registrations", "fedbench.registry.facts:fact"):
        return False
    given = argument.get("given", [{"name": "tiny"}])[0]
    return given.get("data", given)["name"] in ("dots", "tiny") and {*map(os.path.isfile, argument["files"])} == {True}


@pytest.fixture(scope="session", autouse=True)
def server_has_done_a_cell():
    """Workers are forked from a server that has computed a tiny cell of some methods, see `warm_server`.

    The server alone is started with the folder of tests in PYTHONPATH, where it finds that module.
    """
    server = forkserver._forkserver
    start, path = server.ensure_running, os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH")]))

    def ensure_running():
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = path
        try:
            start()
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)

    patch = pytest.MonkeyPatch()
    patch.setattr(fork_server, "PRELOAD", "warm_server")
    for owner in (forkserver, server):
        patch.setattr(owner, "ensure_running", ensure_running)
    yield
    patch.undo()


@pytest.fixture
def hears_signals():
    """This process as a terminal starts it: a shell lets what it starts in the background ignore Ctrl-C."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def counted_once():
    """What training costs is counted once of models that are made of equal parts, whatever test makes them, as it is in
    a run: to count takes longer than to train a tiny model. The same of whether a model may be cut into layers."""
    patch = pytest.MonkeyPatch()
    for owner, name, value in counted.REPLACED:
        patch.setattr(owner, name, value, raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def never_counted():
    """For tests that ask what layerwise methods train, and not what that costs."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cost, "per_image", lambda *given: (1, 1))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def registry(own_cache):
    """The installed plugins."""
    return Registry()


@pytest.fixture(scope="module")
def plugins(own_cache):
    """The same, and the tiny one of the tests, in a process that may import it, as a worker may."""
    return Registry([str(TINY)], in_place=True)
