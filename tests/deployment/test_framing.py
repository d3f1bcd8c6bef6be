"""What a message takes on the wire, with TLS: bytes beyond its tensors, and seconds on a link of a known rate."""

import functools
import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import torch

from fedbench.deployment import loopback, wire
from fedbench.deployment.federation import Federation, free_port, start_node
from fedbench.deployment.node import Examples, Node
from fedbench.deployment.server import Patience

pytest.importorskip("flwr", reason="needs the extra `flower`")
IDLE = 20.0  # seconds
SMALL = 4096  # bytes: what is smaller is no part of a message, but a question for one


class Proxy:
    """Counts what passes between a SuperNode and its SuperLink, and lets through so many bytes/s each way.

    Attributes:
        parts: by way, (when it came, when it had gone, bytes) of all that passed.
    """

    def __init__(self, target, rate=None):
        self.target, self.rate, self.lock = target, rate, threading.Lock()
        self.parts, self.free = {"up": [], "down": []}, {"up": 0.0, "down": 0.0}
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    @property
    def moved(self):
        return {way: sum(n for *_, n in parts) for way, parts in self.parts.items()}

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
            while part := one.recv(65536 if self.rate is None else 16384):
                came = time.monotonic()
                self.wait_for_link(way, len(part))
                other.sendall(part)
                self.parts[way].append((came, time.monotonic(), len(part)))
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def wait_for_link(self, way, n):
        """Wait as long as a link of that rate needs, which all connections share."""
        if self.rate is not None:
            with self.lock:
                self.free[way] = max(self.free[way], time.monotonic()) + n / self.rate
                until = self.free[way]
            time.sleep(max(0.0, until - time.monotonic()))

    def seconds(self, way, since):
        """From the first large part of a message after a moment to the end of its last one."""
        large = [(came, gone) for came, gone, n in self.parts[way] if came >= since and n >= SMALL]
        return max(gone for _, gone in large) - min(came for came, _ in large)


def of_a_vit():
    """A message of the size of a ViT's adapters, and the bytes of its tensors."""
    factors = {
        f"start:r/{j}/mlp.fc2.lora_{side}": (8, 3072) if side == "A" else (768, 8) for j in range(12) for side in "AB"
    }
    tensors = {name: torch.randn(shape) for name, shape in factors.items()}
    tensors |= {"start:shared/head.weight": torch.randn(100, 768), "start:shared/head.bias": torch.randn(100)}
    return wire.packed({"kind": "train", "facts": "x" * 700}, tensors), wire.payload(tensors)


@contextmanager
def echoing(folder, monkeypatch, rate=None):
    """(nodes, proxy): one node that answers every message with the message, behind a proxy."""
    monkeypatch.setattr(Node, "answer", lambda node, content: content)
    with Federation(folder / "f") as federation:
        federation.create(1, "127.0.0.1", free_port())
        door = f"/tmp/fedbench-framing-{os.getpid()}"
        trainer = loopback.forked(functools.partial(loopback.serve, door, Examples(folder), []))
        proxy = None
        try:
            federation.start_link(lasting=False)
            proxy = Proxy(federation.facts["port"], rate)
            address = f"127.0.0.1:{proxy.port}"
            start_node(federation, "node0", address, federation.authority, federation.key(0), door)
            with loopback.connected(federation, Patience()) as nodes:
                nodes.meet(1)
                nodes.exchange({0: wire.packed({"kind": "echo"}, {})}, 0)  # with the app itself, which is sent once
                yield nodes, proxy
        finally:
            loopback.end(trainer)
            os.unlink(door)
            if proxy:
                proxy.listening.close()


@pytest.mark.slow
def test_a_message_of_the_size_of_a_vit_has_less_than_two_percent_beyond_its_tensors(tmp_path, monkeypatch):
    message, size = of_a_vit()
    assert size > 1.7e6
    took = []
    with echoing(tmp_path, monkeypatch) as (nodes, proxy):
        for wait in (True, False):
            before, began = proxy.moved, time.monotonic()
            if wait:
                time.sleep(IDLE)
            else:
                assert nodes.exchange({0: message}, 1)[0].content == message
            seconds, after = time.monotonic() - began, proxy.moved
            took.append((seconds, {way: after[way] - before[way] for way in before}))
    (idle, nothing), (busy, moved) = took
    beyond = {way: (moved[way] - nothing[way] * busy / idle) / size - 1 for way in moved}
    print(f"beyond the {size} bytes of tensors: {beyond}; idle {nothing} in {idle:.0f} s; it took {busy:.1f} s")
    assert all(0 < share < 0.02 for share in beyond.values()), (beyond, took)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.25e6, 1e6])
def test_a_transfer_takes_what_the_clock_says_up_to_a_megabyte_a_second(tmp_path, monkeypatch, rate):
    message, size = of_a_vit()
    with echoing(tmp_path, monkeypatch, rate) as (nodes, proxy):
        found = {"down": [], "up": []}
        for t in range(3):
            began = time.monotonic()
            assert nodes.exchange({0: message}, t)[0].content == message
            for way, seconds in found.items():
                seconds.append(proxy.seconds(way, began))
    beyond = {way: min(seconds) * rate / size - 1 for way, seconds in found.items()}
    constant = {way: min(seconds) - size / rate for way, seconds in found.items()}
    print(f"at {rate:g} bytes/s: {beyond} beyond {size / rate:.2f} s, which is {constant} s; {found}")
    assert all(-0.02 < share < 0.15 for share in beyond.values()), (beyond, found)
