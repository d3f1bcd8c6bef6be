"""What a federation's folder remembers of the nodes that are registered."""

import subprocess

import pytest

from fedbench.deployment.federation import AT_ONCE, KNOWN, Federation
from fedbench.errors import UserError

REGISTERED = '{"success": true}'


class Registering(Federation):
    """A federation without Flower, which says this of a registration. answers: by the name of a node."""

    def __init__(self, folder, answers):
        super().__init__(folder)
        self.answers, self.asked = answers, []
        folder.mkdir()
        self._write({"clients": 6, "host": "127.0.0.1", "port": 9092, "registered": []})

    def _flwr(self, *command):
        self.asked.append(command[-1])
        answer = self.answers.get(command[-1], REGISTERED)
        return subprocess.Popen(["echo", answer], stdout=subprocess.PIPE, text=True)


def test_registering_nodes_can_be_broken_off_and_repeated(tmp_path):
    refused = '{"success": false, "error-message": "%s"}'
    known, broken = refused % f"[code: 23] {KNOWN}.", refused % "the SuperLink is gone"
    federation = Registering(tmp_path / "f", {"client-0": known, "client-2": broken})
    with pytest.raises(UserError, match="flwr supernode register: .*the SuperLink is gone"):
        federation.register(range(6))
    assert federation.facts["registered"] == [0, 1]
    assert len(federation.asked) == AT_ONCE
    federation.answers["client-2"] = REGISTERED
    federation.register([2, 3, 4, 5])
    assert federation.facts["registered"] == [*range(6)]
