"""What a message takes on the wire beyond its tensors, with TLS."""

import functools
import os
import socket
import threading
import time

import pytest
import torch

from fedbench.deployment import loopback, wire
from fedbench.deployment.examples import Examples
from fedbench.deployment.federation import Federation, free_port, start_node
from fedbench.deployment.node import Node
from fedbench.deployment.server import Patience

pytest.importorskip("flwr", reason="needs the extra `flower`")
IDLE = 20.0  # seconds


class Proxy:
    """Counts what passes between a SuperNode and its SuperLink."""

    def __init__(self, target):
        self.target, self.moved = target, {"up": 0, "down": 0}
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for way, one, other in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self.pump, args=(way, one, other), daemon=True).start()

    def pump(self, way, one, other):
        try:
            while part := one.recv(65536):
                other.sendall(part)
                self.moved[way] += len(part)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.mark.slow
def test_a_message_of_the_size_of_a_vit_has_less_than_two_percent_beyond_its_tensors(tmp_path, monkeypatch):
    factors = {
        f"start:r/{j}/mlp.fc2.lora_{side}": (8, 3072) if side == "A" else (768, 8) for j in range(12) for side in "AB"
    }
    tensors = {name: torch.randn(shape) for name, shape in factors.items()}
    tensors |= {"start:shared/head.weight": torch.randn(100, 768), "start:shared/head.bias": torch.randn(100)}
    message, size = wire.packed({"kind": "train", "facts": "x" * 700}, tensors), wire.payload(tensors)
    assert size > 1.7e6
    monkeypatch.setattr(Node, "answer", lambda node, content: content)
    folder = tmp_path / "f"
    with Federation(folder) as federation:
        federation.create(1, "127.0.0.1", free_port())
        door = f"/tmp/fedbench-framing-{os.getpid()}"
        trainer = loopback.forked(functools.partial(loopback.serve, door, Examples(tmp_path), []))
        try:
            federation.start_link(lasting=False)
            proxy = Proxy(federation.facts["port"])
            address = f"127.0.0.1:{proxy.port}"
            start_node(federation, "node0", address, federation.authority, federation.key(0), door)
            with loopback.connected(federation, Patience()) as nodes:
                nodes.meet(1)
                nodes.exchange({0: message}, 0)  # with the app itself, which is sent once
                took = []
                for wait in (True, False):
                    before, began = dict(proxy.moved), time.monotonic()
                    if wait:
                        time.sleep(IDLE)
                    else:
                        assert nodes.exchange({0: message}, 1)[0].content == message
                    seconds = time.monotonic() - began
                    took.append((seconds, {way: proxy.moved[way] - before[way] for way in before}))
        finally:
            loopback.end(trainer)
            os.unlink(door)
            proxy.listening.close()
    (idle, nothing), (busy, moved) = took
    beyond = {way: (moved[way] - nothing[way] * busy / idle) / size - 1 for way in moved}
    print(f"beyond the {size} bytes of tensors: {beyond}; idle {nothing} in {idle:.0f} s; it took {busy:.1f} s")
    assert all(0 < share < 0.02 for share in beyond.values()), (beyond, took)
