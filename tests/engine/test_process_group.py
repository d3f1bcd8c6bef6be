"""Processes that compute one cell together: real ones."""

import os
import signal
import time

import psutil
import pytest
import torch

from fedbench.engine.process_group import dealt, together


def squares(team, pieces=5):
    parts = team.share(range(pieces), lambda i: {"square": torch.tensor([i * i]), "who": torch.tensor([team.rank])})
    return [int(part["square"]) for part in parts], {int(part["who"]) for part in parts}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_pieces_come_back_in_order_whoever_computed_them(size):
    assert together(size, squares) == ([0, 1, 4, 9, 16], set(range(size)))


def test_members_that_have_nothing_to_do_still_learn_the_results():
    assert together(3, lambda team: [squares(team, 1), squares(team, 4)[0]]) == [([0], {0}), [0, 1, 4, 9]]


def test_a_backward_pass_runs_in_every_member():
    def gradient(i):
        x = torch.tensor([float(i)], requires_grad=True)
        x.square().sum().backward()
        return {"grad": x.grad}

    parts = together(2, lambda team: team.share([1, 1], gradient))
    assert [float(part["grad"]) for part in parts] == [0, 2]


def test_work_is_dealt_largest_first_to_whoever_has_least():
    assert dealt([3, 10, 8, 6], 2) == [0, 0, 1, 1]
    assert dealt([1, 1], 1) == [0, 0]


def test_a_members_error_is_told_with_its_traceback():
    first = os.getpid()

    def compute(i):
        if os.getpid() != first:
            raise ValueError("layer 3 is gone")
        return {}

    with pytest.raises(RuntimeError, match="^ValueError: layer 3 is gone$") as told:
        together(2, lambda team: team.share([1, 1], compute))
    assert "in compute" in str(told.value.__cause__)


def broken(i):
    if i > 0:
        raise KeyError(f"piece {i}")
    return {}


def test_what_a_piece_raises_is_the_same_whoever_had_it():
    for size in (1, 2, 3):
        with pytest.raises(KeyError, match="piece 1") as told:
            together(size, lambda team: team.share([1, 3, 2], broken))
        assert told.traceback[-1].name == "broken" and told.value.__context__ is None


def test_a_member_that_dies_is_noticed():
    def die(i):
        if os.getpid() != first:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    first = os.getpid()
    with pytest.raises(RuntimeError, match="was ended"):
        together(2, lambda team: team.share([1, 1], die))


def test_no_process_is_left_behind_when_the_first_fails():
    before = set(psutil.Process().children())
    with pytest.raises(KeyError):
        together(3, lambda team: {}["nothing"] if team.rank == 0 else team.share([1] * 3, lambda i: {}))
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize("size", [1, 2])
def test_names_keep_their_order_and_tensors_their_values_whoever_computed_them(size):
    """Views of one tensor and strided ones too, under names that are not in the alphabet's order."""

    def compute(i):
        whole = torch.arange(6.0).view(2, 3) + i
        return {"last": whole, "ensemble": whole, "cut": whole[:, 1:]}

    parts = together(size, lambda team: team.share([1, 1, 1], compute))
    assert [list(part) for part in parts] == [["last", "ensemble", "cut"]] * 3
    assert parts[2]["cut"].tolist() == [[3, 4], [6, 7]]


def test_a_member_that_dies_amid_its_message_is_noticed():
    def break_off(team):
        if team.rank:
            os.write(team.links[0].fileno(), b"\x00\x00\x10\x00half of a message")
            os._exit(1)
        return team.share([1, 1], lambda i: {})

    with pytest.raises(RuntimeError, match="was ended"):
        together(2, break_off)


def test_members_that_meet_wait_for_the_last(tmp_path):
    def work(team):
        if team.rank:
            time.sleep(0.2)
            (tmp_path / str(team.rank)).touch()
        team.meet()
        return sorted(file.name for file in tmp_path.iterdir())

    assert together(3, work) == ["1", "2"] and together(1, lambda team: team.meet()) is None
