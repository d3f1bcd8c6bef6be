"""fedbench completion in real shells: Tab is pressed in bash and zsh, and fish is asked what it offers."""

import fcntl
import os
import pty
import re
import resource
import select
import shutil
import struct
import subprocess
import termios
import time

import pytest
from command import environment, fedbench
from test_completion import SECONDS

LINES = {
    "fedbench run quick": "fedbench run quickstart ",
    "fedbench run extreme_hetero --scenario dy": "fedbench run extreme_hetero --scenario dynamic ",
    "fedbench run extreme_hetero --scenario=dy": "fedbench run extreme_hetero --scenario=dynamic ",
    "fedbench run quickstart --method incl": "fedbench run quickstart --method inclusivefl ",
    "fedbench run quickstart --time": "fedbench run quickstart --timeout ",
    "fedbench plugins show inclus": "fedbench plugins show inclusivefl ",
    "fedbench plugins check id": "fedbench plugins check idea.py ",
}
# A key that shows the line as it stands, since shells draw it anew as they like.
SHOWN = {
    "bash": 'bind -x \'"\\C-g": printf "<%s>\\n" "$READLINE_LINE"\'\n',
    "zsh": "shown() { print -r -- \"<$BUFFER>\" }; zle -N shown; bindkey '^G' shown\n",
}
START = 1.0  # seconds of processor time that a shell may take itself


def installed(shell):
    return pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"no {shell} here"))


@pytest.fixture
def set_up(home, program, tmp_path, registry):
    """What a shell finds where completion is set up for it by the one command: its environment, in a folder with a
    plugin."""
    (tmp_path / "idea.py").write_text("")
    assert registry.catalogue  # which is kept

    def done(shell):
        assert fedbench("completion", "--install", "--shell", shell, cwd=home).exit_code == 0
        return {**environment(), "PATH": f"{program.parent}:/usr/bin:/bin", "TERM": "xterm"}

    return done


def pressed(shell, start, env, cwd):
    """The lines of LINES as they stand once Tab was pressed behind each, in one shell with a terminal of its own."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execvpe(shell, [shell, "-i"], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    try:
        heard(terminal, b"READY", f" {start}printf 'REA''DY'\n")
        for line in LINES:
            screen = heard(terminal, b">", f"\x15{line}\t\x07", since=b"<")
            yield re.findall("<(.*)>", screen)[-1]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def heard(terminal, until, keys, since=b"READY"):
    """What the shell writes after these keys, up to `until` behind the last `since`."""
    os.write(terminal, keys.encode())
    screen, due = b"", time.monotonic() + 60
    while since not in screen or until not in screen[screen.rindex(since) :]:
        assert select.select([terminal], [], [], max(0.0, due - time.monotonic()))[0], screen
        screen += os.read(terminal, 65536)
    return screen.decode(errors="replace")


@pytest.mark.parametrize("shell", [installed("bash"), installed("zsh")])
def test_the_tab_key_completes(shell, set_up, tmp_path):
    env = set_up(shell)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert list(pressed(shell, SHOWN[shell], env, tmp_path)) == list(LINES.values())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert taken < START + SECONDS * len(LINES)


@pytest.mark.parametrize("shell", [installed("fish")])
def test_fish_offers_what_completes(shell, set_up, tmp_path):
    env = set_up(shell)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = "\n".join(f"complete -C '{line}'" for line in LINES)
    done = subprocess.run([shell, "-c", asked], env=env, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert (offered, done.stderr) == ([line.split()[-1] for line in LINES.values()], "")
    taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert taken < START + SECONDS * len(LINES)
