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


GIT = r"""#!/bin/sh
case "$*" in
  *status*) printf ' M caf\351.txt\n' ;;
  *rev-parse*) printf '%040d\n' 7 ;;
esac
"""


def test_a_file_whose_name_is_no_utf_8_does_not_hide_the_revision(tmp_path, monkeypatch):
    (tmp_path / "git").write_text(GIT)
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.git_revision(tmp_path) == f"{7:040d}+"


def test_a_git_that_prints_anything_else_says_nothing(tmp_path, monkeypatch):
    (tmp_path / "git").write_text("#!/bin/sh\nprintf '\\377\\376'\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
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
