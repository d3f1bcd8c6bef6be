"""fedbench schema --install: editors know the suites of a folder, and nothing else there is touched."""

import json

import pytest
from command import TINY, fedbench

LINE = "# yaml-language-server: $schema=suite.schema.json\n"
SUITE = "suite: mine\nscenarios: {a: {}}\nmethods: [fedra]\n"


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        (SUITE, LINE + SUITE),
        (f"# fedbench run mine.yaml\n# Why.\n{SUITE}", f"# fedbench run mine.yaml\n{LINE}# Why.\n{SUITE}"),
        (f"# Why.\n{SUITE}", f"{LINE}# Why.\n{SUITE}"),
        (LINE + SUITE, LINE + SUITE),
        (f"# yaml-language-server: $schema=mine.json\n{SUITE}", f"# yaml-language-server: $schema=mine.json\n{SUITE}"),
        (f"\ufeff{SUITE}", f"\ufeff{LINE}{SUITE}"),
        ("other: 1\nsuites: 2\n", "other: 1\nsuites: 2\n"),
    ],
    ids=["bare", "run", "comment", "there", "another's", "mark", "no suite"],
)
def test_every_suite_names_the_schema_beside_it(text, becomes, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(text, "utf-8")
    done = fedbench("schema", "--install", ".", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    assert file.read_text("utf-8") == becomes
    assert ("mine.yaml: written" in done.output) == (text != becomes)
    again = fedbench("schema", "--install", ".", cwd=tmp_path)
    assert "written" not in again.output and "suite.schema.json: was so already" in again.output
    assert file.read_text("utf-8") == becomes


def test_the_schema_knows_a_plugin_that_is_named(tmp_path):
    fedbench("schema", "--install", tmp_path, "--plugin", TINY, cwd=tmp_path)
    names = json.loads((tmp_path / "suite.schema.json").read_text())["$defs"]["backbone_name"]["anyOf"]
    assert {"tiny", "micro_vit"} <= {name.get("const") for name in names}
    printed = fedbench("schema", "--built-in", "--plugin", TINY, cwd=tmp_path).output
    assert '"const": "micro_vit"' in printed and '"const": "tiny"' not in printed


def test_a_folder_that_is_not_there_is_told(tmp_path):
    done = fedbench("schema", "--install", "nowhere", cwd=tmp_path)
    assert done.exit_code == 2 and "there is no folder nowhere" in done.output
