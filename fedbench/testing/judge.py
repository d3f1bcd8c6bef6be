"""What runs in the process that checks components: one message a line, so that its end is known for what it is."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import Any

from fedbench.errors import UserError


def main(order: str) -> None:
    """Check what an order names, and tell of it through a pipe.

    order: JSON with `names`, `plugins`, `options` and `done` of `verdicts`, `tell`, the pipe to write messages to, and
    `trace`, the file that is told where the process is when it is asked by SIGUSR1 or crashes.
    """
    asked: dict[str, Any] = json.loads(order)
    pipe = asked.pop("tell")
    trace = os.open(asked.pop("trace"), os.O_WRONLY | os.O_APPEND)
    faulthandler.enable(trace)
    faulthandler.register(signal.SIGUSR1, trace, all_threads=False)

    def tell(**message: Any) -> None:
        os.write(pipe, json.dumps(message).encode() + b"\n")

    import torch

    from fedbench.testing.verdicts import verdicts

    torch.set_num_threads(1)
    try:
        for one in verdicts(**asked, at=lambda what: tell(at=what)):
            tell(verdict=[one.verdict, one.what, one.why])
    except UserError as error:
        tell(refused=str(error))
    tell(ended=True)
    os._exit(0)  # whatever threads or exit handlers a plugin has left behind


if __name__ == "__main__":
    main(sys.argv[1])
