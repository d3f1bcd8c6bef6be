"""Tables of texts, and rated texts of four kinds: what they make, and one clear line for what is wrong with them."""

from __future__ import annotations

import io
import json
import tarfile

import pyarrow
import pyarrow.parquet
import pytest
from command import fedbench
from layouts import vader_domains

from fedbench.data.sources import READY
from fedbench.errors import DataMissing, UserError
from fedbench_plugins.datasets import text_table

ROWS = [{"text": f"text {i}, of {i % 2}", "label": "yn"[i % 2], "domain": "ab"[i // 10]} for i in range(20)]
WAS_TESTED = ["text 8, of 0", "text 9, of 1", "text 14, of 0", "text 19, of 1"]


def table(folder, name, rows=ROWS):
    file = folder / name
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark, quote = (",", '"') if file.suffix == ".csv" else ("\t", "")
        lines = [rows[0].keys(), *(row.values() for row in rows)]
        file.write_text("".join(mark.join(f"{quote}{cell}{quote}" for cell in line) + "\n" for line in lines))
    return str(file)


def halves(dataset):
    splits = dataset.load()
    return [
        list(zip(half.text, half.y.tolist(), half.domain.tolist(), strict=True))
        for half in vars(splits).values()
        if half
    ]


def test_one_table_is_the_same_data_set_in_every_format(tmp_path):
    made = [
        text_table.make(table(tmp_path, f"t{end}"), domain="domain") for end in (".csv", ".tsv", ".jsonl", ".parquet")
    ]
    assert len({dataset.fingerprint for dataset in made}) == 1
    assert made[0].texts and made[0].classes == ("n", "y") and made[0].domains == ("a", "b")
    train, test = halves(made[0])
    assert len(test) == 4 and {one[1:] for one in test} == {(y, d) for y in (0, 1) for d in (0, 1)}
    assert sorted(train + test) == sorted(
        (row["text"], "ny".index(row["label"]), "ab".index(row["domain"])) for row in ROWS
    )


def test_the_drawn_split_depends_on_the_seed_alone_and_keeps_copies_of_a_text_together(tmp_path):
    doubled = table(tmp_path, "doubled.csv", [*ROWS, *ROWS])
    first, again, other = (text_table.make(doubled, split_seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    train, test = halves(first)
    assert len(test) == 8 and not {one[0] for one in train} & {one[0] for one in test}


def test_a_text_of_several_classes_or_domains_is_trained_on_or_tested(tmp_path):
    """As of two annotators who disagree, or of four fifths of a table that came twice."""
    both = [{**row, "label": "ny"[row["label"] == "n"]} for row in ROWS]
    moved = [{**row, "domain": "ab"[row["domain"] == "a"]} for row in ROWS[::2]]
    for more in (both, moved, [*both, *moved]):
        for seed in range(5):
            train, test = halves(
                text_table.make(table(tmp_path, "t.csv", [*ROWS, *more]), domain="domain", split_seed=seed)
            )
            assert test and not {one[0] for one in train} & {one[0] for one in test}
            assert len(train) + len(test) == len(ROWS) + len(more)
            assert {one[1:] for one in test} == {(y, d) for y in (0, 1) for d in (0, 1)}


def test_a_table_without_equal_texts_is_dealt_as_it_always_was(tmp_path):
    """Numbers of existing results depend on it."""
    test = halves(text_table.make(table(tmp_path, "t.csv"), domain="domain"))[1]
    assert [one[0] for one in test] == WAS_TESTED


def test_files_or_a_column_name_the_splits_and_two_columns_make_pairs(tmp_path):
    rows = [{"a": str(i), "b": "then", "label": i % 2, "part": "test" if i > 3 else "train"} for i in range(6)]
    by_column = text_table.make(table(tmp_path, "all.jsonl", rows), text=["a", "b"], split="part")
    (tmp_path / "two").mkdir()
    for name, own in (("train", rows[:4]), ("test", rows[4:])):
        table(tmp_path / "two", f"{name}.jsonl", own)
    by_file = text_table.make(str(tmp_path / "two"), text=["a", "b"])
    assert halves(by_column) == halves(by_file)
    assert halves(by_file)[1] == [(("4", "then"), 0, 0), (("5", "then"), 1, 0)]
    assert by_file.fingerprint == by_column.fingerprint


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("t.csv", b"", {}, "t.csv is empty"),
        ("t.csv", b"text,label\n", {}, "t.csv holds no rows"),
        ("t.csv", b"text,lable\na,b\n", {}, "t.csv:1: no column 'label'; did you mean \"lable\"?"),
        ("t.csv", b"text,label\na,b\n\xe9,b\n", {}, "t.csv:3: byte 0xe9 is not UTF-8"),
        ("t.csv", b"text,label\na,b\na\0,b\n", {}, "t.csv:3: holds a NUL byte"),
        ("t.csv", b"text,label\na,b,c\n", {}, "t.csv:2: 3 fields, and the first line has 2"),
        ("t.csv", b'text,label\n"a,b\n', {}, "t.csv:2: "),
        ("t.csv", b"text,label\na,x\nb,q\n", {"classes": ["x", "z"]}, "t.csv:3: unknown label 'q'"),
        ("t.csv", b"text,label\na,x\nb,\n", {}, "t.csv:3: column 'label' is empty"),
        (
            "t.tsv",
            b"text\tlabel\ts\na\tx\tdev\n",
            {"split": "s"},
            "t.tsv:2: column 's' must be train or test, not 'dev'",
        ),
        ("t.jsonl", b'{"text": "a", "label": 1}\n[1]\n', {}, "t.jsonl:2: a line must be one object"),
        ("t.jsonl", b'{"text": "a", "label": 1}\n{\n', {}, "t.jsonl:2: no JSON"),
        ("t.jsonl", b'{"text": null, "label": 1}\n', {}, "t.jsonl:1: column 'text' must hold text, not null"),
        ("t.jsonl", b'{"text": "a\\u0000", "label": 1}\n', {}, "t.jsonl:1: column 'text' holds a NUL byte"),
        (
            "t.jsonl",
            b'{"text": "a", "label": 1, "text": "b"}\n',
            {},
            "t.jsonl:1: no JSON: the key 'text' stands in one",
        ),
        (
            "t.jsonl",
            b'{"text": "a", "label": 1, "x": {"y": 1, "y": 1}}\n',
            {},
            "the key 'y' stands in one object twice",
        ),
        (
            "t.jsonl",
            b'{"text": "a", "label": 1}\n{"label": 2, "text": "b", "label": 1}\n',
            {},
            "t.jsonl:2: no JSON: the",
        ),
        ("t.jsonl", b'{"text": "a\\ud83d", "label": 1}\n', {}, "t.jsonl:1: column 'text' holds half a character"),
        ("t.parquet", b"PAR1", {}, "cannot read"),
        ("t.txt", b"a", {}, "is no table that is read: its name must end in .csv"),
        ("t.xlsx", b"PK", {}, "is no table that is read: save it as CSV, in UTF-8"),
        (
            "t.csv",
            "text,label\na,b\n".encode("utf-16"),
            {},
            "t.csv is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)",
        ),
        ("t.csv", b"text;label\na;b\n", {}, "t.csv:1: its columns are separated by ';'; save it with commas"),
        ("t.csv", b"text\tlabel\na\tb\n", {}, "t.csv:1: its columns are separated by tabs; call the file .tsv"),
        ("t.csv", b"text,label,label\na,b,c\n", {}, "t.csv:1: the column 'label' stands there 2 times"),
        ("t.tsv", b'"text"\t"label"\n"a"\t"b"\n', {}, 't.tsv:1: a column is called "text": a TSV has no quotes'),
        ("t.tsv", b'text\tlabel\n"a\tb"\tc\n', {}, "a TSV has no quotes, and every tab ends a field"),
        (
            "t.csv",
            b"text,label\na,x\nb,y\n",
            {},
            "no class has two different texts, and so none can be tested; is 'label'",
        ),
        ("t.csv", b"text,label\na,x\n", {"domain": "label"}, "the column 'label' is given twice, for two things"),
    ],
)
def test_a_fault_is_one_line_with_file_and_row(tmp_path, name, content, options, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as raised:
        text_table.make(str(tmp_path / name), **options)
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["Train.CSV", "test.csv"], (20, 20)),  # whatever the case
        (["train.csv"], (16, 4)),  # one file is no split
        (["a.csv", "b.csv"], (32, 8)),
    ],
)
def test_files_are_splits_where_all_are_called_so(tmp_path, names, numbers):
    for name in names:
        table(tmp_path, name.replace(".CSV", ".csv"))
        (tmp_path / name.replace(".CSV", ".csv")).rename(tmp_path / name)
    assert tuple(map(len, halves(text_table.make(str(tmp_path))))) == numbers
    assert len(halves(text_table.make(str(tmp_path / names[0])))[1]) == 4


@pytest.mark.parametrize("name", ["._train.csv", ".train.csv", "~$train.csv", "._a.parquet"])
def test_what_a_system_leaves_in_a_folder_is_no_table(tmp_path, name):
    """As a folder that came from a Mac in an archive."""
    for own in ("train.csv", "test.csv"):
        table(tmp_path, own)
    before = text_table.make(str(tmp_path)).fingerprint
    (tmp_path / name).write_bytes(b"\0\5\x16\7")
    assert text_table.make(str(tmp_path)).fingerprint == before
    for own in ("train.csv", "test.csv"):
        (tmp_path / own).unlink()
    with pytest.raises(UserError, match="holds no table"):
        text_table.make(str(tmp_path))


def test_names_that_look_the_same_are_one_and_that_is_noted(tmp_path):
    """Classes and domains, whatever their Unicode form; what was spelt first is what they are called."""
    rows = [
        {"text": str(i), "label": ("caf\xe9", "cafe\u0301", "tea")[i % 3], "where": ("m\xfcll", "mu\u0308ll")[i % 2]}
        for i in range(24)
    ]
    made = text_table.make(table(tmp_path, "t.jsonl", rows), domain="where")
    assert made.classes == ("caf\xe9", "tea") and made.domains == ("m\xfcll",)
    told = 'written in several ways and taken for one: caf\xe9 ("caf\xe9", "cafe\\u0301")'
    assert made.notes[0] == f"labels that are {told}" and made.notes[1].startswith("domains that are written in")
    for given in ("caf\xe9", "cafe\u0301"):
        chosen = text_table.make(table(tmp_path, "t.jsonl", rows), classes=[given, "tea"])
        assert chosen.classes == (given, "tea") and chosen.load().train.y.min() == 0
    alone = [{**row, "label": row["label"].replace("caf\xe9", "cafe\u0301")} for row in rows]
    assert text_table.make(table(tmp_path, "t.jsonl", alone)).classes == ("cafe\u0301", "tea")


def test_labels_that_a_reader_joins_are_named(tmp_path):
    rows = [{"text": str(i), "label": label} for i, label in enumerate([1, "1", 1.0, " 1", 2, True, "True"] * 3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = text_table.make(str(tmp_path / "t.jsonl"))
    assert made.classes == ("True", "1", "2")
    assert made.notes[0].endswith('taken for one: 1 (1, "1", 1.0, " 1"), True (true, "True")')


def test_a_file_next_to_those_of_splits_is_refused(tmp_path):
    for name in ("train.csv", "valid.csv", "test.csv"):
        table(tmp_path, name)
    with pytest.raises(UserError, match=r"has test\.csv, train\.csv and valid\.csv: call all tables train\.\* or"):
        text_table.make(str(tmp_path))


def test_what_may_be_no_fault_is_a_note(tmp_path):
    (tmp_path / "t.tsv").write_text('text\tlabel\n"a ""b"""\tx\nb\tx\n\tx\nc\tonce\n')
    assert text_table.make(str(tmp_path / "t.tsv")).notes == (
        "empty texts: 1 of 4",
        "texts in double quotes, which a TSV keeps and a CSV does not: 1 of 4",
        "classes without a test text: once",
    )
    assert text_table.make(table(tmp_path, "t.csv"), domain="domain").notes == ()


def test_a_column_called_as_an_option_is_taken_and_that_is_noted(tmp_path):
    file = table(tmp_path, "t.csv")
    named = text_table.make(file, domain="domain")
    taken = text_table.make(file)
    assert taken.fingerprint == named.fingerprint and taken.domains == ("a", "b")
    assert taken.notes == ("the column 'domain' is taken for domains (`domain: false` leaves it out)",)
    assert text_table.make(file, domain=False).domains == ("all",) and text_table.make(file, domain=False).notes == ()
    rows = [{**row, "split": "test" if i % 5 == 0 else "train"} for i, row in enumerate(ROWS)]
    assert len(halves(text_table.make(table(tmp_path, "s.csv", rows)))[1]) == 4
    assert text_table.make(table(tmp_path, "s.csv", rows), text="domain").domains == ("all",)  # it has a use already


def test_groups_stay_on_one_side_of_the_split(tmp_path):
    """As the reviews of one author do; equal texts of two authors bring these together."""
    rows = [{"text": f"text {i}", "label": "yn"[i % 2], "group": f"author {i // 4}"} for i in range(40)]
    rows += [{**rows[0], "group": "author 9"}]
    for seed in range(5):
        dataset = text_table.make(table(tmp_path, "t.jsonl", rows), split_seed=seed)
        authors = [{int(one[0].split()[1]) // 4 % 9 for one in half} for half in halves(dataset)]  # 9 goes with 0
        assert authors[1] and not authors[0] & authors[1] and len(dataset.load().test) in (8, 9)
        assert {one[1] for one in halves(dataset)[1]} == {0, 1}
        assert dataset.notes[-1] == "groups that stay together: 10"
        group = dataset.load().train.group
        assert len(group) == len(dataset.load().train) and len(set(group.tolist())) == 8
    assert dataset.load().test.group is None
    assert text_table.make(table(tmp_path, "t.jsonl", rows), group=False).load().train.group is None
    alone = [{**row, "group": "all"} for row in rows]
    with pytest.raises(UserError, match="no class has texts of two groups, and so none can be tested"):
        text_table.make(table(tmp_path, "t.jsonl", alone))
    given = [{**row, "split": ("train", "test")[i % 4 == 0]} for i, row in enumerate(rows)]
    notes = text_table.make(table(tmp_path, "t.jsonl", given)).notes
    assert notes[-1].startswith("groups that are in both training and test data: author 0, author 1, ")


def test_a_row_of_a_parquet_file_is_named_by_its_number(tmp_path):
    file = table(tmp_path, "t.parquet", [{"text": "a", "label": "x"}, {"text": None, "label": "x"}])
    with pytest.raises(UserError, match="t.parquet: row 2: column 'text' must hold text, not null"):
        text_table.make(file)


def ratings(archive):
    """The archive of the package, tiny."""
    inner, folder = io.BytesIO(), vader_domains(archive.parent / "made") / "hutto_ICWSM_2014"
    with tarfile.open(fileobj=inner, mode="w:gz") as opened:
        opened.add(folder, folder.name)
    with tarfile.open(archive, "w:gz") as opened:
        add(opened, f"vaderSentiment-3.3.2/additional_resources/{text_table.ARCHIVE}", inner.getvalue())


def add(opened, name, content):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    opened.addfile(entry, io.BytesIO(content))


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "vader_domains"


def test_ratings_are_taken_out_of_the_package_and_cut_into_three_classes(tmp_path, data):
    ratings(tmp_path / "sdist.tar.gz")
    missing = fedbench("data", "check", "vader_domains", cwd=tmp_path)
    assert missing.exit_code == 2 and "--from vaderSentiment-3.3.2.tar.gz" in " ".join(missing.output.split())
    wrong = fedbench("data", "prepare", "vader_domains", "--from", "sdist.tar.gz", cwd=tmp_path)
    assert wrong.exit_code == 2 and "the official one is 6a09f879" in wrong.output
    done = fedbench("data", "prepare", "vader_domains", "--unverified", cwd=tmp_path)
    assert "24 training        6 test texts" in done.output
    assert text_table.VADER.status(data) == READY
    dataset = text_table.vader()
    train, test = halves(dataset)
    assert dataset.classes == ("negative", "neutral", "positive") and dataset.domains == tuple(text_table.KINDS)
    assert train[:3] == [("tweets 0 0", 0, 0), ("tweets 0 1", 1, 0), ("tweets 0 2", 2, 0)] or test[0][2] == 0
    documents = [{one[0].rpartition(" ")[0] for one in half} for half in (train, test)]
    assert len(documents[0]) == 32 and len(documents[1]) == 8 and not documents[0] & documents[1]


def test_a_broken_line_of_ratings_is_named(data):
    with pytest.raises(DataMissing, match="pip download"):
        text_table.vader()
    data.mkdir(parents=True)
    for kind in text_table.KINDS.values():
        (data / f"{kind}_GroundTruth.txt").write_bytes(b"1\t0.5\ta\n2\thalf\tb\n")
    with pytest.raises(UserError, match="tweets_GroundTruth.txt:2: expected number, rating and text"):
        text_table.vader()


def test_an_archive_without_the_ratings_is_refused(tmp_path, data):
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as opened:
        add(opened, "other/file", b"1")
    for name, archive, message in (
        ("vader_domains", "other.tar.gz", f"other.tar.gz does not hold {text_table.ARCHIVE}"),
        ("vader_domains", "none.tar.gz", "cannot unpack none.tar.gz"),
        ("strokes6", "other.tar.gz", "strokes6 has no archives"),
    ):
        refused = fedbench("data", "prepare", name, "--from", archive, cwd=tmp_path)
        assert refused.exit_code == 2 and message in refused.output
