"""The Hub is asked once, before the first cell: what happens without a network, and what counts as an answer."""

from __future__ import annotations

import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from command import TINY, fedbench, manifests, write_suite

from fedbench import machine
from fedbench.registry.registry import Registry
from fedbench.runner.cells import without_hub

VIT = "vit_tiny_patch16_224"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "")  # so that what a run sets is undone
        monkeypatch.delenv(name)
    machine.hub_answers.cache_clear()
    yield
    machine.hub_answers.cache_clear()


def asked(monkeypatch, answers: bool) -> list[int]:
    calls: list[int] = []
    monkeypatch.setattr(machine, "hub_answers", lambda: calls.append(1) or answers)
    monkeypatch.setattr(machine.hub_answers, "cache_clear", lambda: None, raising=False)
    return calls


@pytest.mark.slow
def test_plan_says_that_weights_cannot_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the port of a service that is nowhere
    write_suite(tmp_path, "allsmall", {"backbone: tiny": f"backbone: {VIT}"})
    done = fedbench("plan", "tiny.yaml", "--plugin", TINY, cwd=tmp_path)
    assert f"Warning: the Hugging Face Hub does not answer, from which the weights of {VIT} come" in done.stderr


def test_a_run_warns_once_and_its_cells_do_not_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    write_suite(tmp_path, "allsmall", {"backbone: tiny": f"backbone: {VIT}", "methods:": "seeds: [0, 1]\nmethods:"})
    done = fedbench("run", "tiny.yaml", "--plugin", TINY, "--results", "r", "--jobs", 1, cwd=tmp_path)
    assert done.exit_code == 1 and done.stderr.count("the Hugging Face Hub does not answer") == 1
    assert "HF_HUB_OFFLINE" not in os.environ, "another library of this process may use the Hub"
    for manifest in manifests(tmp_path / "r").values():
        assert manifest["status"] == "failed" and "cannot be fetched" in manifest["reason"]
        assert manifest["seconds"] < 30, "the client of the Hub tries for 47 seconds otherwise"


def test_it_is_asked_once_and_only_where_weights_come_from_it(monkeypatch):
    calls, registry = asked(monkeypatch, answers=False), Registry()
    vit = {"backbone": {"name": VIT, "pretrained": True}}
    others = [
        {"backbone": {"name": VIT, "pretrained": False}},
        {"backbone": {"name": VIT, "pretrained": "weights.safetensors"}},
        {"backbone": {"name": "micro_vit"}},
    ]
    assert without_hub(others, registry) == "" and not calls
    assert VIT in without_hub([*others, vit, vit], registry) and len(calls) == 1
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert without_hub([vit], registry) == "" and len(calls) == 1


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_server_that_refuses_has_answered(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    assert machine.hub_answers()
    server.shutdown()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "no address", "http://nowhere.invalid"])
def test_what_cannot_be_reached_does_not_answer(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert not machine.hub_answers()


def test_a_server_that_keeps_silent_is_not_waited_for(monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert not machine.hub_answers(0.3) and time.monotonic() - began < 10
