"""What the server of workers imports comes in whole: multiprocessing passes over a failure there without a word."""

import subprocess
import sys

PRELOAD = "import gc\nimport fedbench.runner.forkserver_preload\nassert gc.isenabled() and gc.get_freeze_count()"


def test_the_server_of_workers_imports_all_that_it_is_to():
    done = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
