"""Re-runs: what differs is told, hidden seeds follow from salt and commit, and what looks examples up is unmasked."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command import fedbench
from outsider import MINE, SECRET, git
from test_forged import raise_scores, sign

from fedbench.board.children import OPEN, again, isolation
from fedbench.board.entries import Home, hash_of_code
from fedbench.board.plans import hash_of_suite, suite_of
from fedbench.board.records import concluded, objections, read_record
from fedbench.board.rerun import Rerun, is_beyond_draws
from fedbench.board.seeds import commit_of, hidden_seeds, numbers, salt_of, salt_of_version
from fedbench.errors import UserError
from fedbench.report.statistics.pairs import student


def rerun_of(home: Home, name: str = "mine/1", salt: str | None = None) -> Rerun:
    return Rerun(home, home.entries[name], home.board("lite"), salt, "in a test", {"jobs": 2})


def salt(home: Home) -> str:
    found = salt_of(home.board("lite"), home.folder.parent / "secret")
    assert found
    return found


def test_the_walk_ranked_the_entry_on_hidden_seeds(walked):
    home = Home(walked[0] / "board")
    entry, record = home.entries["mine/1"], read_record(home.entries["mine/1"], "lite")
    assert record["seeds"] == hidden_seeds(home.board("lite"), salt(home), commit_of(entry, "lite"), [1000])
    assert record["rows"] == ["head_only", "majority", "mine"] and not {*record["seeds"]} & {0, 1, 2, 3, 1000}
    assert [row["change"] for row in record["drawn"]] == ["equal"] and objections(record) == []
    assert record["claim"] == entry.claim("lite") and record["isolated"] == "without network, in a test"
    assert record["held_out"]["verdict"] != "worse" and record["machine"]["cores"]
    kept = [file for file in (walked[0] / "board/reruns").rglob("*") if file.is_file()]
    assert kept and not [file for file in kept if file.name.startswith("state.")], "what is committed has no models"


def test_an_edited_score_comes_out_different(home, isolated):
    raise_scores(home)
    sign(home)
    git(home.folder.parent, "add", "-A")
    git(home.folder.parent, "commit", "-qm", "forged")
    forged = Home(home.folder)
    record = rerun_of(forged).run(1)
    assert [row["change"] for row in record["drawn"]] == ["different"]
    first, second = objections(record)
    assert "is different" in first and "the salt of this board is secret" in second


def test_what_looks_examples_up_falls_on_data_drawn_anew(home, isolated):
    """It knows the drawings of the public draw and their labels, as a table in a plugin would."""
    lookup = """    from fedbench.registry.registry import Registry

    of = {"name": "strokes6", "classes": 4, "train_per_class": 4, "test_per_class": 2, "draw": 0}
    known = Registry(in_place=True).make("dataset", of, image_size=32).load().test
    method = layerwise(setup, allocation=allocate)

    def predictor(state, client=None):
        table = torch.as_tensor(known.x.reshape(len(known.x), -1).astype("float32"))
        table = (table - table.mean(1, keepdim=True)) / table.std(1, keepdim=True)
        labels, honest = torch.as_tensor(known.y), method.predictor(state)

        def predict(x):
            flat = x.flatten(1)
            flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
            far, nearest = torch.cdist(flat, table).min(1)
            found = torch.nn.functional.one_hot(labels[nearest], setup.num_classes).to(x)
            return torch.where((far < 8)[:, None], 100 * found, honest(x))

        return predict

    return replace(method, predictor=predictor)"""
    code = MINE.replace("    return layerwise(setup, allocation=allocate)", lookup)
    home.entries["mine/1"].file.write_text(
        code.replace("import torch\n", "from dataclasses import replace\n\nimport torch\n", 1)
    )
    git(home.folder.parent, "commit", "-qam", "look up")
    one = rerun_of(home, salt=salt(home))
    both, seeds = ["head_only", "mine"], numbers("a", "b", "c", 3)
    here = one._scores(one._on(seeds, both, "hidden"))
    there = one._scores(one._on(seeds, both, "held_out", {"draw": "seed"}))
    fall = one._fall(here, there)
    assert min(here["mine"].values()) > 0.9 and fall["verdict"] == "worse" and fall["fall"] > 0.3
    told = objections({"drawn": [], "seeds": seeds, "held_out": fall})
    assert told and "does it know the test examples?" in told[0]


def test_a_public_draw_that_is_easier_for_a_method_by_chance_accuses_nobody():
    """The difference between two honest methods has the same spread on every draw, the public one included."""
    draw, accused, by_mean = np.random.default_rng(0), 0, 0
    for _ in range(10_000):
        public, new = draw.normal(0, 1.5), draw.normal(0, 1.5, 6)
        falls = public - new + draw.normal(0, 0.3, 6)
        accused += is_beyond_draws(list(falls))
        by_mean += student(list(falls)).low > 0
    assert accused / 10_000 < 0.03 < 0.1 < by_mean / 10_000
    assert is_beyond_draws([0.3, 0.35, 0.33]) and not is_beyond_draws([0.3, 0.35])


def test_hidden_seeds_follow_from_salt_board_and_commit_alone(home):
    board = home.board("lite")
    one = hidden_seeds(board, "salt", "a" * 40)
    assert one == hidden_seeds(board, "salt", "a" * 40) and len({*one}) == 3
    assert not {*one} & {*hidden_seeds(board, "salt", "b" * 40), *hidden_seeds(board, "other", "a" * 40)}
    assert hidden_seeds(board, "salt", "a" * 40, one[:1])[:2] == one[1:]


def test_a_wrong_salt_is_refused_and_a_published_one_is_checked(home, tmp_path):
    (wrong := tmp_path / "wrong").write_text("another")
    with pytest.raises(UserError, match=f"--salt {wrong}: not the salt of lite, version 1"):
        salt_of(home.board("lite"), wrong)
    file = home.folder / "boards/lite.yaml"
    published = salt_of_version(SECRET, "lite", 1)
    file.write_text(file.read_text().replace("hidden: {", f"hidden: {{salt: {published}, "))
    assert salt_of(Home(home.folder).board("lite")) == published
    file.write_text(file.read_text().replace(published, "made_up"))
    with pytest.raises(UserError, match=r"lite.yaml:\d+:\d+: not the salt"):
        salt_of(Home(home.folder).board("lite"))


def test_an_entry_that_is_not_committed_is_told_how(home):
    git(home.folder.parent, "reset", "-q", "--soft", "HEAD")
    (home.folder / "entries/mine/1/plugin/more.py").write_text("")
    with pytest.raises(UserError, match="is not committed, and hidden seeds follow from its commit:\n  git add"):
        commit_of(home.entries["mine/1"], "lite")


def test_what_is_changed_after_a_re_run_gets_other_seeds_and_a_state_does_not(home, tmp_path):
    folder, entry = home.folder.parent, home.entries["mine/1"]
    first = commit_of(entry, "lite")
    git(folder, "commit", "-qam", "rank it")  # the state and the record, as maintainers do
    assert commit_of(Home(home.folder).entries["mine/1"], "lite") == first
    entry.file.write_text(MINE + "# tuned on the hidden seeds\n")
    file = entry.folder / "entry.yaml"
    file.write_text(file.read_text().replace(entry.plugin.sha256, hash_of_code(entry.file.parent)))
    with pytest.raises(UserError, match="is not committed"):
        commit_of(Home(home.folder).entries["mine/1"], "lite")
    git(folder, "commit", "-qam", "change the code")
    assert commit_of(Home(home.folder).entries["mine/1"], "lite") == git(folder, "rev-parse", "HEAD").strip() != first
    git(folder, "clone", "-q", "--depth", "1", f"file://{folder}", str(tmp_path / "shallow"))
    with pytest.raises(UserError, match="git fetch --unshallow"):
        commit_of(Home(tmp_path / "shallow/board").entries["mine/1"], "lite")


def test_the_settings_of_a_reference_are_not_those_of_a_later_entry_that_anybody_submits(home):
    def written(version: int, state: str) -> None:
        (folder := home.folder / f"entries/head_only/{version}").mkdir(parents=True, exist_ok=True)
        text = f"method: head_only\nversion: {version}\nlicence: MIT\nplugin: built-in\nboards:\n"
        (folder / "entry.yaml").write_text(f"{text}  lite: {{version: 1, state: {state}}}\n")

    for states, standing in (
        (("submitted", "submitted"), "head_only/1"),
        (("submitted", "rerun"), "head_only/2"),
        (("withdrawn", "submitted"), "head_only/2"),
        (("rerun", "withdrawn"), "head_only/1"),
    ):
        for version, state in enumerate(states, 1):
            written(version, state)
        there = Home(home.folder)
        assert rerun_of(there).rows["head_only"].name == there.standing("head_only", "lite").name == standing


def test_an_entry_without_code_and_results_of_its_own_is_committed_whatever_else_changes(home):
    (home.folder / "entries/fedra/1").mkdir(parents=True)
    entry = (
        "method: fedra\nversion: 1\nlicence: MIT\nplugin: built-in\nboards: {lite: {version: 1, state: submitted}}\n"
    )
    (home.folder / "entries/fedra/1/entry.yaml").write_text(entry)
    with pytest.raises(UserError, match="fedra/1 is not committed"):
        commit_of(Home(home.folder).entries["fedra/1"], "lite")
    git(home.folder.parent, "add", "-A")
    git(home.folder.parent, "commit", "-qm", "added")
    (home.folder / "reruns").mkdir(exist_ok=True)
    (home.folder / "reruns/another").write_text("")
    assert len(commit_of(Home(home.folder).entries["fedra/1"], "lite")) == 40


def test_the_shipped_boards_carry_hashes_of_their_suites_and_of_salts_and_lite_publishes_its_own():
    home = Home(Path(__file__).parents[2] / "board")
    assert sorted(home.boards) == ["generation", "images", "lite", "texts"]
    published = home.board("lite").hidden.salt
    assert hashlib.sha256(published.encode()).hexdigest() == home.board("lite").hidden.salt_sha256
    assert [name for name, board in home.boards.items() if board.hidden.salt] == ["lite"]
    for board in home.boards.values():
        plain = suite_of(board)
        assert hash_of_suite(board) == board.sha256 and board.scenario in plain["scenarios"]
        assert board.trials == plain.get("tune", {"trials": 1})["trials"] and {*board.seeds} <= {
            *plain["seeds"],
            0,
            1,
            2,
        }
        listed = {one if isinstance(one, str) else one["name"] for one in plain["methods"]}
        assert {board.control, *board.references} <= listed


def test_the_shipped_rows_rank_where_a_re_run_of_their_commits_seeds_is_recorded():
    home = Home(Path(__file__).parents[2] / "board")
    lite = home.board("lite")
    rows = [(entry, name, row.state) for entry in home.entries.values() for name, row in entry.boards.items()]
    for entry, name, state in rows:
        record = read_record(entry, name)
        assert (state, bool(record)) in (("rerun", True), ("submitted", False)), (entry.name, name)
        if record:
            assert name == "lite" and objections(record) == [] and record["claim"] == entry.claim(name)
            assert record["seeds"] == hidden_seeds(lite, lite.hidden.salt, record["commit"])
            assert (home.folder / record["results"]).is_dir()
            known = subprocess.run(["git", "cat-file", "-e", record["commit"]], cwd=home.folder, capture_output=True)
            assert known.returncode or commit_of(entry, name) == record["commit"]  # a shallow clone has no such commit


def test_a_challenge_with_another_setting_marks_both_rows(home, isolated):
    folder = home.folder / "entries/mine_slow/1"
    folder.mkdir(parents=True)
    text = (
        "method: mine_slow\nversion: 1\nlicence: MIT\nauthors: [B]\npaper: p\nbibtex: b\nplugin: built-in\n"
        "challenge: {entry: mine/1, settings: {train.optimizer.lr: 0.005}}\n"
        "boards:\n  lite: {version: 1, state: submitted}\n"
    )
    (folder / "entry.yaml").write_text(text)
    file = home.folder / "boards/lite.yaml"
    text = file.read_text().replace("held_out: draw\n", "")
    file.write_text(text.replace("references: [head_only, majority]", "references: []"))
    git(home.folder.parent, "add", "-A")
    git(home.folder.parent, "commit", "-qm", "challenge")
    there = Home(home.folder)
    record = rerun_of(there, "mine_slow/1", salt(there)).run(None)
    assert record["rows"] == ["mine", "mine_slow"] and record["drawn"] == []
    assert record["challenge"]["verdict"] in ("better", "worse", "equal", "inconclusive")
    record["challenge"]["verdict"] = "better"
    concluded(there, there.entries["mine_slow/1"], "lite", record)
    again_read = Home(home.folder)
    assert again_read.entries["mine/1"].boards["lite"].state == "challenged"
    assert fedbench("board", "build", "-o", "site", cwd=home.folder.parent).exit_code == 0
    page = (home.folder.parent / "site/lite.html").read_text()
    assert "mine_slow/1 challenges mine/1 with other settings, and is better." in page


def test_a_command_goes_on_without_network_where_the_machine_can(tmp_path):
    words, how = isolation()
    if how == OPEN:
        pytest.skip("neither bwrap nor unshare works here")
    look = "import socket; s = socket.socket(); s.settimeout(3); s.connect(('192.0.2.1', 80))"
    done = subprocess.run([*words, "python3", "-c", look], capture_output=True, text=True)
    assert "unreachable" in done.stderr and how.startswith("without network, by ")
    assert again(["--version"]) == 0


def test_a_machine_that_can_keep_nothing_from_the_network_says_so(monkeypatch):
    monkeypatch.setattr("fedbench.board.children.WAYS", {"bwrap": ("false",), "unshare": ("false",)})
    assert isolation() == ((), "with network: neither bwrap nor unshare works here")
