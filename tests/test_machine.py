"""What fedbench asks of, and sets on, the machine."""

import os
import platform
import subprocess
import sys

import pytest

from fedbench import machine

FAULTS = """
import resource
import numpy
from fedbench import machine

def faults(times=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        numpy.ones(2**20)  # eight megabytes, two thousand pages
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times

one = faults()
machine.keep_memory()
faults(2)
print(one, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator alone is set")
def test_kept_memory_is_not_fetched_from_the_system_again():
    """In a process that has just begun, whose allocator has not learnt anything yet."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < 20 and before > 10 * after


ALONE = """
import gc
from fedbench import machine

class Ring:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("gone")

gc.disable()
ring = Ring()
machine.leave_alone()
del ring
print(gc.collect())
"""


def test_what_is_left_alone_goes_when_the_process_ends():
    """No collection finds it before."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\ngone\n", done.stderr


def git(folder, *words):
    who = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=trunk")
    made = subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True)
    return made.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """(a folder with one commit that is checked out, the commit)."""
    place = tmp_path / "theirs"
    place.mkdir()
    git(place, "init")
    git(place, "commit", "--allow-empty", "-m", "one")
    return place, git(place, "rev-parse", "HEAD")


@pytest.mark.parametrize("how", ["loose", "packed", "detached", "below", "work tree", "other branch", "symbolic"])
def test_the_revision_is_the_one_that_git_tells(repository, how):
    place, commit = repository
    if how == "packed":
        git(place, "pack-refs", "--all")
    elif how == "detached":
        git(place, "checkout", "--detach")
    elif how == "below":
        place /= "suites"
        place.mkdir()
    elif how == "work tree":
        git(place, "worktree", "add", "../tree")
        place = place.parent / "tree"
    elif how == "other branch":
        git(place, "checkout", "-b", "feature/a.b")
    elif how == "symbolic":
        git(place, "symbolic-ref", "refs/heads/alias", "refs/heads/trunk")
        git(place, "symbolic-ref", "HEAD", "refs/heads/alias")
    assert machine.git_revision(place) == commit


@pytest.mark.parametrize("key", ["core.fsmonitor", "core.hooksPath", "filter.x.clean", "alias.status"])
def test_no_program_that_a_repository_names_is_run(repository, monkeypatch, key):
    place, commit = repository
    monkeypatch.setattr(subprocess, "run", lambda *words, **how: pytest.fail(f"{words} was run"))
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **how: pytest.fail(f"{words} was run"))
    with (place / ".git/config").open("a") as file:
        section, name = key.rsplit(".", 1)
        file.write(f"[{section.replace('.', ' ')}]\n{name} = touch {place}/pwned\n")
    (place / "a.txt").write_text("a")
    (place / ".gitattributes").write_text("* filter=x\n")
    assert machine.git_revision(place) == commit and not (place / "pwned").exists()


@pytest.mark.parametrize(
    "head",
    ["", "ref: refs/heads/none", "ref: refs/../../secret", "ref: /etc/passwd", "zz" * 20, "\xff\xfe"],
)
def test_a_head_that_names_no_commit_says_nothing(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / "secret").write_text("a" * 40)
    (tmp_path / ".git/HEAD").write_bytes(head.encode("latin-1"))
    assert machine.git_revision(tmp_path) is None


def test_what_is_no_file_is_not_waited_for(tmp_path):
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git/HEAD")
    assert machine.git_revision(tmp_path) is None


def test_a_processor_is_described_whatever_letters_it_has(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_bytes(b"vendor_id\t: Caf\xe9\nmodel name\t: Caf\xe9 9000\n")
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / "cpuinfo")
    assert machine.cpu() == "Caf\ufffd 9000" and machine.vendor() == "Caf\ufffd"


@pytest.mark.parametrize(
    ("place", "fact"),
    [("psutil.virtual_memory", "memory_gib"), ("platform.system", "system"), ("cpu", "cpu"), ("cores", "cores")],
)
def test_what_cannot_be_read_of_a_machine_is_unknown(monkeypatch, place, fact):
    def broken():
        raise RuntimeError("not here")

    monkeypatch.setattr(f"fedbench.machine.{place}", broken)
    found = machine.describe("cpu")
    assert found[fact] == "unknown" and found["python"] == platform.python_version()


def test_a_driver_that_does_not_answer_leaves_the_gpu_unknown(monkeypatch):
    def broken():
        raise RuntimeError("no CUDA driver")

    monkeypatch.setattr("torch.cuda.get_device_name", broken)
    assert machine.describe("cuda")["gpu"] == "unknown"


@pytest.mark.parametrize(
    ("vendor", "asked"), [("GenuineIntel", {"MKL_CBWR": "AUTO,STRICT"}), ("AuthenticAMD", {}), ("", {})]
)
def test_mkl_is_asked_for_the_same_bits_where_it_is_the_one_that_computes(monkeypatch, vendor, asked):
    monkeypatch.setattr(machine, "vendor", lambda: vendor)
    assert machine.same_bits() == asked
