"""docs/deploy.md: the tutorial of two machines, on this one."""

import shlex
import subprocess
import time

import pytest
from command import MAIN, environment
from docs.pages import ROOT, blocks
from PIL import Image

from fedbench.deployment.federation import free_port

pytest.importorskip("flwr", reason="needs the extra `flower`")
LONG = 600.0  # seconds


def draw(folder, *domains):
    for domain in domains:
        for c, name in enumerate(("cat", "dog")):
            (folder / domain / name).mkdir(parents=True)
            for i in range(6):
                Image.new("RGB", (32, 32), (200 * c, 10 * i, 60)).save(folder / domain / name / f"{i}.png")


class Terminal:
    """A command that stays."""

    def __init__(self, folder, words):
        self.output = folder / f"{words[2]}-{len(list(folder.glob('*.out')))}.out"
        with open(self.output, "wb") as out:
            self.process = subprocess.Popen([*MAIN, *words[1:]], cwd=folder, env=environment(), stdout=out, stderr=out)

    def wait_for(self, text):
        until = time.monotonic() + LONG
        while text not in self.output.read_text():
            assert self.process.poll() is None and time.monotonic() < until, self.output.read_text()
            time.sleep(0.2)

    def close(self):
        self.process.terminate()
        assert self.process.wait(60) == 143, self.output.read_text()


@pytest.mark.slow
def test_the_tutorial_of_two_machines_on_one(tmp_path):
    page, port = ROOT / "docs/deploy.md", free_port()
    (suite,) = blocks(page, "yaml")
    (tmp_path / "two_machines.yaml").write_text(suite.text)
    commands = [
        shlex.split(line)
        for block in blocks(page, "sh")
        if block.heading == "Two machines"
        for line in block.text.splitlines()
    ]
    draw(tmp_path / "pictures", "day", "night")
    draw(tmp_path / "day_pictures", "day")
    draw(tmp_path / "night_pictures", "night")
    on_loopback = {
        "server.example.org": "localhost",
        "server.example.org:9092": f"localhost:{port}",
        **{name: f"federation/keys/{name}" for name in ("client-0", "client-1")},
        "ca.crt": "federation/ca.crt",
    }
    link, *nodes, run, wire = [[on_loopback.get(word, word) for word in words] for words in commands]
    terminals = [Terminal(tmp_path, [*link, "--host", "127.0.0.1", "--port", str(port)])]
    try:
        terminals[0].wait_for("The SuperLink listens at")
        terminals += [Terminal(tmp_path, words) for words in nodes]
        for words in (run, wire):
            done = subprocess.run(
                [*MAIN, *words[1:]], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LONG
            )
            assert done.returncode == 0, done.stdout + done.stderr
        assert "fedra" in done.stdout and "lost" in done.stdout
    finally:
        for terminal in reversed(terminals):
            terminal.close()
