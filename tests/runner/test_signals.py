"""Signals that end a run: raised or counted, and left alone where they are ignored."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from fedbench.errors import Interrupted
from fedbench.processes.signals import ENDING, counted, raising

pytestmark = pytest.mark.usefixtures("hears_signals")


def handlers() -> list:
    return [signal.getsignal(number) for number in ENDING]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_raised_where_it_finds_the_program(number, code):
    before = handlers()
    with pytest.raises(KeyboardInterrupt) as found, raising():
        os.kill(os.getpid(), number)
    assert found.value.exit_code == code
    assert handlers() == before


def test_signals_are_counted_and_the_first_is_raised_at_the_end():
    before, asked = handlers(), []
    with pytest.raises(Interrupted) as found, counted(asked):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert asked == [signal.SIGTERM, signal.SIGINT] and found.value.exit_code == 143
    assert handlers() == before


def test_another_error_is_not_hidden_by_a_signal():
    with pytest.raises(ValueError), counted([]):
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError


def test_an_ignored_signal_stays_ignored():
    """As `nohup` leaves it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    asked: list[int] = []
    try:
        with counted(asked):
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_beside_the_main_thread_nothing_is_handled():
    before, seen = handlers(), []

    def work():
        with counted([]):
            seen.extend(handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == before
