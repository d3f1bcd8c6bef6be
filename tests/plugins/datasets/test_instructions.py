"""The data set `instructions`: prompts and completions from tables."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from fedbench.errors import UserError
from fedbench.types import NEXT_TOKEN
from fedbench_plugins.datasets import instructions
from fedbench_plugins.datasets.instructions import make

ROWS = [
    {"prompt": f"Question {n}?", "completion": f"Answer {n}.", "domain": "ab"[n % 2], "split": split}
    for n, split in enumerate(["train"] * 6 + ["test"] * 2)
]


def table(folder, rows):
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_columns_become_prompts_completions_domains_and_splits(tmp_path):
    dataset = make(table(tmp_path, ROWS), domain="domain", split="split")
    assert dataset.domains == ("a", "b") and dataset.task == NEXT_TOKEN
    splits = dataset.load()
    assert (len(splits.train), len(splits.test)) == (6, 2) and splits.test.choices is None
    assert splits.test.text == ["Question 6?\n", "Question 7?\n"]
    assert splits.test.completion == ["Answer 6.", "Answer 7."]
    assert splits.train.domain.tolist() == [0, 1] * 3


def test_without_splits_a_part_of_each_domain_is_drawn(tmp_path):
    file = table(tmp_path, ROWS)
    splits = make(file, domain="domain", test_fraction=0.25).load()
    assert splits.test.domain.tolist() == [0, 1]
    assert make(file, split_seed=1).fingerprint != make(file).fingerprint == make(file).fingerprint


def test_files_named_train_and_test_are_the_splits_where_there_are_no_others(tmp_path):
    for name, rows in (("train", ROWS[:6]), ("test", ROWS[6:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    splits = make(str(tmp_path)).load()
    assert splits.test.completion == ["Answer 6.", "Answer 7."] and len(splits.train) == 6
    (tmp_path / "more.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    with pytest.raises(UserError, match="named train and test, and also more.jsonl: move what is neither"):
        make(str(tmp_path))
    assert len(make(str(tmp_path), split="split").load().test) == 2
    with pytest.raises(UserError, match="nowhere does not exist"):
        make(str(tmp_path / "nowhere"))


def test_rows_for_training_need_no_choices(tmp_path):
    rows = [{**row, **({"others": ["No."]} if row["split"] == "test" else {})} for row in ROWS]
    for name in ("train", "test"):
        own = [json.dumps(row) + "\n" for row in rows if row["split"] == name]
        (tmp_path / f"{name}.jsonl").write_text("".join(own))
    splits = make(str(tmp_path), choices="others").load()
    assert splits.train.choices is None and splits.test.choices == [("No.",)] * 2
    with pytest.raises(UserError, match="'prompt' must be a list of other completions"):
        make(str(tmp_path), choices="prompt")


def test_several_columns_choices_and_what_stands_between(tmp_path):
    rows = [{**row, "context": "Read this.", "others": ["No.", "Never."]} for row in ROWS]
    splits = make(table(tmp_path, rows), prompt=["context", "prompt"], between=" ", choices="others").load()
    assert splits.test.text[0].startswith("Read this.\nQuestion ") and splits.test.text[0].endswith("? ")
    assert splits.test.choices[0] == ("No.", "Never.")


def test_chats_are_written_by_a_template(tmp_path, monkeypatch):
    chats = ((f"Hi {n}", f"Ho {n}") for n in range(9))
    rows = [{"chat": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]} for a, b in chats]
    monkeypatch.setattr(instructions, "_chat", lambda name: lambda chat: f"<user>{chat[0]['content']}<bot>")
    splits = make(table(tmp_path, rows), messages="chat", tokenizer="some").load()
    assert splits.test.text[0].startswith("<user>Hi ") and splits.test.completion[0].startswith("Ho ")
    with pytest.raises(UserError, match="say whose with `tokenizer`"):
        make(table(tmp_path, rows), messages="chat")
    with pytest.raises(UserError, match=r"jsonl:1: column 'chat' must be a list of two messages"):
        make(table(tmp_path, [{"chat": []}, *rows]), messages="chat", tokenizer="some")


def test_a_data_set_of_the_hub_by_category(monkeypatch):
    class Table(list):
        column_names = ("prompt", "completion", "domain", "split")

        def select_columns(self, columns):
            return [{column: row[column] for column in columns} for row in self]

    monkeypatch.setattr(instructions, "of_hub", lambda path, config, split: Table(ROWS))
    assert len(make(hub="somebody/prompts", domain="domain", split="split").load().train) == 6
    with pytest.raises(UserError, match=r"somebody/prompts: no column 'answer'; it has prompt"):
        make(hub="somebody/prompts", completion="answer")


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"prompt": "a", "completion": " "}], {}, r"jsonl:1: the completion is empty"),
        ([{"prompt": "a", "label": "x"}], {}, "no column 'completion', but labels: .* text_table"),
        ([{"prompt": "a", "completion": "b", "split": "dev"}], {"split": "split"}, "must be train or test, not 'dev'"),
        ([{"prompt": "a", "completion": "b"}], {}, "1 rows, and 0 of them are for testing"),
        ([{"prompt": "a", "completion": "b", "c": "x"}], {"choices": "c"}, "must be a list of other completions"),
    ],
)
def test_faults_are_one_line(tmp_path, rows, options, message):
    with pytest.raises(UserError, match=message):
        make(table(tmp_path, rows), **options)


def test_one_of_root_and_hub_is_given_and_a_template_must_be_there(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="one of the two"):
        make()
    auto = SimpleNamespace(from_pretrained=lambda name, **_: SimpleNamespace(chat_template=""))
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=auto))
    monkeypatch.setattr(instructions, "find_spec", lambda name: True)
    with pytest.raises(UserError, match="'some' has no chat template"):
        instructions._chat("some")
