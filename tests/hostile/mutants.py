"""Damage to bytes, to JSON values and to YAML text: every choice is drawn from the generator that is given."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

HUGE = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
TEXTS = ["", "x", "../../around", "/etc/passwd", "..", ".", "a/b", "\0", "\ud800", "\x1b[31m\a", "%s{0}", "é" * 40]
TEXTS += ["[bold]x[/]", "x" * 5000, "a\nb", "nan", "1e999", "finished", "$tensor", "-1", " ", "~", "\u202e"]
NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan")]
VALUES: list[Any] = [
    *TEXTS,
    *NUMBERS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [{}],
    {"name": []},
    {"": None},
    [None],
    ["x", 1],
]


def damaged(raw: bytes, chance: Random) -> bytes:
    """Bytes with one to four faults."""
    for _ in range(chance.choice([1, 1, 2, 4])):
        raw = _harmed(raw, chance)
    return raw


def _harmed(raw: bytes, chance: Random) -> bytes:
    i, j = sorted((chance.randrange(len(raw) + 1), chance.randrange(len(raw) + 1)))
    how = chance.randrange(9)
    if how < 3 and i < len(raw):
        return raw[:i] + bytes([raw[i] ^ (1 << chance.randrange(8))]) + raw[i + 1 :]
    if how == 3:
        return raw[:i]
    if how == 4:
        return raw[:i] + raw[i : min(j, i + 64)] + raw[i:]
    if how == 5:
        return raw[:i] + raw[min(j, i + 64) :]
    if how == 6:
        return raw[:i] + chance.randbytes(chance.choice([1, 4, 16, 400])) + raw[j if chance.random() < 0.1 else i :]
    if how == 7:
        part = chance.choice([HUGE, HUGE[4:], b"\0" * 8, b"\xff" * 8, b"\x80\0\0\0"])
        return raw[:i] + part + raw[i + len(part) :]
    return chance.choice([b"", b"\0" * 512, raw[::-1], raw + raw, raw])


def rewritten(raw: bytes, chance: Random) -> bytes:
    """JSON text with a part of its value replaced, left out, moved or wrapped; at times damaged as text."""
    how = chance.random()
    try:
        value = changed(json.loads(raw), chance)
    except (ValueError, RecursionError):  # damaged before
        how = 0.0
    if how < 0.1:
        return damaged(raw, chance)
    text = json.dumps(value)
    if how < 0.2:
        depth = chance.choice([100, 1000, 100_000])
        long = [
            "[" * depth + "]" * depth,
            '{"a":' * depth + "1" + "}" * depth,
            "9" * 5000,
            "-1e" + "9" * 400,
            "[" * depth,
        ]
        places = [found.span() for found in re.finditer(r"(?<=: )[^,:{}\[\]]+", text)] or [(0, len(text))]
        start, end = chance.choice(places)
        text = text[:start] + chance.choice(long) + text[end:]
    return text.encode(chance.choice(["utf-8"] * 9 + ["utf-16"]), "surrogatepass")


def changed(value: Any, chance: Random) -> Any:
    """A JSON value with one to four changes somewhere in it."""
    holder = {"": copy.deepcopy(value)}
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        _change(holder, chance)
    return holder[""]


def _change(holder: dict[str, Any], chance: Random) -> None:
    places = list(_places(holder))
    part, key = chance.choice(places)
    how = chance.randrange(8)
    if how < 4:
        part[key] = copy.deepcopy(chance.choice(VALUES))
    elif how == 4 and part is not holder:
        del part[key]
    elif how == 5:
        other, there = chance.choice(places)
        part[key] = copy.deepcopy(other[there])
    elif how == 6 and isinstance(part, dict) and part is not holder:
        part[chance.choice([*TEXTS, key.upper()])] = part.pop(key) if chance.random() < 0.5 else part[key]
    else:
        part[key] = chance.choice([[part[key]], {"name": part[key]}, [part[key], part[key]], str(part[key])])


def _places(value: Any):
    """(mapping or list, key or position) of every part."""
    for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


WORD = re.compile(r"[\w.]+")
SPELLINGS = (
    [json.dumps(value) for value in VALUES]
    + """
null; ~; yes; 0x1F; 0o17; 1_000; .inf; -.nan; 2026-01-01; !!python/object/apply:os.system [x]; !!binary aGk=; !foo x;
*a; &a [*a]; &a {<<: *a}; <<; |; >-; '; "; [; {; }; - -; ? ; : ; %YAML 1.1; ---; ...; {name: lora, name: lora};
[fedra, {}]; {extends: x}; {name: null}; "\\ud800"; "\\0"; "\\x1b[2J"; !<tag:yaml.org,2002:int> 1; &b !!set {a, b};
1e999; 9e-999
""".replace("\n", " ").split("; ")
)
SPELLINGS += ["0x" + "f" * 6000, "9" * 5000, "-0o" + "7" * 6000, "[" * 300, "{a: " * 300, "x" * 70_000]
BOMB = "\n".join(
    ["_0: &a0 [x, x, x, x, x, x, x, x]", *(f"_{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9))]
)


def misspelt(text: str, chance: Random) -> bytes:
    """A suite with one to four faults, in one of several encodings."""
    lines = text.splitlines() or [""]
    for _ in range(chance.choice([1, 1, 2, 4])):
        lines = _misspelt(lines, chance) or [""]
    text = chance.choice(["\n"] * 20 + ["\r\n", "\r", "\u2028"]).join(lines)
    how = chance.randrange(40)
    if how == 0:
        return damaged(text.encode(), chance)
    if how == 1:
        return (BOMB + "\n" + text).encode()
    if how == 2:
        return text.encode(chance.choice(["utf-16", "utf-8-sig", "latin-1", "utf-32"]), "replace")
    if how == 3:
        return (text + "\n" + "# " * chance.choice([10, 2**20])).encode()
    return text.encode("utf-8", "replace")


def _misspelt(lines: list[str], chance: Random) -> list[str]:
    lines = list(lines)
    i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    indent = " " * chance.choice([0, 2, 4, len(lines[i]) - len(lines[i].lstrip())])
    how = chance.randrange(10)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 2:
        lines.insert(i, lines[j])
    elif how == 3:
        lines[i] = lines[i].split(":")[0] + ": " + chance.choice(SPELLINGS)
    elif how == 4:
        lines.insert(i, f"{indent}{chance.choice(SPELLINGS)}: {chance.choice(SPELLINGS)}")
    elif how == 5:
        lines[i] = chance.choice(["\t", " ", "- ", "  "]) + lines[i]
    elif how == 6:
        lines[i] = damaged(lines[i].encode(), chance).decode("utf-8", "replace")
    elif words := list(WORD.finditer(lines[i])):
        word = chance.choice(words)
        others = list(WORD.finditer(lines[j])) or words
        new = chance.choice([chance.choice(SPELLINGS), chance.choice(others).group(), word.group() + "x"])
        lines[i] = lines[i][: word.start()] + new + lines[i][word.end() :]
    return lines
