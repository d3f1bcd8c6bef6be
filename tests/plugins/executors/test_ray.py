"""The executor `ray`, on a real cluster of two nodes on this machine: by resources, a node killed, the run ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import MAIN, TINY, environment, run, write_suite

from fedbench.errors import UserError
from fedbench.results import content_hash
from fedbench.runner import runner
from fedbench_plugins.executors.ray import QUIET, _Cluster, _connected

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

SEEDS = {"scenarios:": "seeds: [0, 1]\nscenarios:"}
METHODS = "fedra, chained"
COMMON = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
# How a head learns that a node is gone, in seconds instead of half a minute.
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 5}
LONG = 60  # rounds of a cell that is killed in its midst
LATER = 11  # the round after whose end it is killed; slow from then on, lest it ends before it is lost


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    """No process outlives this module's clusters; those of another pytest-xdist worker are its own."""
    before = {process.pid for process in psutil.process_iter()}
    yield
    names, worker = ("raylet", "gcs_server", "ray::"), os.environ.get("PYTEST_XDIST_WORKER")
    found = [one for one in psutil.process_iter(["name", "environ"]) if one.pid not in before]
    own = [one for one in found if (one.info["environ"] or {}).get("PYTEST_XDIST_WORKER") == worker]
    assert not psutil.wait_procs([one for one in own if one.info["name"].startswith(names)], timeout=20)[1]


@pytest.fixture(scope="module")
def cluster(own_cache):
    """A head without CPUs, and two nodes with one CPU each."""
    patch = pytest.MonkeyPatch()
    for name, value in QUIET.items():
        patch.setenv(name, value)
    patch.setenv("RAY_worker_niceness", "0")  # behind other tests they would wait for minutes
    patch.setenv("PYTHONPATH", os.pathsep.join([str(TINY.parent), os.environ.get("PYTHONPATH", "")]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": SOON, **COMMON})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **COMMON)
    patch.undo()
    yield cluster
    cluster.shutdown()


def executor(cluster, **options) -> str:
    return json.dumps({"name": "ray", "address": cluster.address, **options})


@pytest.fixture
def whole(tmp_path):
    """A function that computes a suite by one worker of this machine, and returns its content hash."""

    def compute(methods: str, changes: dict[str, str]) -> str:
        write_suite(tmp_path, methods, changes)
        assert run("--jobs", 1, "--results", "whole", cwd=tmp_path).exit_code == 0
        return content_hash(tmp_path / "whole/tiny")

    return compute


def watched(folder: Path, also=lambda event: None, **options) -> tuple:
    """The outcome of a run of the suite in `folder`, whose events `also` is told, and every set of cells that were at
    work together."""
    busy: set[str] = set()
    seen: list[set[str]] = []

    def observe(*_):
        def listen(event: dict) -> None:
            if event["event"] == "started":
                busy.add(event["folder"])
            if event["event"] == "ended":
                busy.discard(event["folder"])
            seen.append(set(busy))
            also(event)

        return listen

    given = {"plugins": [str(TINY)], "results": folder / "r", "observe": observe, "checkpoint_every": 0}
    return runner.run(folder / "tiny.yaml", **given, **options), seen


def node_of(worker: psutil.Process) -> psutil.Process:
    """The process of the Ray node that a worker belongs to."""
    return next(parent for parent in worker.parents() if parent.name() == "raylet")


def workers(folder: Path) -> dict[str, int]:
    """The process that computes each cell, by id: it has the cell's lock open."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            for file in process.open_files():
                if file.path.startswith(str(folder / "r/tiny/.")) and file.path.endswith(".lock"):
                    found[Path(file.path).name[1:-5]] = process.pid
    return {id: pid for id, pid in found.items() if id != "index.json"}


def wait_for(true, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_one_cell_a_node_where_nodes_have_one_cpu_and_the_numbers_of_one_worker(cluster, whole, tmp_path):
    expected = whole(METHODS, {**SEEDS, "rounds: 2": f"rounds: {LONG}"})
    outcome, seen = watched(tmp_path, executor=executor(cluster), jobs=4)
    assert outcome.counts == {"finished": 4} and content_hash(outcome.folder) == expected
    assert max(map(len, seen)) == 2
    assert all(path.suffix == ".lock" for path in outcome.folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(("fraction", "together"), [(0.5, 2), (None, 1)])
def test_a_gpu_is_shared_by_as_many_cells_as_their_fractions_allow(cluster, tmp_path, fraction, together):
    """No torch here finds that GPU: the cells compute on the CPU, as Ray's tasks that hold a share of it."""
    gpu = {"executor": executor(cluster, resources={"place": 1}), "gpu_fraction": fraction or 1.0}
    node = cluster.add_node(num_cpus=2, num_gpus=1, resources={"place": 9}, **COMMON)
    try:
        write_suite(tmp_path, f"{{name: chained, until: {tmp_path / 'never'}}}", {**SEEDS, "rounds: 2": "rounds: 20"})
        outcome, seen = watched(tmp_path, jobs=4, **gpu)
    finally:
        cluster.remove_node(node)
    assert outcome.counts == {"finished": 2} and max(map(len, seen)) == together


@pytest.mark.slow
def test_a_node_is_killed_and_the_next_run_resumes_its_cell_to_the_same_numbers(cluster, whole, tmp_path):
    lost_one = tmp_path / "lost"
    lost_one.touch()
    method = f"{{name: chained, until: {lost_one}, since: {LATER + 1}}}"
    expected = whole(method, {**SEEDS, "rounds: 2": f"rounds: {LONG}"})
    lost_one.unlink()
    told, left_behind = [], []

    def kill() -> None:
        """Kill a node with all of Ray's processes there, once its cell is in a later round; what the cell itself is
        computed by is left behind."""
        wait_for(
            lambda: workers(tmp_path) and any(_rounds(folder) >= LATER for folder in tmp_path.glob("r/tiny/cells/*"))
        )
        folder = next(folder for folder in tmp_path.glob("r/tiny/cells/*") if _rounds(folder) >= LATER)
        worker = psutil.Process(workers(tmp_path)[folder.name])
        left_behind.append(worker)
        node = node_of(worker)
        for process in [node, *(p for p in node.children(recursive=True) if p not in (worker, worker.parent()))]:
            process.kill()
        lost_one.touch()

    killer = threading.Thread(target=kill)
    killer.start()
    outcome, _ = watched(tmp_path, told.append, executor=executor(cluster))
    killer.join()
    cluster.add_node(num_cpus=1, **COMMON)
    assert outcome.counts == {"finished": 1, "running": 1}
    (lost,) = [event for event in told if event["event"] == "ended" and event["status"] == "interrupted"]
    assert lost["reason"].startswith("its machine or its job was lost (")
    assert not psutil.wait_procs(left_behind, timeout=20)[1]
    told.clear()
    outcome, _ = watched(tmp_path, told.append)
    assert outcome.counts == {"finished": 2} and content_hash(outcome.folder) == expected
    assert next(event["round"] for event in told if event["event"] == "resumed") >= LATER - 1


def _rounds(folder: Path) -> int:
    """After which round a cell has kept its last checkpoint."""
    with suppress(OSError, ValueError):
        return max(json.loads(file.read_text())["round"] for file in folder.glob("checkpoint/?/checkpoint.json"))
    return 0


@pytest.mark.slow
def test_a_run_that_is_interrupted_leaves_interrupted_cells_and_nothing_at_work(
    cluster, whole, tmp_path, hears_signals
):
    at_once = tmp_path / "at_once"
    at_once.touch()
    expected = whole(f"{{name: chained, until: {at_once}}}", {**SEEDS, "rounds: 2": f"rounds: {LONG}"})
    at_once.unlink()
    at_work = []

    def interrupt() -> None:
        wait_for(lambda: len([f for f in tmp_path.glob("r/tiny/cells/*") if _rounds(f)]) == 2)
        at_work.extend(psutil.Process(pid) for pid in workers(tmp_path).values())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        watched(tmp_path, executor=executor(cluster))
    assert len(at_work) == 2 and not psutil.wait_procs(at_work, timeout=1)[1]
    states = [json.loads(file.read_text())["status"] for file in tmp_path.glob("r/tiny/cells/*/manifest.json")]
    assert states == ["interrupted", "interrupted"]
    at_once.touch()
    outcome, _ = watched(tmp_path, executor=executor(cluster))
    assert content_hash(outcome.folder) == expected


@pytest.mark.slow
def test_ctrl_c_ends_a_cluster_of_the_runs_own(tmp_path):
    write_suite(tmp_path, "chained", {"rounds: 2": "rounds: 5000"})
    words = [*MAIN, "run", "tiny.yaml", "--plugin", str(TINY), "--results", "r", "--executor", "ray", "--jobs", "1"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + 90
    while not workers(tmp_path):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "Traceback" not in text and "ray" not in text.lower().replace("--executor ray", ""), text
    assert not psutil.wait_procs(started, timeout=20)[1]
    (manifest,) = tmp_path.glob("r/tiny/cells/*/manifest.json")
    assert json.loads(manifest.read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "127.0.0.1:1"}, "no Ray cluster"),
        ({"cpus_per_cell": 0}, "cpus_per_cell: expected a whole number of at least 1, got 0"),
        ({"resources": {"x": -1}}, "above 0"),
    ],
)
def test_what_cannot_work_is_told_in_a_line(tmp_path, options, told):
    write_suite(tmp_path, "chained")
    done = run("--executor", json.dumps({"name": "ray", **options}), cwd=tmp_path)
    assert done.exit_code == 2 and told in done.stderr, done.stderr


@pytest.mark.parametrize("home", [None, "me"])
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, home):
    """As in a container whose user nobody made; Ray itself speaks of token storage."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~", home or "~"))
    started = SimpleNamespace(init=pytest.fail, shutdown=pytest.fail)
    for address in (None, "auto"):
        with pytest.raises(UserError, match="no home folder, and Ray needs one"), _connected(started, address, 1):
            pass


def test_a_cluster_that_does_not_start_here_is_told_without_an_address():
    def init(*_, **__):
        raise ConnectionError("no room")

    failing = SimpleNamespace(init=init, shutdown=lambda: None)
    with pytest.raises(UserError, match="ray: no Ray cluster starts here: no room"), _connected(failing, None, 1):
        pass


@pytest.mark.parametrize(
    ("needs", "most", "room"), [({"CPU": 2}, None, 3), ({"CPU": 1, "GPU": 0.5}, None, 2), ({"CPU": 1}, 4, 4)]
)
def test_room_is_what_the_nodes_have_that_are_alive(needs, most, room):
    found = cluster_of({"CPU": 5.0, "GPU": 1.0}, {"CPU": 3.0}, lost={"CPU": 9.0})
    assert _Cluster(found, {}, needs, most).room() == room
    with pytest.raises(UserError, match=r"no node .* has room for a cell, which takes 64 CPU, 0\.5 GPU"):
        _Cluster(found, {}, {"CPU": 64, "GPU": 0.5}, most).room()


def cluster_of(*alive, lost):
    """Ray, as far as it tells what its nodes have."""
    nodes = [*({"Alive": True, "Resources": has} for has in alive), {"Alive": False, "Resources": lost}]
    return SimpleNamespace(nodes=lambda: nodes, remote=lambda work: SimpleNamespace(options=lambda **how: work))


@pytest.mark.slow
def test_a_cluster_without_room_for_a_cell_is_told_of(cluster, tmp_path):
    write_suite(tmp_path, "chained")
    done = run("--executor", executor(cluster, cpus_per_cell=64), cwd=tmp_path)
    assert done.exit_code == 2 and "64 CPU" in done.stderr, done.stderr
