"""What is kept in the cache folder comes back as it was, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.data.kept import keep, kept

VALUE = {"num_layers": 12, "texts": ["é", "\ud800", "a\nb"], "nothing": None, "deep": [[[0.1]]]}


def test_a_value_comes_back(tmp_path):
    keep(tmp_path / "new" / "a.json", VALUE)
    assert kept(tmp_path / "new" / "a.json") == VALUE
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.json"]


@given(st.data())
def test_a_changed_byte_or_a_missing_end_is_noticed(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("kept") / "a.json"
    keep(file, VALUE)
    raw = file.read_bytes()
    place = data.draw(st.integers(0, len(raw) - 1))
    new = raw[:place] + bytes([raw[place] ^ 1 << data.draw(st.integers(0, 7))]) + raw[place + 1 :]
    file.write_bytes(data.draw(st.sampled_from([new, raw[:place]])))
    assert kept(file) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", "[" * 100_000, '{"sha256": "", "value": 1}'])
def test_what_keep_did_not_write_is_nothing(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert kept(tmp_path / "a.json") is None
    assert kept(tmp_path) is None and kept(tmp_path / "b.json") is None


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    (tmp_path / "file").touch()
    keep(tmp_path / "file" / "a.json", VALUE)
    (tmp_path / "b.json").mkdir()
    keep(tmp_path / "b.json", VALUE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "file"]
