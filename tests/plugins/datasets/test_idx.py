"""The IDX format: what is written is read, and whatever else there is ends as a UserError or as what it says."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import idx as written_out

from fedbench.errors import UserError
from fedbench_plugins.datasets import fashion_mnist


@pytest.mark.parametrize("shape", [(7,), (2, 3), (2, 3, 4), (1, 2, 1, 2)])
def test_values_come_back_in_their_shape(shape):
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    assert fashion_mnist.assembled_idx(values) == written_out(values)
    assert np.array_equal(fashion_mnist.parse_idx(fashion_mnist.assembled_idx(values), "it"), values)


@given(st.binary(max_size=4), st.lists(st.integers(0, 2**32 - 1), max_size=5), st.binary(max_size=30))
def test_any_header_over_any_values_is_read_as_it_says_or_refused(start, sides, values):
    data = start + b"".join(side.to_bytes(4, "big") for side in sides) + values
    try:
        array = fashion_mnist.parse_idx(data, "it")
    except UserError as error:
        assert str(error).startswith("it ")
        return
    assert array.tobytes() == data[4 + 4 * array.ndim :]


def test_header_cut_short_is_told():
    with pytest.raises(UserError, match="it ends within its header"):
        fashion_mnist.parse_idx(b"\0\0\x08\x03\0\0\0\x01", "it")


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_behind_a_magic_are_unpacked_to_their_size_or_refused(tmp_path_factory, content, packed):
    file = tmp_path_factory.mktemp("idx") / "file"
    file.write_bytes((b"\x1f\x8b\x08\0" if packed else b"") + content)
    try:
        assert len(fashion_mnist.unpacked_idx(file, 20)) == 20
    except UserError as error:
        assert str(file) in str(error)


def test_no_more_is_unpacked_than_there_should_be(tmp_path, monkeypatch):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(10**6)))
    most, read = [], gzip.GzipFile.read

    def counted(self, size=-1):
        most.append(size)
        return read(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(UserError, match="holds more than 1,000 bytes once unpacked, and should hold 1,000"):
        fashion_mnist.unpacked_idx(tmp_path / "bomb.gz", 1000)
    assert most == [1001]


def test_file_that_cannot_be_opened_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot read .*none"):
        fashion_mnist.unpacked_idx(tmp_path / "none", 1)
