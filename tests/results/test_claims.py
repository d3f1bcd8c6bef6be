"""Claims on cells: one owner at a time, a sign of life while anybody is at a cell, and takers of what is stale."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest

from fedbench.errors import UserError
from fedbench.results.claims import Claims, Taken, ask_to_end, handed_out, is_held, is_to_end, joined, patience
from fedbench.results.processes import this_process

CELL = "0123456789ab"
STALE_AFTER = 0.6  # seconds; signs of life come every tenth of a second


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The seconds that whoever looks at a claim has counted, which tests move on by hand."""
    monkeypatch.setenv("FEDBENCH_STALE_AFTER", str(STALE_AFTER))
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("fedbench.results.claims.time", SimpleNamespace(monotonic=lambda: clock.seconds))
    return clock


def wait_for_a_sign_of_life(file: Path) -> None:
    before, until = file.stat().st_mtime_ns, time.monotonic() + 30
    while file.stat().st_mtime_ns == before:
        assert time.monotonic() < until
        time.sleep(0.01)


def gone() -> dict:
    """A process of this machine that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return {**this_process(), "pid": ended.pid}


DEEP = "[" * 100_000
ELSEWHERE = {"host": "far", "place": "another machine", "pid": 1, "began": "1"}


def left_behind(folder, run: dict, worker: dict | None = None, token: str = "old"):
    """A claim as a run left it that does not give signs of life any more."""
    file = folder / f".{CELL}.claim"
    file.write_text(json.dumps({"token": token, "run": run, "worker": worker}))
    return file


def test_a_cell_has_one_owner_until_it_is_given_back(tmp_path):
    with Claims(tmp_path) as one, Claims(tmp_path) as other:
        assert one.take(CELL) and other.take(CELL) is None and one.take(CELL) is None
        assert other.holder(CELL) == f"process {os.getpid()} on {this_process()['host']}"
        assert one.release(CELL)
        assert other.holder(CELL) is None and other.take(CELL)
    assert not list(tmp_path.glob("*.claim"))


def test_a_run_that_ends_gives_everything_back(tmp_path):
    with pytest.raises(KeyboardInterrupt), Claims(tmp_path) as one:
        one.take(CELL)
        raise KeyboardInterrupt
    with Claims(tmp_path) as other:
        assert other.take(CELL)


def test_signs_of_life_keep_a_claim(tmp_path, clock):
    with Claims(tmp_path) as one, Claims(tmp_path) as other:
        claim = one.take(CELL)
        for _ in range(3):
            assert other.take(CELL) is None
            wait_for_a_sign_of_life(Path(claim["file"]))
            clock.seconds += 2 * STALE_AFTER
        assert other.take(CELL) is None and is_held(claim)


def test_a_process_that_is_gone_is_known_at_once_on_its_own_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_STALE_AFTER", "600")
    left_behind(tmp_path, gone(), gone())
    with Claims(tmp_path) as claims:
        assert claims.take(CELL)


def test_a_process_of_somebody_elses_that_proc_does_not_show_is_not_gone(tmp_path, clock, monkeypatch):
    """As under `hidepid`, where two people share a folder of results on one machine."""

    def of_another(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    left_behind(tmp_path, gone())
    other = Claims(tmp_path)
    monkeypatch.setattr("fedbench.results.processes.os.kill", of_another)
    assert other.holder(CELL) and other.take(CELL) is None
    clock.seconds += STALE_AFTER + 0.1
    assert other.take(CELL)


def test_claims_that_runs_left_behind_are_deleted_by_the_next_run_whatever_it_computes(tmp_path, clock):
    """Of cells that were finished just before a run was killed, say, which nobody asks for again."""
    left_behind(tmp_path, gone())
    (tmp_path / ".000000000000.claim").write_text(json.dumps({"token": "old", "run": ELSEWHERE, "worker": None}))
    with Claims(tmp_path) as other:
        assert [file.name for file in tmp_path.glob("*.claim")] == [".000000000000.claim"]  # it may be alive
        other.take(CELL)
        with Claims(tmp_path):
            clock.seconds += 2 * STALE_AFTER
            wait_for_a_sign_of_life(tmp_path / f".{CELL}.claim")
        assert [file.name for file in tmp_path.glob("*.claim")] == [f".{CELL}.claim"]
    assert not list(tmp_path.glob("*.claim"))


def test_events_that_nobody_reads_any_more_are_deleted(tmp_path, clock):
    """Of a run that was killed: known to be gone, or silent for too long; and told after the end of its cell."""
    left_behind(tmp_path, gone())
    (tmp_path / ".000000000000.claim").write_text(json.dumps({"token": "old", "run": ELSEWHERE, "worker": None}))
    events = [tmp_path / f".{id}.0123.events" for id in (CELL, "000000000000", "111111111111", "222222222222")]
    for file in events:
        file.touch()
    with Claims(tmp_path) as other:
        other.take("222222222222")
        for file in events:
            file.touch()
        with Claims(tmp_path):
            assert [file.exists() for file in events] == [False, True, False, True]
            clock.seconds += 2 * STALE_AFTER
            wait_for_a_sign_of_life(tmp_path / ".222222222222.claim")
        assert [file.exists() for file in events] == [False, False, False, True]
    assert not list(tmp_path.glob("*.events"))


def test_a_later_process_of_the_same_number_is_not_the_owner(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_STALE_AFTER", "600")
    left_behind(tmp_path, {**this_process(), "began": "0"})
    with Claims(tmp_path) as claims:
        assert claims.take(CELL)


def test_the_worker_of_a_run_that_was_killed_still_has_its_cell(tmp_path, clock):
    file = left_behind(tmp_path, gone(), token="t")
    claim = {"file": str(file), "token": "t"}
    with joined(claim) as check, Claims(tmp_path) as other:
        assert other.take(CELL) is None
        wait_for_a_sign_of_life(file)
        clock.seconds += 2 * STALE_AFTER
        assert other.take(CELL) is None
        check()
    assert is_held(claim)  # it is for the run to give it back


@pytest.mark.parametrize(
    "text", [json.dumps({"token": "old", "run": ELSEWHERE, "worker": None}), "", "[1]", "{}", DEEP]
)
def test_what_cannot_be_asked_is_stale_after_a_time_without_a_sign_of_life(tmp_path, clock, text):
    """A process of another machine, or a claim that was torn when its writer was killed."""
    file = tmp_path / f".{CELL}.claim"
    file.write_text(text)
    os.utime(file, (10**10, 10**10))  # the other machine's clock is years ahead
    with Claims(tmp_path) as claims:
        for seconds in (0, 0.9 * STALE_AFTER):
            clock.seconds += seconds
            assert claims.take(CELL) is None
        os.utime(file)
        for seconds in (0, 0.9 * STALE_AFTER):
            clock.seconds += seconds
            assert claims.take(CELL) is None, "it gave a sign of life meanwhile"
        clock.seconds += 0.2 * STALE_AFTER
        assert claims.take(CELL)


def test_of_many_takers_of_a_stale_claim_one_gets_it(tmp_path):
    left_behind(tmp_path, gone())
    start = Barrier(8)

    def taker(_: int) -> dict | None:
        claims = Claims(tmp_path)
        start.wait()
        return claims.take(CELL)

    with ThreadPoolExecutor(8) as pool:
        won = [claim for claim in pool.map(taker, range(8)) if claim]
    assert len(won) == 1 and is_held(won[0])


def test_who_was_taken_over_is_told_and_touches_nothing_of_the_new_owner(tmp_path):
    with Claims(tmp_path) as slow:
        claim = slow.take(CELL)
        with joined(claim) as check:
            check()
            file = left_behind(tmp_path, ELSEWHERE, token="new")
            os.utime(file, (1, 1))
            with pytest.raises(Taken):
                check()
            time.sleep(0.3)
            assert file.stat().st_mtime == 1
        with pytest.raises(Taken), joined(claim):
            pass
        assert slow.release(CELL) is False
    assert json.loads(file.read_text())["token"] == "new"


def test_an_attempt_holds_a_claim_until_the_next_one_and_the_run_to_the_end(tmp_path):
    with Claims(tmp_path) as run:
        claim = run.take(CELL)
        first = handed_out(claim)
        with joined(first) as check:
            check()
            second = handed_out(claim)
            with pytest.raises(Taken):
                check()
        with pytest.raises(Taken), joined(first):
            pass
        assert is_held(second) and is_held(claim) and not is_held(first)
        with joined(second) as check:
            check()
        assert run.release(CELL)
    with pytest.raises(Taken):
        handed_out(claim)


def test_an_attempt_that_is_over_gives_no_signs_of_life(tmp_path):
    with Claims(tmp_path) as run:
        claim = run.take(CELL)
    file = left_behind(tmp_path, gone())
    old = handed_out({**claim, "token": "old"})
    with joined(old):
        handed_out({**claim, "token": "old"})
        os.utime(file, (1, 1))
        time.sleep(0.3)
        assert file.stat().st_mtime == 1


def test_an_attempt_can_be_asked_to_end_and_the_next_one_was_not(tmp_path):
    with Claims(tmp_path) as run:
        claim = run.take(CELL)
        first = handed_out(claim)
        assert not is_to_end(first)
        with joined(first):
            ask_to_end(first)
            assert is_to_end(first)
        second = handed_out(claim)
        assert is_to_end(first) and not is_to_end(second)
        with pytest.raises(Taken):
            ask_to_end(first)


def test_a_job_without_a_claim_is_nobody_elses():
    assert is_held(None)
    with joined(None) as check:
        check()


def test_a_claim_that_finds_no_room_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    claims = Claims(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("fedbench.results.claims.json.dump", full)
        with pytest.raises(UserError, match="cannot be written .No space left on device."):
            claims.take(CELL)
    assert not list(tmp_path.glob("*.claim"))
    assert claims.take(CELL)


def test_a_claim_that_cannot_be_given_back_was_held_all_the_same(tmp_path, monkeypatch):
    """On a disk that is read-only by now."""
    claims = Claims(tmp_path)
    claim = claims.take(CELL)

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("fedbench.results.claims.Path.unlink", read_only)
    assert claims.release(CELL) and is_held(claim)


@pytest.mark.parametrize("told", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_that_is_none_is_refused(monkeypatch, told):
    monkeypatch.setenv("FEDBENCH_STALE_AFTER", told)
    with pytest.raises(UserError, match=f"FEDBENCH_STALE_AFTER: expected .* got '{told}'"):
        patience()
