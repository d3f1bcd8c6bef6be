"""Flower's SuperLink, at which other machines reach the messages of nodes alone."""

import os
from typing import Any

from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink

FOR_NODES = "/v1/fleet/"  # where a SuperNode must sign every request with its registered key
LOOPBACK = ("127.0.0.1", "::1")
REFUSED = b"Only the machine of this SuperLink may control it: run `flwr` there.\n"


class NodesAlone:
    """ASGI middleware that refuses other machines all but the requests of nodes.

    Flower serves nodes at the same port as the requests that start apps and register keys, and asks for no credentials
    for the latter.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with 403."""
        if scope["type"] == "lifespan" or scope["path"].startswith(FOR_NODES) or _from_here(scope):
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": REFUSED})


def _from_here(scope: dict[str, Any]) -> bool:
    """Whether a request comes from this machine: its own address is the source where a connection stays on it."""
    return scope["client"][0] in (*LOOPBACK, scope["server"][0])


def guard() -> None:
    """Put the middleware before all of Flower's, in SuperLinks that this process starts."""
    flowers = extensions.get_middleware
    extensions.get_middleware = lambda: (extensions.Middleware(NodesAlone), *flowers())


if __name__ == "__main__":
    os.environ.pop("FORWARDED_ALLOW_IPS", None)  # by which uvicorn would believe what others say of their address
    guard()
    flower_superlink()
