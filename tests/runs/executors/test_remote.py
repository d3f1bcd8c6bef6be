"""What another machine does with an errand: computes the cell as `local` does, tells, ends when asked, or refuses."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from kills import moved, order_of, said

from fedbench.cell import worker
from fedbench.cell.order import Order
from fedbench.results import read_manifest
from fedbench.results.claims import Claims, ask_to_end, handed_out
from fedbench.runs.executors import remote

ROUNDS = 5
MANY = 10**6


@pytest.fixture
def errand(tmp_path):
    """A function that makes errands for a cell of so many rounds, claimed as a run does."""
    with Claims(tmp_path / "s") as claims:

        def make(rounds: int = ROUNDS, **changes) -> str:
            order = order_of(tmp_path, "chained", rounds)
            order.folder.parent.mkdir(exist_ok=True)
            job = replace(order, claim=handed_out(claims.take(order.manifest["id"]))).to_json()
            errand = {"job": job, "limits": {}, "environment": {"OMP_NUM_THREADS": "1"}}
            return json.dumps({**errand, "events": str(order.folder.parent / ".events"), **changes})

        yield make


def order_in(errand: str) -> Order:
    return Order.from_json(json.loads(errand)["job"])


def changed(errand: str, **changes) -> str:
    """The same errand with another order."""
    return json.dumps({**json.loads(errand), "job": replace(order_in(errand), **changes).to_json()})


def with_version(errand: str, name: str, version: str) -> str:
    manifest = order_in(errand).manifest
    return changed(errand, manifest={**manifest, "versions": {**manifest["versions"], name: version}})


def told(errand: str) -> list[dict]:
    return [json.loads(line) for line in Path(json.loads(errand)["events"]).read_text().splitlines()]


def test_a_cell_says_what_it_says_without_an_errand(errand, tmp_path):
    text = errand()
    answer = json.loads(remote.cell(text))
    assert answer["status"] == "finished" and answer["seconds"] > 0
    order = order_in(text)
    here = replace(moved(order, tmp_path / "here"), claim=None)
    worker.run(here)
    assert said(order.folder) == said(here.folder)
    events = told(text)
    assert events[0]["event"] == "started" and any(event["event"] == "round" for event in events)


def test_the_answer_is_found_in_what_was_printed(errand, capsys):
    remote.printed(errand())
    text = capsys.readouterr().out
    assert json.loads(remote.answer_in("noise\n" + text + "more noise\n"))["status"] == "finished"
    assert remote.answer_in("noise\n") is None


def asked_to_end(how, errand: str) -> dict:
    """What an errand of many rounds answers when it is asked to end after its first one."""

    def ask() -> None:
        until = time.monotonic() + 60
        file = Path(json.loads(errand)["events"])
        while not (file.exists() and '"round"' in file.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        how()

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        return json.loads(remote.cell(errand))
    finally:
        asker.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_lets_a_cell_end_after_its_round(hears_signals, errand, number):
    text = errand(MANY)
    answer = asked_to_end(lambda: os.kill(os.getpid(), number), text)
    assert answer["status"] == "interrupted"
    folder = order_in(text).folder
    assert read_manifest(folder)["status"] == "interrupted" and list(folder.glob("checkpoint/?"))


def test_a_run_elsewhere_can_ask_a_cell_to_end(errand):
    text = errand(MANY)
    claim = order_in(text).claim
    assert asked_to_end(lambda: ask_to_end(claim), text)["status"] == "interrupted"


def newest(folder: Path) -> int:
    """The number of the newest checkpoint of a cell, 0 before the first; one being replaced is passed over."""
    numbers = [0]
    for file in folder.glob("checkpoint/?/checkpoint.json"):
        with suppress(FileNotFoundError):
            numbers.append(json.loads(file.read_text())["number"])
    return max(numbers)


def test_an_attempt_that_another_one_has_replaced_ends_and_writes_no_more_than_it_had_begun(errand):
    text = errand(MANY)
    order = order_in(text)
    folder, numbers = order.folder, []

    def hand_out() -> None:
        handed_out({key: order.claim[key] for key in ("file", "token")})
        numbers.append(newest(folder))

    asked_to_end(hand_out, text)
    assert read_manifest(folder)["status"] == "running"
    assert newest(folder) - numbers[0] in (0, 1)


def test_a_folder_that_is_not_shared_is_told_of(errand, monkeypatch):
    monkeypatch.setattr(remote, "APPEARS", 0.2)
    text = errand()
    order = order_in(text)
    answer = json.loads(remote.cell(changed(text, claim={**order.claim, "file": "/nowhere/.0.claim"})))
    assert "/nowhere/.0.claim" in answer["refused"] and "--shard" in answer["refused"]
    assert not order.folder.exists()


def test_a_machine_with_other_versions_refuses(errand):
    answer = json.loads(remote.cell(with_version(errand(), "torch", "0.1")))
    assert "torch" in answer["refused"] and "not 0.1" in answer["refused"]


def test_a_machine_whose_plugin_is_of_another_package_refuses(errand):
    answer = json.loads(remote.cell(with_version(errand(), "another-package", "1.0")))
    assert "another-package is None, not 1.0" in answer["refused"]


def test_a_cell_that_cannot_tell_is_computed_all_the_same(errand, tmp_path):
    """As on a disk that is full for the file of events."""
    assert json.loads(remote.cell(errand(events=str(tmp_path))))["status"] == "finished"


def test_a_plugin_that_is_not_there_refuses(errand):
    answer = json.loads(remote.cell(changed(errand(), plugins=["/nowhere/mine.py"])))
    assert "mine.py" in answer["refused"]
