"""What a server of workers imports that needs no torch: it starts at once, which does for tests of processes alone."""

import warnings

import fedbench.processes.guard  # noqa: F401
from fedbench.processes import process_tree

process_tree.adopt_orphans()  # as fedbench/runner/forkserver_preload.py
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
