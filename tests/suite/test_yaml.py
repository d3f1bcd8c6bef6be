"""YAML as suites mean it, and YAML that means harm."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import SMALL

from fedbench.errors import UserError
from fedbench.suite.yaml import MAX_BYTES, Mark, Problems, parse, parse_value, read


def plain(text):
    problems = Problems()
    node = parse(text, "t", problems)
    problems.raise_any()
    return node.plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("no", "no"), ("yes", "yes"), ("on", "on"), ("010", 10), ("0o17", 15), ("0x1F", 31), ("~", None), ("", None),
        ("true", True), ("2026-01-01", "2026-01-01"), ("'1'", "1"), ("1.", 1.0), ("-0", 0), ("12:30", "12:30"), ("null", None),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text, value):
    got = plain(f"a: {text}")["a"]
    assert got == value and type(got) is type(value)


def test_aliases_are_written_out():
    assert plain("a: &x {b: 1}\nc: *x\nd: [*x, *x]") == {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]}


def test_every_value_knows_its_place():
    node = parse("a: 1\nb:\n  - 2\n  - c: 3\n", "t", Problems())
    assert str(node.get("a").mark) == "t:1:4"
    assert str(node.get("b", 1, "c").key) == "t:4:5"
    assert str(node.get("b", 1, "c").mark) == "t:4:8"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", 't:3:1: the key "a" appears twice here; the first is on line 1'),
        ("a: &x {b: 1}\nc: {<<: *x}", "t:2:5: merge keys"),
        ("? [1]\n: 2", "t:1:3: a key must be a plain text"),
        ("a: !!python/object:os.system x", "t:1:4: tags are not used in suites"),
        ("a: !x {b: 1}", "t:1:4: tags are not used in suites"),
        ("a: *x", "t:1:4: \\*x stands for nothing"),
        ("a: &x [*x]", "t:1:8: \\*x stands for nothing"),
        ("a: [1, 2\nb: 3", "t:2:2: not valid YAML"),
        ("a:\n\t- 1", "t:2:1: not valid YAML"),
        (
            "a: b: c",
            "t:1:5: not valid YAML: .*; is the line indented .* or does a text with a colon in it lack its quotes",
        ),
        ("a:\n  b: 1\n   c: 2", "t:3:5: not valid YAML: .*; is the line indented further than those it belongs with"),
        ("a:\n  b: 1\n c: 2", "t:3:2: not valid YAML: .*; is the line indented otherwise than those it belongs with"),
        ("a: 1\n---\nb: 2", "t:2:1: a second document"),
        ("%YAML 1.1\n---\na: no", "t:2?1?:1: suites are YAML 1.2"),
        ("", "t:1:1: empty"),
        ("# only a comment", "t:1:1: empty"),
        ("a: 1\nb: \x01", "t:2:4: a control character"),
        ("a: " + "9" * 5000, "t:1:4: not a number that can be read"),
        ("a: 1e999", "t:1:4: expected a finite number"),
        ("[" * 2000, "t:1:42: nested deeper than 40 levels"),
        ("a: " + "{a: " * 2000, "nested deeper than 40 levels"),
    ],
)
def test_bad_yaml_is_told_with_its_place(text, message):
    with pytest.raises(UserError, match=message):
        plain(text)


def test_an_alias_bomb_does_not_go_off():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(UserError, match="more than 100,000 values once aliases are written out"):
        plain("\n".join(lines))


@pytest.mark.parametrize("text", ["a", "[1, 2]", "3"])
def test_a_suite_that_is_no_mapping(faults_of, text):
    (fault,) = faults_of(text)
    assert fault.startswith("s.yaml:1:1: a suite: expected a mapping (key: value), got ")


def test_files_that_are_no_suites(tmp_path):
    def error(content=None, name="s.yaml"):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError) as caught:
            read(path, Problems())
        return str(caught.value).removeprefix(str(tmp_path))

    assert error(name="none.yaml") == "/none.yaml: cannot be read: No such file or directory"
    assert error(name="") == ": this is a folder; expected a suite, a YAML file"
    assert error(b"a: 1\nb: \xff\xfe") == "/s.yaml:2:1: not UTF-8 text; save the file as UTF-8"
    assert error(b"a" * (MAX_BYTES + 1)) == "/s.yaml: larger than 1 MiB; that is no suite"


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    node = read(path, Problems())
    assert node.plain() == {"a": 1, "b": 2}
    assert node.get("b").mark.line == 2


def test_duplicate_keys_are_told_beside_other_faults(faults_of):
    text = SMALL.replace("  data: strokes6\n", "  data: strokes6\n  data: strokes6\n").replace("[fedra]", "[fedar]")
    assert [fault.split(": ")[0] for fault in faults_of(text)] == ["s.yaml:5:3", "s.yaml:9:11"]


def test_a_value_of_the_command_line_may_be_any_yaml():
    mark = Mark("--set x")
    assert parse_value("[a, 1]", mark).plain() == ["a", 1]
    assert parse_value("{name: lora, rank: 4}", mark).plain() == {"name": "lora", "rank": 4}
    with pytest.raises(UserError, match="--set x"):
        parse_value("!!python/name:os.system", mark)


@given(st.text(max_size=200))
def test_any_text_is_a_document_or_an_error_for_people(text):
    with contextlib.suppress(UserError):
        plain(text)


@pytest.mark.parametrize(
    "number", ["0x" + "f" * 6000, "0o" + "7" * 6000, "9" * 4000, "9223372036854775808", "-0x8000000000000000"]
)
def test_a_number_that_no_machine_counts_to_is_told(number):
    with pytest.raises(UserError, match="t:1:4: not a number that can be read"):
        plain(f"a: {number}")


@pytest.mark.parametrize("text", ['a: "\\ud800"', '"\\udfff": 1', 'a: [&x "\\ud800", *x]'])
def test_half_a_surrogate_pair_is_told(text):
    with pytest.raises(UserError, match="t:1:.*surrogate|t:1:1: a key must be a plain text"):
        plain(text)
