"""What the server of workers imports comes in whole: multiprocessing passes over a failure there without a word."""

from supervised import PRELOADED

from fedbench.processes.fork_server import PRELOAD
from fedbench.processes.supervisor import call


def test_the_server_of_workers_imports_all_that_it_is_to():
    """A module whose import fails is none that is imported."""
    assert call(PRELOADED, PRELOAD, timeout=300) == {"imported": True, "collecting": True, "left out": True}
