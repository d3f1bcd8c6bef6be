"""fedbench schema: editors know what suites may say."""

import json

from command import TINY, fedbench


def names_of(printed):
    return {name.get("const") for name in json.loads(printed.stdout)["$defs"]["backbone_name"]["anyOf"]}


def test_the_schema_knows_a_plugin_that_is_named(tmp_path):
    assert {"tiny", "micro_vit"} <= names_of(fedbench("schema", "--plugin", TINY, cwd=tmp_path))
    own = names_of(fedbench("schema", "--built-in", "--plugin", TINY, cwd=tmp_path))
    assert "micro_vit" in own and "tiny" not in own


def test_installing_is_gone_and_what_replaces_it_is_said(tmp_path):
    done = fedbench("schema", "--install", ".", cwd=tmp_path)
    assert done.exit_code == 2 and "--install is gone: `fedbench schema > suite.schema.json`" in done.stderr
