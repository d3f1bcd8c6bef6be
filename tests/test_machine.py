"""What fedbench asks of, and sets on, the machine."""

import platform
import subprocess
import sys

import pytest

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
