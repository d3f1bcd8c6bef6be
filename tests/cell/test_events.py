"""The pipe between a cell and the run: what is no event is passed over, and nobody waits."""

from __future__ import annotations

import os
from multiprocessing import Pipe

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.cell.events import LONGEST, Listener, Teller


@pytest.fixture
def pipe():
    receive, send = Pipe(duplex=False)
    yield Listener(receive), send
    for end in (receive, send):
        if not end.closed:
            end.close()


def test_what_is_told_is_heard_in_order(pipe):
    listener, send = pipe
    assert listener.heard() == []
    teller = Teller(send)
    events = [{"event": "ready"}, {"event": "round", "round": 1}, {"event": "probed", "rates": {"start": 0.5}}]
    for event in events:
        teller.tell(event)
    assert listener.heard() == events and listener.open
    send.close()
    assert listener.heard() == [] and not listener.open


def test_half_a_line_waits_for_its_other_half(pipe):
    listener, send = pipe
    os.write(send.fileno(), b'{"event": "rou')
    assert listener.heard() == []
    os.write(send.fileno(), b'nd", "round": 2}\n')
    assert listener.heard() == [{"event": "round", "round": 2}]


@given(st.lists(st.binary(max_size=200).map(lambda junk: junk.replace(b"\n", b"")), max_size=5))
def test_between_garbage_events_are_heard(junk):
    receive, send = Pipe(duplex=False)
    with receive, send:
        listener = Listener(receive)
        os.write(send.fileno(), b"".join(line + b"\n" for line in junk) + b'{"event": "round", "round": 7}\n')
        assert {"event": "round", "round": 7} in listener.heard()


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "ended"}', b'{"event": "started"}', b'{"event": "stopping"}', b'{"event": "mine"}', b"[1]", b"7",
        b'{"round": 1}', b"{", b'{"event": "round"}', b'{"event": "round", "round": true}', b'{"event": "torn"}',
        b'{"event": "torn", "reasons": [1]}', b'{"event": "broke"}', b'{"event": ["round"]}',
    ],
)  # fmt: skip
def test_what_is_not_for_a_cell_to_tell_is_passed_over(pipe, line):
    listener, send = pipe
    os.write(send.fileno(), line + b"\n")
    assert listener.heard() == []


def test_a_line_without_end_is_not_kept(pipe):
    listener, send = pipe
    for _ in range(LONGEST // 2**16 + 4):
        os.write(send.fileno(), b"x" * 2**16)
        assert listener.heard() == []
    assert len(listener.rest) == LONGEST


def test_all_that_an_ended_cell_has_told_is_heard_but_for_half_a_line(pipe):
    listener, send = pipe
    line = b'{"event": "round", "round": 1}\n'
    os.set_blocking(send.fileno(), False)
    sent = os.write(send.fileno(), line * 3000) // len(line)
    assert sent > 2000 and len(listener.remaining()) == sent
    os.write(send.fileno(), b'{"event": ')
    assert listener.remaining() == []
    os.write(send.fileno(), line)
    assert len(listener.heard()) == 1
