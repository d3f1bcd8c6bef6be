"""The apps of Flower: what of a SuperLink other machines reach, and a reply that is not one of fedbench."""

import asyncio
import socket
import threading
from types import SimpleNamespace

import pytest

from fedbench.deployment.door import got, put

pytest.importorskip("flwr", reason="needs the extra `flower`")
SERVER, HERE, ELSEWHERE = "192.0.2.1", "127.0.0.1", "203.0.113.9"
PROTOBUF = dict.fromkeys(("Content-Type", "Accept"), "application/protobuf")


@pytest.fixture
def superlink(monkeypatch, tmp_path):
    """Flower's own SuperLink with our middleware; status(source, path) of an empty request."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setenv("BROWSER_USE_SETUP_LOGGING", "false")  # which Flower sets when it is imported
    import httpx
    from flwr.superlink import extensions, main

    from fedbench.deployment.app.superlink import guard

    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)
    guard()
    app = main.create_app()
    app.state.enable_supernode_auth = True

    async def status(source, path):
        transport = httpx.ASGITransport(app=app, client=(source, 5000))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{SERVER}:9092") as client:
            return (await client.post(path, headers=PROTOBUF)).status_code

    return lambda source, path: asyncio.run(status(source, path))


def test_a_superlink_is_controlled_from_its_own_machine_alone(superlink):
    control = [f"/v1/control/{name}" for name in ("list-nodes", "register-node", "unregister-node", "start-run")]
    refused = [*control, "/v1/runtime/acquire-task", "/openapi.json", "//v1/control/list-nodes"]
    assert {path: superlink(ELSEWHERE, path) for path in refused} == dict.fromkeys(refused, 403)
    assert superlink(ELSEWHERE, "/v1/fleet/pull-messages") == 401  # which asks for a node's signature
    assert [superlink(source, "/v1/control/list-nodes") for source in (HERE, SERVER)] == [200, 200]


def test_a_reply_that_is_none_of_fedbench_is_an_error_and_the_others_arrive(monkeypatch):
    from flwr.app import RecordDict

    from fedbench.deployment.app import record, server_app

    def reply(id, content=None, reason=""):
        about = SimpleNamespace(reply_to_message_id=id)
        error = {"error": SimpleNamespace(reason=reason), "has_error": lambda: bool(reason)}
        return SimpleNamespace(metadata=about, content=content, **error)

    replies = [reply("odd", RecordDict({})), reply("fine", record(b"content")), reply("failed", reason="it broke")]
    grid = SimpleNamespace(pull_messages=lambda ids: replies)
    here, there = socket.socketpair()
    monkeypatch.setattr(server_app, "knock", lambda path: there)
    given = grid, SimpleNamespace(run_config={"door": "x"})
    relay = threading.Thread(target=server_app.relay, args=given, daemon=True)
    relay.start()
    with here:
        put(here, {"do": "receive", "ids": []})
        facts, contents = got(here)
    relay.join(5)
    odd, fine, failed = facts["came"]
    assert (odd[0], fine, failed) == ("odd", ["fine", ""], ["failed", "it broke"])
    assert odd[1].startswith("its reply is not a message of fedbench: KeyError")
    assert contents == [b"", b"content", b""]
