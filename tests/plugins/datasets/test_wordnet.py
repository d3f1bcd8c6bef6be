"""The data set `wordnet`, from lines as WordNet has them and from a package as Debian packs one."""

from __future__ import annotations

import io
import tarfile

import pytest

from fedbench.errors import DataMissing, UserError
from fedbench.types import NEXT_TOKEN
from fedbench_plugins.datasets import wordnet
from fedbench_plugins.datasets.wordnet import Entry, make, members, parsed, prepare

HEADER = "  1 This software and database is being provided to you, the LICENSEE, by made-up people\n"


def line(number, word, gloss, file=5):
    return f"{number:08} {file:02} n 01 {word} 0 001 @ 00001740 n 0000 | {gloss}  \n"


@pytest.fixture
def root(tmp_path):
    """Forty animals and twelve artifacts."""
    animals = [line(n, f"beast_{n}", f'a beast of kind {n}; "he saw a beast"') for n in range(40)]
    things = [line(100 + n, f"thing{n}", f"thing {n}; of little use", 6) for n in range(12)]
    again = [line(200, "copy", "a beast of kind 1"), line(201, "example", '"only an example"')]
    (tmp_path / "data.noun").write_text(HEADER + "".join([*animals, *things, *again]))
    return tmp_path


def test_a_line_is_a_word_and_its_definition_without_examples():
    assert parsed(line(3, "sea_lion", 'a seal; of the sea; "the sea lion barked"')) == (
        "noun.animal",
        Entry("sea lion", "a seal; of the sea"),
    )
    assert parsed(line(3, "ready(p)", "prepared", 0)) == ("adj.all", Entry("ready", "prepared"))
    assert len(wordnet.FILES) == 45 and wordnet.FILES[44] == "adj.ppl" and wordnet.FILES[29] == "verb.body"


def test_every_file_is_a_domain_with_different_definitions_of_its_own(root):
    files = ["noun.animal", "noun.artifact"]
    dataset = make(str(root), files, train_per_file=20, test_per_file=5)
    assert dataset.domains == tuple(files) and dataset.task == NEXT_TOKEN and dataset.texts
    splits = dataset.load()
    assert [int((splits.train.domain == d).sum()) for d in (0, 1)] == [20, 7]
    assert [int((splits.test.domain == d).sum()) for d in (0, 1)] == [5, 5]
    everything = [*splits.train.completion, *splits.test.completion]
    assert len(set(everything)) == len(everything) and all(text.startswith(" ") for text in everything)
    assert splits.train.text[0].endswith(":") and splits.train.text[0].startswith("beast ")
    for half in (splits.train, splits.test):
        for i, others in enumerate(half.choices):
            assert len(others) == 3 and half.completion[i] not in others
            assert {half.domain[half.completion.index(other)] for other in others} == {half.domain[i]}


def test_another_draw_deals_others_and_has_another_fingerprint(root):
    one, other = (make(str(root), ["noun.animal"], draw=draw) for draw in (0, 1))
    assert one.fingerprint != other.fingerprint and one.fingerprint == make(str(root), ["noun.animal"]).fingerprint
    assert one.load().test.completion != other.load().test.completion


def test_what_cannot_be_read_is_one_line(root, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"no lexicographer file 'noun.animals'.*noun.animal"):
        make(str(root), ["noun.animals"])
    with pytest.raises(UserError, match=r"noun.plant has 0 definitions"):
        make(str(root), ["noun.plant"])
    with pytest.raises(UserError, match=r"cannot read .*data.verb.* WordNet 3.x"):
        make(str(root), ["verb.body"])
    (root / "data.noun").write_text("nonsense\n")
    with pytest.raises(UserError, match=r"data.noun:1: no line of WordNet's data files: it has no gloss"):
        make(str(root), ["noun.animal"])
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "none"))
    with pytest.raises(DataMissing, match="apt-get download wordnet-base"):
        make()


def packed(root):
    """The file as a package of Debian: an archive of `ar` with one of `tar` in it."""
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as tar:
        for part in wordnet.PARTS:
            content = (root / "data.noun").read_bytes() if part == "noun" else HEADER.encode()
            member = tarfile.TarInfo(f"./usr/share/wordnet/data.{part}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    made = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), ("data.tar.xz", inner.getvalue())):
        made += f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        made += b"\n" * (len(content) % 2)
    return made


def test_a_package_is_unpacked(root, tmp_path):
    deb = tmp_path / wordnet.DEB
    deb.write_bytes(packed(root))
    assert [name for name, _ in members(deb.read_bytes())] == ["debian-binary", "control.tar.xz", "data.tar.xz"]
    (out := tmp_path / "out").mkdir()
    assert prepare({wordnet.DEB: deb}, out) == {"note": "WordNet 3.0"}
    assert (out / "data.noun").read_text() == (root / "data.noun").read_text()
    assert sorted(file.name for file in out.iterdir()) == sorted(f"data.{part}" for part in wordnet.PARTS)
