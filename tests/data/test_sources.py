"""What is there of a data set, and what people are told of the rest."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fedbench.data import DataPart, DataSource, data_dir, root_of
from fedbench.errors import UserError

SOURCE = DataSource(
    page="https://example.org",
    parts=(
        DataPart(("one/a.txt", "a.txt"), "one.zip", md5="0" * 32, size="3 GB"),
        DataPart(("two",), "two.zip"),
        DataPart(("lists/l.txt",), lines=7),
    ),
    licence="free",
    counts={"all": (3, 4)},
    refused={"one.pkl": "it is a pickle"},
)


def put(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return root


def test_data_sets_lie_in_the_data_folder_or_where_one_says(monkeypatch):
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    assert data_dir() == Path("data") and root_of("cifar10") == Path("data/cifar10")
    monkeypatch.setenv("FEDBENCH_DATA", "~/sets")
    monkeypatch.setenv("HOME", "/home/me")
    assert root_of("cifar10") == Path("/home/me/sets/cifar10") and root_of("cifar10", "~/x") == Path("/home/me/x")


@pytest.mark.parametrize(
    ("names", "status"),
    [
        ([], "missing"),
        (["notes.txt"], "missing"),
        (["two/x"], "incomplete"),
        (["one.zip"], "incomplete"),
        (["one.zip", "two.zip", "lists/l.txt"], "archive only"),
        (["a.txt", "two/x", "lists/l.txt"], "ready"),
        (["one/a.txt", "two/x", "lists/l.txt", "one.zip"], "ready"),
    ],
)
def test_status_says_what_is_there(tmp_path, names, status):
    assert SOURCE.status(put(tmp_path, *names)) == status
    assert bool(SOURCE.lacks("x", tmp_path)) == (status != "ready")


def test_what_is_missing_is_told_with_the_way_to_get_it(tmp_path, monkeypatch):
    with pytest.raises(UserError) as caught:
        SOURCE.require("x", put(tmp_path, "two.zip", "one.pkl"))
    said = str(caught.value).splitlines()
    assert said == [
        f"x: 3 of 3 parts missing in {tmp_path}",
        f"  to unpack two.zip: fedbench data prepare x --root {tmp_path}",
        "  not there: one/a.txt",
        "  not there: lists/l.txt",
        "  get it: one.zip (3 GB) from https://example.org",
        "  licence: free",
        "  one.pkl is of no use: it is a pickle",
    ]
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path.parent))
    assert f"fedbench data prepare {tmp_path.name}\n" in SOURCE.lacks(tmp_path.name, tmp_path)


def test_source_survives_json():
    assert DataSource.from_json(json.loads(json.dumps(asdict(SOURCE)))) == SOURCE
