"""What the server of workers imports before it forks any: all that cells need, left alone by the collector of garbage.

A collection looks at every object that it knows of, a million of torch's among them, and by that alone copies the
memory that a worker shares with its server.
"""

import gc

gc.disable()

import fedbench.cell.worker  # noqa: E402
import fedbench.runs.executors.supervisor  # noqa: E402, F401
from fedbench import machine  # noqa: E402

machine.leave_alone()
gc.enable()
