"""A cell's manifest: written, read back, and refused where it is not as fedbench writes it."""

from __future__ import annotations

import pytest
from samples import BARE, rewrite

from fedbench.errors import UserError
from fedbench.results import read_manifest, write_manifest


def test_manifest_comes_back_with_its_version(tmp_path):
    write_manifest(tmp_path, {**BARE, "status": "failed", "reason": "Umlaut: \u00e4"})
    assert read_manifest(tmp_path) == {
        "result_version": 2,
        **BARE,
        "status": "failed",
        "reason": "Umlaut: \u00e4",
    }
    assert read_manifest(tmp_path / "other") is None


def test_unknown_status_and_nan_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'done' is not one of running"):
        write_manifest(tmp_path, {"status": "done", "config": {}})
    with pytest.raises(ValueError, match="JSON"):
        write_manifest(tmp_path, {"status": "finished", "config": {}, "seconds": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": "done"}, {"status": []}, {"config": 3}, {"reason": 3}, {"seconds": "long"}, {"seconds": 1e999},
        {"config__backbone": "vit"}, {"config__backbone__name": 3}, {"config__train__rounds": "many"},
        {"config__capacities": {"by_client": [1, "2"]}}, {"config__capacities": {"uniform": 3}}, {"config__seed": None},
        {"versions": []}, {"fingerprints": {"data": 3}}, {"files": []}, {"files": {"eval.parquet": 3}},
        {"files": {"eval.parquet": {"size": 1}}}, {"files": {"eval.parquet": {"size": "1", "sha256": ""}}},
        {"files": {"../../precious": {"size": 1, "sha256": ""}}}, {"files": {"/etc/fstab": {"size": 1, "sha256": ""}}},
    ],
)  # fmt: skip
def test_a_manifest_of_other_types_is_refused(one_cell, change):
    rewrite(one_cell / "manifest.json", **change)
    with pytest.raises(UserError, match="manifest.json: not (a manifest of fedbench|readable)"):
        read_manifest(one_cell)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "recursion"),
        ('{"a":' * 150 + "1" + "}" * 150, "deeper than 100"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": NaN}', "NaN is no JSON"),
        ('{"a": "\\ud800"}', "surrogates"),
        ("3", "not a file of fedbench"),
    ],
)
def test_json_that_python_stumbles_over_is_refused(one_cell, text, told):
    (one_cell / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=told):
        read_manifest(one_cell)
