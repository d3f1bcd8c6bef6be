"""The JSON Schema for editors: complete, self-contained, and of one mind with the checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedbench import scaffold
from fedbench.registry.catalogue import Catalogue
from fedbench.suite import json_schema

SHIPPED = Path(__file__).parents[2] / "suites"
SUITES = sorted(SHIPPED.rglob("*.yaml"))


def test_it_is_json_and_every_pointer_points_somewhere(catalogue):
    schema = json_schema(catalogue)
    text = json.dumps(schema)
    pointers = [part.split('"')[0] for part in text.split('"$ref": "#/$defs/')[1:]]
    assert pointers and set(pointers) <= schema["$defs"].keys()
    assert "x-component" not in text


def test_it_knows_the_installed_components_and_their_options(catalogue):
    schema = json_schema(catalogue)
    names = schema["$defs"]["method_name"]["anyOf"]
    assert {"const": "fedra", "description": "about fedra"} in names
    lora = next(
        case
        for case in schema["$defs"]["adapter_options"]["allOf"]
        if case["if"]["properties"]["name"]["const"] == "lora"
    )
    assert lora["then"]["properties"]["rank"] == {"type": "integer", "default": 8}


def test_it_describes_every_key_of_a_suite(catalogue):
    schema = json_schema(catalogue)
    assert schema["required"] == ["suite", "scenarios", "methods"]
    assert schema["$defs"]["Settings"]["properties"].keys() >= {"backbone", "adapter", "data", "capacities", "train"}


def test_a_shipped_suite_names_the_shipped_schema():
    for path in SUITES:
        (named,) = [line for line in path.read_text("utf-8").splitlines() if line.startswith(scaffold.LINE)]
        assert (path.parent / named.removeprefix(scaffold.LINE)).samefile(SHIPPED / scaffold.SCHEMA), path


def test_the_shipped_schema_is_that_of_what_comes_with_fedbench(registry):
    own = Catalogue()
    own.add(component for component in registry.catalogue if component.package == "fedbench")
    written = "`fedbench schema --built-in > suites/suite.schema.json` writes it anew"
    assert scaffold.shipped_schema().read_bytes() == scaffold.dumped(json_schema(own)), written


@pytest.fixture(scope="module")
def validator(registry):
    return pytest.importorskip("jsonschema").Draft202012Validator(json_schema(registry.catalogue))


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_an_independent_validator_accepts_the_shipped_suites(validator, path):
    from ruamel.yaml import YAML

    validator.validate(YAML(typ="safe", pure=True).load(path))


@pytest.mark.parametrize(
    ("expected", "fine"),
    [
        ([], True),
        ({"file": "x.csv", "paper": "FedRA"}, True),
        ({"file": "x.csv"}, False),
        ([{"dataset": "a", "backbone": "b", "method": "c", "metric": "d", "value_percent": 1}], True),
        ([{"dataset": "a"}], False),
    ],
)
def test_numbers_of_a_paper_are_rows_or_a_file(catalogue, expected, fine):
    jsonschema = pytest.importorskip("jsonschema")
    suite = {"suite": "s", "scenarios": {"a": {}}, "methods": ["fedra"], "expected": expected}
    assert jsonschema.Draft202012Validator(json_schema(catalogue)).is_valid(suite) == fine
