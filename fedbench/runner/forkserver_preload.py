"""What the server of workers imports before it forks any: all that cells need.

A garbage collection looks at every object, a million of torch's among them, and by that alone copies the memory that a
worker shares with its server. So these objects are left out of it.
"""

import atexit
import gc
import os
import warnings
from contextlib import suppress
from pathlib import Path

gc.disable()

import pyarrow.pandas_compat  # noqa: E402, F401  # a table's frame asks for it
import pydantic.json_schema  # noqa: E402, F401  # options are checked in every cell

import fedbench.processes.guard  # noqa: E402
import fedbench.simulation.worker  # noqa: E402, F401
from fedbench import machine  # noqa: E402
from fedbench.errors import UserError  # noqa: E402
from fedbench.processes import process_tree  # noqa: E402
from fedbench.processes.fork_server import SOCKETS  # noqa: E402
from fedbench.registry.registry import Registry  # noqa: E402
from fedbench.results.documents import validator_of  # noqa: E402
from fedbench.results.index import Entry  # noqa: E402

validator_of(Entry)  # every cell looks into the index
registry = Registry()
for plugin in registry.own:
    with suppress(UserError):  # the cell that needs it says so
        registry.load(plugin)

machine.leave_alone()
gc.enable()


def end() -> None:
    """Remove the socket's folder, as the caller does unless it was killed. The server has nothing else to close, and to
    take torch's modules apart costs a second of a core after the caller has ended."""
    if folder:
        with suppress(OSError):
            for socket in Path(folder).glob("listener-*"):
                socket.unlink()
            os.rmdir(folder)
    os._exit(0)


folder = os.environ.pop(SOCKETS, "")
os.register_at_fork(after_in_child=lambda: atexit.unregister(end))
atexit.register(end)
# What a killed guard leaves behind is then below the server, where the caller finds it.
process_tree.adopt_orphans()
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
