"""What the commands print, packages with hashes, and what GitHub runs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from command import fedbench
from outsider import MINE, write_home
from ruamel.yaml import YAML

from fedbench import __version__
from fedbench.board.checks import Check, Fault
from fedbench.board.children import packages_of
from fedbench.board.entries import Home
from fedbench.board.records import concluded
from fedbench.board.starting import begin_entry
from fedbench.errors import UserError
from fedbench.suite.yaml import Mark

ROOT = Path(__file__).parents[2]


def test_mistakes_end_with_exit_code_2_and_say_what_would_be_right(tmp_path):
    folder = write_home(tmp_path)
    for words, told in (
        (["new", "nobodys"], "no method is called 'nobodys'; a method of your own is --from-plugin FILE"),
        (["new", "other", "--from-plugin", "mine.py"], "mine.py registers no method 'other'"),
        (["new", "fedra", "--board", "lit"], "no board is called 'lit'; did you mean 'lite'?"),
        (["new", "fedra", "--results", str(ROOT / "results")], "which has the board; copy it there"),
        (["check", "board/entries/x/1"], "not an entry of board; expected a folder such as board/entries/mine/1"),
        (["check", "--home", "elsewhere"], "no boards are here; work in a clone of fedbench, or name --home DIR"),
        (["check", "--board", "lit"], "no board is called 'lit'; did you mean 'lite'?"),
    ):
        result = fedbench("board", *words, cwd=folder)
        assert result.exit_code == 2 and told in result.output, result.output


def test_faults_of_a_file_have_line_and_column(tmp_path):
    folder = write_home(tmp_path)
    (entry := folder / "board/entries/mine/1").mkdir(parents=True)
    (entry / "entry.yaml").write_text(
        "method: other\nversion: 1\nlicense: MIT\nplugin: {file: a.py, sha256: xyz}\nboards: {}\n"
    )
    result = fedbench("board", "check", cwd=folder)
    assert result.exit_code == 2
    assert re.search(r'entry.yaml:3:1: unknown key "license" in the entry; did you mean "licence"\?', result.output)
    assert "entry.yaml:4:" in result.output and "a SHA-256 in hex" in result.output
    for file in ("a.py", "/plugin/a.py", "plugin/../a.py", "results/a.py"):
        text = f"method: mine\nversion: 1\nlicence: MIT\nplugin: {{file: {file}, sha256: {'a' * 64}}}\nboards: {{}}\n"
        (entry / "entry.yaml").write_text(text)
        told = fedbench("board", "check", cwd=folder).output
        assert "entry.yaml:4:16: the entry plugin.file: expected a file in plugin/, such as plugin/mine.py" in told
    (entry / "entry.yaml").unlink()
    board = folder / "board/boards/lite.yaml"
    board.write_text(board.read_text().replace("trials: 2", "trials: two"))
    assert (
        "lite.yaml:9:9: the board trials: expected a whole number of at least 1"
        in fedbench("board", "check", cwd=folder).output
    )


HEAD = "method: fedra\nversion: 1\nlicence: MIT\nplugin: built-in\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("boards:\n  images: ROW  # mine\npaper: P\n", "boards:\n  images: ROW  # mine\n  lite: NEW\npaper: P\n"),
        ("boards: {images: ROW}\n", "boards: {images: ROW, lite: NEW}\n"),
        ("boards:\n  lite:\n    version: 1\n    state: submitted\n",) * 2,
        ("boards: {}\npaper: 'P'\n", "boards:\n  lite: NEW\npaper: 'P'\n"),
    ],
)
def test_a_row_is_added_to_a_file_of_any_style_and_nothing_else_changes(tmp_path, before, after):
    there = Home(write_home(tmp_path) / "board")
    (file := there.folder / "entries/fedra/1/entry.yaml").parent.mkdir(parents=True)
    words = {
        "ROW": "{version: 1, state: withdrawn, sha256: '" + "a" * 64 + "'}",
        "NEW": "{version: 1, state: submitted}",
    }
    for word, value in words.items():
        before, after = before.replace(word, value), after.replace(word, value)
    file.write_text(HEAD + before)
    entry = begin_entry(file, "fedra", there.board("lite"), None)
    assert file.read_text() == HEAD + after
    entry.put("lite", state="rerun", sha256="1" * 64)
    row = Home(there.folder).entries["fedra/1"].boards["lite"]
    assert (row.state, row.sha256) == ("rerun", "1" * 64)


def test_a_file_with_faults_is_left_as_it_is(tmp_path):
    there = Home(write_home(tmp_path) / "board")
    (file := there.folder / "entries/fedra/1/entry.yaml").parent.mkdir(parents=True)
    for text, told in ((HEAD + "boards: [\n", "not valid YAML"), (HEAD + "boards: {}\npapers: P\n", "unknown key")):
        file.write_text(text)
        with pytest.raises(UserError, match=rf"entry.yaml:\d+:\d+: {told}"):
            begin_entry(file, "fedra", there.board("lite"), None)
        assert file.read_text() == text


def test_rows_that_do_not_stand_on_a_board_are_not_run_again(home, isolated):
    folder, file = home.folder.parent, home.folder / "entries/mine/1/entry.yaml"
    board, row = (home.folder / "boards/lite.yaml").read_text(), file.read_text()
    (home.folder / "boards/images.yaml").write_text(board.replace("board: lite", "board: images"))
    words = ("board/entries/mine/1", "--board", "images")
    for command in ("check", "rerun"):
        done = fedbench("board", command, *words, cwd=folder)
        assert done.exit_code == 2 and "mine/1 is not on images; it is on lite" in done.output
    assert fedbench("board", "check", *words[1:], cwd=folder).output == ""
    file.write_text(row.replace("state: rerun", "state: withdrawn"))
    done = fedbench("board", "rerun", words[0], cwd=folder)
    assert "mine/1 on lite: not run, as it is withdrawn or of an older version" in done.output
    concluded(home, Home(home.folder).entries["mine/1"], "lite", {"drawn": [], "seeds": [1]})
    assert "state: withdrawn" in file.read_text()
    file.write_text(row)
    (home.folder / "entries/mine/1/plugin/more.py").write_text("")
    done = fedbench("board", "rerun", words[0], cwd=folder)
    assert done.exit_code == 1 and "refused  mine/1" in done.output and "the code has another hash" in done.output


def test_a_check_is_json_with_one_verdict_or_markdown_for_a_pull_request(home, isolated, monkeypatch):
    mark = Mark("entry.yaml", 3, 7)
    monkeypatch.setattr(Check, "faults", lambda check: [Fault("code", mark, "the code has another hash")])
    words = ("board", "check", "board/entries/mine/1", "--format")
    found = json.loads(fedbench(*words, "json", cwd=home.folder.parent).stdout)
    fault = {"rule": "code", "mark": "entry.yaml:3:7", "message": "the code has another hash"}
    assert found == {"verdict": "refused", "entries": {"mine/1": [fault]}}
    told = fedbench(*words, "markdown", cwd=home.folder.parent)
    assert told.exit_code == 1
    assert told.stdout == "### mine/1 refused\n\n- `entry.yaml:3:7`: **code**: the code has another hash\n"


def wheel(folder: Path) -> Path:
    """A wheel with the method, as a stranger's package."""
    file = folder / "fedbench_topmost-1.0-py3-none-any.whl"
    info = "fedbench_topmost-1.0.dist-info"
    parts = {
        "fedbench_topmost.py": MINE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: fedbench-topmost\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[fedbench]\ntopmost = fedbench_topmost\n",
    }
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for name, text in parts.items()
    ]
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {**parts, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"}.items():
            archive.writestr(name, text)
    return file


def test_a_package_is_fetched_by_its_hash_and_found_by_the_child(tmp_path, monkeypatch):
    folder, file = write_home(tmp_path), wheel(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (entry := folder / "board/entries/mine/1").mkdir(parents=True)
    text = (
        "method: mine\nversion: 1\nlicence: MIT\nauthors: [A]\npaper: p\nbibtex: b\n"
        f"plugin: {{package: fedbench-topmost==1.0, sha256: {digest}}}\nboards: {{}}\n"
    )
    (entry / "entry.yaml").write_text(text)
    with packages_of(Home(folder / "board").entries.values()) as code:
        (found,) = [one for one in distributions(path=code) if one.metadata["Name"] == "fedbench-topmost"]
        assert [point.value for point in found.entry_points] == ["fedbench_topmost"]
        assert (Path(code[0]) / "fedbench_topmost.py").read_text() == MINE
    (entry / "entry.yaml").write_text(text.replace(digest, "ab" * 32))
    with (
        pytest.raises(UserError, match="fedbench-topmost==1.0: pip refuses"),
        packages_of(Home(folder / "board").entries.values()),
    ):
        pass


def test_the_script_of_ci_checks_what_has_changed_and_refuses_a_written_record(home, isolated, monkeypatch, tmp_path):
    """What the workflow runs, without GitHub: `fedbench` stands in the path as an installer would write it."""
    folder = home.folder.parent
    (folder / ".ci").mkdir()
    (folder / ".ci/board").write_text((ROOT / ".ci/board").read_text())
    (folder / "bin").mkdir()
    (script := folder / "bin/fedbench").write_text(
        f"#!{sys.executable}\nimport sys\n"
        "print('fedbench', *sys.argv[1:])\nsys.exit('check' in sys.argv and 'bad' in sys.argv[3])\n"
    )
    (python := folder / "bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for program in (script, python):
        program.chmod(0o755)
    path = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def git(*words: str) -> str:
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    base = git("rev-list", "--max-parents=0", "HEAD").strip()
    git("rm", "-rq", "--cached", "board/entries")
    git("commit", "-qm", "without entries")
    base = git("rev-parse", "HEAD").strip()

    def ci() -> tuple[int, str]:
        git("add", "-A")
        git("commit", "-qm", "entry", "--allow-empty")
        done = subprocess.run(["bash", ".ci/board", base, "report.md"], cwd=folder, env=path)
        return done.returncode, (folder / "report.md").read_text()

    code, told = ci()
    assert code == 1 and "maintainers run an entry again after the merge" in told
    (folder / "board/entries/mine/1/rerun-lite.json").unlink()
    shutil.rmtree(folder / "board/reruns")
    code, told = ci()
    assert code == 0 and "fedbench board check board/entries/mine/1 --format markdown" in told
    assert "fedbench board rerun board/entries/mine/1 --board lite --quiet" in told
    file = folder / "board/entries/mine/1/entry.yaml"
    file.write_text(file.read_text().replace("  lite:", "  images:") + "# no row on lite: here\n")
    code, told = ci()
    assert code == 0 and "board check" in told and "board rerun" not in told
    (folder / "board/entries/mine").rename(folder / "board/entries/bad")
    code, told = ci()
    assert code == 1 and "rerun" not in told


def test_every_action_of_a_workflow_is_pinned_by_its_commit():
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        for used in re.findall(r"uses: (.*)", file.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), f"{file.name}: {used}"
    forms = [YAML(typ="safe").load(file) for file in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))]
    assert [{"name", "description", "body"} <= form.keys() for form in forms] == [True] * 3


def test_zenodo_says_what_the_citation_says():
    cited = YAML(typ="safe").load(ROOT / "CITATION.cff")
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    assert (zenodo["title"], zenodo["version"], zenodo["license"]) == (cited["title"], __version__, cited["license"])
    assert zenodo["description"] == cited["abstract"].strip() and zenodo["keywords"] == cited["keywords"]
