"""Names in data: what is passed over, what is one name, and which folders are splits."""

from __future__ import annotations

import pytest

from fedbench.data.names import Names, is_passed_over, splits_among


def test_what_systems_and_programs_leave_behind_is_passed_over():
    for name in ("._train.csv", ".DS_Store", "~$a.csv", "__MACOSX", "@eaDir", "lost+found"):
        assert is_passed_over(name), name
    for name in ("train.csv", "a.~", "MACOSX", "_", "ea"):
        assert not is_passed_over(name), name


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train", "test"), {"train": "train", "test": "test"}),
        (("Train", "VAL"), {"train": "Train", "test": "VAL"}),
        (("train", "test", "validation"), {"train": "train", "test": "test"}),
        (("train", "valid"), {"train": "train", "test": "valid"}),
        (("train",), {}),
        (("test", "val"), {}),
        (("train", "test", "photo"), {}),
        (("train", "val", "valid"), {}),  # which of them?
        (("trains", "tests"), {}),
        ((), {}),
    ],
)
def test_folders_are_splits_where_all_are_called_so(names, splits):
    assert splits_among(names) == splits


def test_names_are_one_whatever_their_form_and_called_as_they_were_spelt_first():
    names = Names(["cafe\u0301"])
    assert names("caf\xe9") == "cafe\u0301" == names("cafe\u0301") and names("Caf\xe9") == "Caf\xe9"
    assert names("7", "007") == names("7", "7") == "7"
    (told,) = names.joined("labels")
    assert told.startswith("labels that are written in several ways and taken for one: ")
    assert told.endswith(': cafe\u0301 ("caf\xe9", "cafe\\u0301"), 7 ("007", "7")')
    assert Names()("a") == "a" and Names().joined("labels") == []
