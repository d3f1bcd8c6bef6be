"""fedbench completion: what shells are offered, how soon, and what is written to set it up."""

import json
import resource
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from command import environment, fedbench

from fedbench.cli import main
from fedbench.commands.completing import TABLE
from sitemaking.commands import walk

REFERENCE = Path("results/reference").resolve()
SECONDS = 0.3  # of processor time, from the key to the answer


def offered(line: str) -> list[str]:
    """What a shell is offered for the last word of a line."""
    *words, incomplete = line.split(" ")
    items = ShellComplete(main, {}, "fedbench", "_FEDBENCH_COMPLETE").get_completions(words, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in items]


@pytest.fixture
def study(tmp_path, monkeypatch, registry):
    """A folder with a suite, a plugin's file, and results of one cell; the catalogue is kept."""
    (tmp_path / "mine.yaml").write_text("suite: mine\nscenarios: {hard: {}, easy: {}}\nmethods: [fedra, {name: own}]\n")
    swept = "sweep: {train.rounds: [1, 2], backbone: [{name: micro_mixer, pretrained: false}]}\n"
    (tmp_path / "swept.yaml").write_text(f"suite: swept\nscenarios: {{all: {{}}}}\nmethods: [fedra]\n{swept}")
    (tmp_path / "idea.py").write_text("")
    cell = tmp_path / "results/mine/hard-own-0-0123456789ab"
    cell.mkdir(parents=True)
    (cell / "manifest.json").write_text("{}")
    entry = {"scenario": "hard", "method": "own", "variant": "rank=4", "seed": 0, "cell": cell.name}
    (cell.parent / "index.json").write_text(json.dumps({"entries": [entry]}))
    monkeypatch.chdir(tmp_path)
    assert registry.catalogue
    return tmp_path


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("ru", ["run"]),
        ("run --sce", ["--scenario"]),
        ("run quick", ["quickstart"]),
        ("run m", ["mine.yaml"]),
        ("run elsewhere/m", ["<file>"]),
        ("suites show tuned/f", ["tuned/feature_label_skew", "tuned/feature_skew", "tuned/field"]),
        ("run mine.yaml --scenario ", ["hard", "easy"]),
        ("run mine.yaml --jobs 2 --method o", ["own"]),
        ("run --method ow mine.yaml --scenario h", ["hard"]),
        ("plan quickstart --method incl", ["inclusivefl"]),
        ("plan swept.yaml --variant *tr", ["*train.rounds=1*", "*train.rounds=2*"]),
        ("run swept.yaml --variant *ba", ["*backbone=micro_mixer(pretrained=false)*"]),
        ("run broken.yaml --method fedr", []),
        ("run quickstart --data stro", ["strokes6"]),
        ("run quickstart --plugin ", ["<file>"]),
        ("run quickstart --results ", ["<dir>"]),
        ("compare --scenario h", ["hard"]),
        ("compare results/mine --method ", ["own"]),
        ("plot curves --variant ", ["rank=4"]),
        ("compare --baseline o", ["own"]),
        ("reproduce results/mine --method o", ["own"]),
        ("compare nowhere --metric acc", ["accuracy"]),
        ("compare ", ["<dir>"]),
        ("export results/mine/h", ["results/mine/hard-own-0-0123456789ab"]),
        ("export results/m", ["<dir>"]),
        ("plugins show inclus", ["inclusivefl"]),
        ("plugins check id", ["idea.py"]),
        ("plugins check vp", ["vpt"]),
        ("data check fash", ["fashion_mnist"]),
        ("backbones micro_v", ["micro_vit"]),
        ("completion --shell z", ["zsh"]),
        ("run mine.yaml --scenario=h", ["hard"]),
        ("run mine.yaml --method=own --scenario=", ["hard", "easy"]),
    ],
)
def test_names_are_offered(line, values, study):
    assert offered(line) == values


def test_what_the_table_speaks_of_is_there():
    there = set()
    for path, context in walk():
        names = {parameter.name for parameter in context.command.params}
        there |= names | {f"{' '.join(path)} {name}" for name in names}
    assert set(TABLE) <= there


def test_plugins_are_offered_before_anything_is_known_of_them(study, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(study / "empty"))
    assert "inclusivefl" in offered("plugins show ")


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("run ", "quickstart"),
        ("run extreme_hetero --scenario ", "dynamic"),
        ("run quickstart --method ", "inclusivefl"),
        ("plugins show ", "fedra"),
        (f"export {REFERENCE}/quickstart/skew-fedra", "skew-fedra-0-"),
    ],
)
def test_an_answer_takes_no_longer_than_a_key_press_may(line, some, program, registry):
    assert registry.catalogue
    words = {"COMP_WORDS": f"fedbench {line}", "COMP_CWORD": str(len(line.split(" ")))}
    asked = {**environment(), **words, "_FEDBENCH_COMPLETE": "bash_complete"}
    taken = []
    while len(taken) < 3 and min(taken, default=1) >= SECONDS:  # other processes may have had the caches
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([program], env=asked, capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert some in done.stdout and not done.stderr
    assert min(taken) < SECONDS


@pytest.mark.parametrize(
    ("shell", "start", "script"),
    [
        ("bash", ".bashrc", ".local/share/fedbench/completion.bash"),
        ("zsh", ".zshrc", ".local/share/fedbench/completion.zsh"),
        ("fish", None, ".config/fish/completions/fedbench.fish"),
    ],
)
def test_one_command_sets_it_up_and_a_second_changes_nothing(shell, start, script, home, monkeypatch):
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    if start:
        (home / start).write_text("alias l='ls'")
        (home / start).chmod(0o600)
    done = fedbench("completion", "--install", cwd=home)
    assert done.exit_code == 0, done.output
    files = {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    assert {file.relative_to(home).as_posix() for file in files} == {script, *filter(None, [start])}
    assert all(f"{file}: written" in done.output for file in files)
    assert b"_FEDBENCH_COMPLETE" in files[home / script]
    if start:
        assert files[home / start].startswith(b"alias l='ls'\n# >>> fedbench completion >>>\n")
        assert (home / start).stat().st_mode & 0o777 == 0o600
    again = fedbench("completion", "--install", cwd=home)
    assert "written" not in again.output
    assert files == {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}
    assert fedbench("completion", "--print", cwd=home).output.encode() == files[home / script]


def test_what_was_set_up_elsewhere_is_replaced_and_a_link_stays_one(home, tmp_path, monkeypatch):
    (tmp_path / "dots").write_text("# >>> fedbench completion >>>\n. /gone\n# <<< fedbench completion <<<\nlast=1\n")
    (home / ".bashrc").symlink_to(tmp_path / "dots")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a folder"))
    fedbench("completion", "--install", "--shell", "bash", cwd=home)
    text = (tmp_path / "dots").read_text()
    assert (home / ".bashrc").is_symlink() and text.endswith("<<<\nlast=1\n") and "gone" not in text
    assert text.count(">>> fedbench") == 1 and f"'{tmp_path}/a folder/fedbench/completion.bash'" in text


@pytest.mark.parametrize(
    ("words", "shell", "told"),
    [
        ((), "/bin/tcsh", "$SHELL is tcsh; there are bash, zsh, fish"),
        (("--install", "--print"), "/bin/bash", "one of them"),
        (("--install",), "/bin/bash", "completion --print` prints the script"),
    ],
)
def test_what_cannot_be_is_told(words, shell, told, home, monkeypatch):
    monkeypatch.setenv("SHELL", shell)
    (home / ".local").write_text("a file where a folder would be")
    done = fedbench("completion", *words, cwd=home)
    assert done.exit_code == 2 and told in done.output
    assert not (home / ".bashrc").exists()
