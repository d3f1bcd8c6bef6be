"""Nodes in this process, and what two simulations of one cell have in common."""

from command import TINY

from fedbench.deployment.deployed import Deployed, Reply
from fedbench.deployment.node import Examples, Node
from fedbench.results.columns import TIMINGS, UNHASHED
from fedbench.simulation.checkpoint import Progress
from fedbench.simulation.simulation import Simulation
from fedbench.simulation.state import file_bytes


class Here:
    """One node for each client, without Flower. spoil(t, client, content) returns what comes of an answer, or None."""

    name = "in this process"

    def __init__(self, folder, spoil=lambda t, client, content: content, plugins=(str(TINY),)):
        self.folder, self.spoil, self.plugins, self.nodes, self.messages = folder, spoil, plugins, {}, []
        self.others = []

    def node(self, client):
        if client not in self.nodes:
            own = self.folder / str(client)
            self.nodes[client] = Node(own, Examples(own), self.plugins)
        return self.nodes[client]

    def meet(self, cell):
        for client in range(len(cell.federation.clients)):
            cell.deal(client, self.node(client).examples)

    def exchange(self, messages, t, others=()):
        self.others += others
        self.messages += [(t, client, content) for client, content in messages.items()]
        answers = {client: self.spoil(t, client, self.node(client).answer(m)) for client, m in messages.items()}
        return {client: Reply(a, "" if a else "it is silent", 0.5) for client, a in answers.items()}


def simulated(config, registry, cls=Simulation):
    """A simulation that has run, and its tables."""
    simulation, progress = cls(config, registry), Progress()
    simulation.run(progress=progress)
    return simulation, progress.tables


def deployed(config, registry, nodes):
    """The same on nodes."""
    simulation, progress = Deployed(config, registry, cell="c1", nodes=nodes), Progress()
    simulation.run(progress=progress)
    return simulation, progress.tables


def said(tables):
    """The tables of a digest, without timings."""
    hashed = {kind: rows for kind, rows in tables.items() if kind not in UNHASHED}
    return {
        k: repr([{n: v for n, v in row.items() if n not in TIMINGS[k]} for row in rows]) for k, rows in hashed.items()
    }


def same(one, other):
    """Whether two (simulation, tables) say the same and end in the same state, to the bit."""
    assert said(one[1]) == said(other[1])
    assert file_bytes(one[0].state) == file_bytes(other[0].state)
