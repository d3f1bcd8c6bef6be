"""Forged entries: each is refused, and the fault is named with its place."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command import loosen
from outsider import MINE, SECRET, SUITE, suite_hash

from fedbench.board import plans
from fedbench.board.checks import Check
from fedbench.board.entries import Home, found_in, hash_of_code, hash_of_rows, named_rows, read_entry
from fedbench.board.seeds import commit_of, hidden_seeds, salt_of_version
from fedbench.errors import UserError
from fedbench.results import read_manifest, write_manifest
from fedbench.results.files import described
from fedbench.results.index import change_index
from fedbench.results.pack import pack
from fedbench.results.packed_tables import folder_of
from fedbench.results.tuning import contests
from fedbench.suite.yaml import Problems


def results_of(home: Home):
    return home.folder / "entries/mine/1/results/lite/tiny_board"


def faults(home: Home, labels: bool = False) -> dict[str, str]:
    """What the check of `mine` finds, by rule; each with its file, line and column."""
    entry = Home(home.folder).entries["mine/1"]
    check = Check(Home(home.folder), entry, [str(entry.file)], lambda names: [("ok", "method mine", "")])
    check.blind = labels
    found = check.faults()
    assert all(fault.mark.line and fault.mark.column for fault in found)
    return {rule: message for rule, _, message in found}


def edit(home: Home, **changes: str) -> None:
    file = home.folder / "entries/mine/1/entry.yaml"
    text = file.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    file.write_text(text)


def sign(home: Home) -> None:
    """Put the hashes of what is there now into the entry, as a forger would."""
    file = home.folder / "entries/mine/1/entry.yaml"
    entry = read_entry(file, Problems())
    own = named_rows(found_in(results_of(home))[0], "mine", home.board("lite"), "")
    text = file.read_text().replace(entry.boards["lite"].sha256, hash_of_rows([one for one in own if one.manifest]))
    text = text.replace("state: rerun", "state: submitted")
    file.write_text(text.replace(entry.plugin.sha256, hash_of_code(entry.file.parent)))


def change_entries(home: Home, change) -> None:
    change_index(results_of(home), "tiny_board", lambda index: replace(index, entries=change(index.entries)))
    sign(home)


def test_the_entry_is_accepted_as_it_is(home):
    assert faults(home) == {}


def test_an_edited_score_is_refused_by_the_checksum(home):
    (table,) = results_of(home).glob("eval-*.parquet")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    assert "edited" in faults(home)["hash"]


def raise_scores(home: Home) -> None:
    """Edit every score and seal the tables again, so that no checksum tells."""
    import pyarrow.parquet as parquet

    folder = results_of(home)
    loosen(folder)
    for one in found_in(folder)[0]:
        if one.entry.candidate is None and one.entry.method == "mine":
            place = folder_of(folder, one.entry.cell)
            table = parquet.read_table(place / "eval.parquet")
            at = table.column_names.index("value")
            import pyarrow.compute as compute

            raised = compute.min_element_wise(compute.add(table["value"], 0.2), 1.0)
            parquet.write_table(table.set_column(at, table.schema.field(at), raised), place / "eval.parquet")
            write_manifest(place, {**read_manifest(place), "files": described(place)})
    pack(folder)


def test_edited_scores_under_new_checksums_have_another_hash(home):
    raise_scores(home)
    assert "these results have the hash" in faults(home)["hash"]
    sign(home)
    assert faults(home) == {}  # which only a re-run tells, see test_hidden_seeds.py


def test_a_missing_candidate_is_refused(home):
    change_entries(home, lambda entries: [e for e in entries if e.candidate != 1])
    assert "candidate 1 is missing: every method tries all 2" in faults(home)["tuning"]


def test_another_seed_is_refused(home):
    change_entries(home, lambda entries: [replace(e, seed=7) if e.seed == 2 else e for e in entries])
    found = faults(home)["seeds"]
    assert "seed 2 has no finished result" in found or "seed 7 is not one of the board's" in found


def test_another_suite_is_refused(home):
    other = SUITE.replace("rounds: 2", "rounds: 3")
    file = home.folder / "boards/lite.yaml"
    suite = home.folder.parent / "other.yaml"
    suite.write_text(other)
    text = file.read_text().replace(home.board("lite").suite, str(suite))
    file.write_text(text)
    assert "version 1 is of another suite" in faults(home)["board"]
    file.write_text(text.replace(suite_hash(SUITE), suite_hash(other)))
    assert "train.rounds is 2 and not 3, unlike the board's suite" in faults(home)["settings"]


def test_a_loser_that_reports_was_chosen_on_test_data(home, isolated):
    board, entry = home.board("lite"), home.entries["mine/1"]
    (contest,) = [one for key, one in contests(results_of(home)).items() if key[2] == "mine"]
    loser = contest.tuning.candidates[1 - contest.winner]
    text = plans.text_of(board, [entry], values={"mine": loser})
    plans.run(board, text, ["mine"], [0, 1, 2], entry.results("lite"), plugins=[str(entry.file)], jobs=2)
    sign(home)
    told = f"candidate {1 - contest.winner} reports, and candidate {contest.winner} is the best on validation data"
    assert told in faults(home)["choice"]


def test_other_code_than_in_the_hash_is_refused(home):
    plugin = home.entries["mine/1"].file
    plugin.write_text(MINE.replace("FedRA in which", "A method in which"))
    found = faults(home)["code"]
    assert "the code has another hash" in found or "computed by other code" in found
    sign(home)
    assert "computed by other code than the entry's" in faults(home)["code"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            """    method = layerwise(setup, allocation=allocate)

    def predictor(state, client=None):
        test = setup.engine.__self__.federated.test
        seen, labels = test(torch.arange(len(test.labelled.y)).numpy())

        def predict(x):
            nearest = torch.cdist(x.flatten(1), seen.flatten(1)).argmin(1)
            return torch.nn.functional.one_hot(labels[nearest], setup.num_classes).to(x)

        return predict

    return replace(method, predictor=predictor)""",
            id="answers",
        ),
        pytest.param(
            """    method = layerwise(setup, allocation=allocate)

    def round(state, t, cohort, generator):
        labels = setup.engine.__self__.federated.test.labelled.y
        torch.manual_seed(int(labels[: len(labels) // 2].sum()))
        generator.manual_seed(int(labels[: len(labels) // 2].sum()))
        return method.round(state, t, cohort, generator)

    return replace(method, round=round)""",
            id="training",
        ),
    ],
)
def test_a_plugin_that_reads_the_labels_of_test_examples_is_refused(home, isolated, change):
    code = MINE.replace("    return layerwise(setup, allocation=allocate)", change)
    code = code.replace("import torch\n", "from dataclasses import replace\n\nimport torch\n", 1)
    home.entries["mine/1"].file.write_text(code)
    assert "depend on the labels of test examples" in faults(home, labels=True)["test labels"]


def test_an_honest_plugin_passes_the_same_test(home, isolated):
    assert "test labels" not in faults(home, labels=True)


def test_a_claimed_rank_without_a_record_is_refused(home):
    (home.folder / "entries/mine/1/rerun-lite.json").unlink()
    assert faults(home) == {"state": "rerun, but no re-run is recorded: the state of a new entry is submitted"}


def test_an_entry_that_was_edited_after_its_re_run_is_not_the_one_that_ranks(home):
    raise_scores(home)
    sign(home)
    edit(home, **{"state: submitted": "state: signed"})
    assert faults(home) == {"state": "signed, but the recorded re-run is of another state of this entry"}


def test_a_record_with_picked_seeds_is_refused_where_the_salt_is_published(home):
    file = home.folder / "boards/lite.yaml"
    salt = salt_of_version(SECRET, "lite", 1)
    file.write_text(file.read_text().replace("hidden: {", f"hidden: {{salt: {salt}, "))
    assert faults(home) == {}
    record = home.folder / "entries/mine/1/rerun-lite.json"
    true, board, commit = json.loads(record.read_text()), home.board("lite"), commit_of(home.entries["mine/1"], "lite")
    other, unwanted = "f" * 40, [1000, *true["seeds"][:2]]
    for change, told in (
        ({"seeds": [5, 6, 7]}, "its seeds do not follow from commit"),
        ({"tried": unwanted, "seeds": hidden_seeds(board, salt, commit, unwanted)}, "its seeds do not follow"),
        (
            {"commit": other, "seeds": hidden_seeds(board, salt, other, [1000])},
            "it was run again as of commit ffffffffffff",
        ),
        ({"board": "images"}, "the recorded re-run is of another state of this entry"),
        ({"commit": "x"}, "rerun-lite.json: not a record of a re-run: commit: String should match"),
        ({"drawn": [{"seed": 1}]}, "rerun-lite.json: not a record of a re-run: drawn.0.change: Field required"),
    ):
        record.write_text(json.dumps({**true, **change}))
        assert told in faults(home)["state"], change
    record.write_text(json.dumps({**true, "drawn": [{**true["drawn"][0], "change": "different"}]}))
    assert "rerun, but seed" in faults(home)["state"]


def test_ranges_of_the_board_are_not_the_entrys_to_choose(home):
    board, few = home.board("lite"), "{choice: [0.031, 0.032]}"
    for key in ("train.optimizer.lr", "methods.mine.train.optimizer.lr", "methods.fedra.fixed", "adapter.rank"):
        edit(home, **{"version: 1, state": f"version: 1, space: {{{key}: {few}}}, state"})
        with pytest.raises(UserError, match=f"space has {key}: it may only name options of the method"):
            plans.require_own_options(board, Home(home.folder).entries["mine/1"])
        edit(home, **{f"space: {{{key}: {few}}}, ": ""})
    edit(home, **{"version: 1, state": "version: 1, space: {methods.mine.fixed: {choice: [1, 2]}}, state"})
    plans.require_own_options(board, Home(home.folder).entries["mine/1"])
    edit(home, **{"methods.mine.fixed": "train.optimizer.lr"})
    entry = Home(home.folder).entries["mine/1"]
    found = Check(home, entry, entry.files, lambda names: [], blind=False).faults()
    assert any(fault.rule == "tuning" and "space has train.optimizer.lr" in fault.message for fault in found)


def test_a_challenge_that_claims_a_rank_needs_a_record_and_a_name_of_its_own(home):
    folder = home.folder / "entries/mine/2"
    folder.mkdir()
    (folder / "entry.yaml").write_text(
        "method: mine\nversion: 2\nlicence: MIT\nplugin: built-in\n"
        "challenge: {entry: mine/1, settings: {train.optimizer.lr: 0.01}}\n"
        "boards:\n  lite: {version: 1, state: rerun}\n"
    )
    there = Home(home.folder)
    found = Check(there, there.entries["mine/2"], [], lambda names: []).faults()
    assert ["no re-run is recorded" in found[0].message, found[1].message] == [
        True,
        "mine is the method that is challenged; give yours another name",
    ]


def test_all_faults_come_at_once(home):
    edit(home, **{"version: 1, state": "version: 2, state", "licence:": "license:"})
    with pytest.raises(Exception, match='entry.yaml:3:1: unknown key "license" in the entry; did you mean "licence"?'):
        faults(home)
    edit(home, **{"license:": "licence:"})
    home.entries["mine/1"].file.write_text(MINE + "\n")
    found = faults(home)
    assert "the code has another hash" in found["code"] and "lite has version 1" in found["board"]
