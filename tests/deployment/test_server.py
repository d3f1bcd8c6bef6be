"""Who is there, how long the server waits, and that a cell ends on nothing never."""

import socket
import threading

import pytest

from fedbench.deployment import server
from fedbench.deployment.door import got, put
from fedbench.deployment.server import FlowerNodes, Patience
from fedbench.simulation.worker import Stopped

QUICK = Patience(start=0.3, back=0.3, answer=1.0, least=0.5)


class Grid:
    """The other side of the door: nodes by name, and what each answers.

    names: of the nodes that are there, 1, 2, ... · silent: nodes that never answer · broken: nodes whose app fails.
    """

    def __init__(self, names, silent=(), broken=(), ends_after=None, twice=False):
        self.names, self.silent, self.broken, self.twice = dict(enumerate(names, 1)), silent, broken, twice
        self.sent, self.ends_after = {}, ends_after
        self.here, there = socket.socketpair()
        threading.Thread(target=self.serve, args=(there,), daemon=True).start()

    def serve(self, there):
        with there:
            for _ in range(self.ends_after or 10**6):
                try:
                    asked, contents = got(there)
                except ConnectionError:
                    return
                if asked["do"] == "look":
                    put(there, {"nodes": list(self.names.items())})
                elif asked["do"] == "send":
                    self.sent |= {f"m{node}": (node, one) for node, one in zip(asked["to"], contents, strict=True)}
                    put(there, {"ids": [f"m{node}" for node in asked["to"]]})
                else:
                    came = [id for id in asked["ids"] if self.sent[id][0] not in self.silent]
                    came = [*came, *came, "unknown"] if self.twice else came
                    failed = [id in self.sent and self.sent[id][0] in self.broken for id in came]
                    facts = [[id, "it broke" if bad else ""] for id, bad in zip(came, failed, strict=True)]
                    put(there, {"came": facts}, [self.sent[id][1] if id in self.sent else b"?" for id in came])


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(server, "POLL", 0.01)
    monkeypatch.setattr(server, "LOOK", 0.1)


def nodes(*names, patience=QUICK, **how):
    grid = Grid(names, **how)
    return FlowerNodes(grid.here, patience), grid


def replies(found):
    return {client: reply.content or reply.lost for client, reply in found.items()}


def test_every_client_gets_its_message_by_the_registered_name_of_its_node():
    found, grid = nodes("client-1", "client-0")
    found.meet(2)
    assert replies(found.exchange({0: b"to 0", 1: b"to 1"}, 0)) == {0: b"to 0", 1: b"to 1"}
    assert grid.sent == {"m2": (2, b"to 0"), "m1": (1, b"to 1")}


def test_a_cell_does_not_begin_before_all_nodes_are_there():
    found, _ = nodes("client-0", "client-2", "", "somebody", "client-x")
    with pytest.raises(Stopped, match=r"no node for client 1, 3 within 0\.3 s"):
        found.meet(4)


def test_a_node_that_has_left_is_waited_for_once_and_its_work_is_lost():
    found, grid = nodes("client-0", "client-1")
    found.meet(2)
    del grid.names[2]
    assert replies(found.exchange({0: b"a", 1: b"b"}, 0)) == {0: b"a", 1: server.GONE}
    assert found.missed == {1}
    grid.names[7] = "client-1"
    assert replies(found.exchange({0: b"a", 1: b"b"}, 1)) == {0: b"a", 1: b"b"}
    assert not found.missed


def test_a_node_that_is_late_or_whose_app_fails_is_lost():
    found, _ = nodes("client-0", "client-1", "client-2", "client-3", silent=[2], broken=[3])
    lost = {1: "no answer in time", 2: "its app failed: it broke"}
    assert replies(found.exchange(dict.fromkeys(range(4), b"x"), 0)) == {0: b"x", 3: b"x", **lost}


def test_a_node_that_leaves_while_it_works_is_lost_before_its_time_is_over():
    found, grid = nodes("client-0", "client-1", silent=[2], patience=Patience(0.3, 0.3, 60.0, 0.5))
    threading.Timer(0.3, grid.names.pop, [2]).start()
    assert replies(found.exchange({0: b"a", 1: b"b"}, 0)) == {0: b"a", 1: server.GONE}


def test_a_second_answer_is_not_taken():
    found, _ = nodes("client-0", "client-1", twice=True)
    assert replies(found.exchange({0: b"a", 1: b"b"}, 0)) == {0: b"a", 1: b"b"}


@pytest.mark.parametrize(("least", "silent", "goes_on"), [(0.5, [1], True), (0.6, [1], False), (0.0, [1, 2], False)])
def test_a_round_with_too_few_answers_interrupts_the_cell(least, silent, goes_on):
    found, _ = nodes("client-0", "client-1", silent=silent, patience=Patience(0.3, 0.3, 0.3, least))
    if goes_on:
        assert replies(found.exchange({0: b"a", 1: b"b"}, 2))[1] == b"b"
        return
    with pytest.raises(Stopped, match=r"of 2 nodes answered in round 3 \(no answer in time\); the next run resumes"):
        found.exchange({0: b"a", 1: b"b"}, 2)


@pytest.mark.parametrize(("others", "goes_on"), [([True, True], True), ([True, False], False)])
def test_nodes_that_have_answered_before_count_towards_the_share(others, goes_on):
    found, _ = nodes("client-2", silent=[1], patience=Patience(0.3, 0.3, 0.3, 0.5))
    if goes_on:
        assert replies(found.exchange({2: b"again"}, 1, others)) == {2: "no answer in time"}
        return
    with pytest.raises(Stopped, match="1 of 3 nodes answered in round 2"):
        found.exchange({2: b"again"}, 1, others)


def test_a_round_in_which_nobody_takes_part_asks_nobody():
    assert nodes()[0].exchange({}, 0) == {}


def test_a_superlink_that_has_ended_interrupts_the_cell():
    found, _ = nodes("client-0", ends_after=2)
    with pytest.raises(Stopped, match="the ServerApp or the SuperLink has ended"):
        found.exchange({0: b"a"}, 0)
