"""Text for people: numbers with units, lengths of time, lists, and suggestions for wrong names."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

NAMES = {"bytes": "B", "flops": "FLOPs", "joules": "J"}
TIMES = (("days", 86400, 172_800), ("h", 3600, 7200), ("min", 60, 120))  # unit, its seconds, from how many seconds on
# Amounts as people write them, such as 1.5 GB, 2 TFLOPs, 1h 30min or 2kWh.
_NUMBER = r"[+-]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_TIME_UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "day": 86400, "days": 86400}
_AMOUNT_UNITS = {"bytes": {"b": 1}, "flops": {"flops": 1}, "joules": {"j": 1, "wh": 3600}, "seconds": {}}
_EXAMPLES = {"bytes": "100MB", "flops": "2TFLOPs", "joules": "2kWh", "seconds": "1h 30min"}
# What steers a terminal: the C0 and C1 controls but tab and line break, and marks that turn the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def three_digits(value: float) -> str:
    """At least three significant digits, without an exponent: 0.0123, 4.56, 789, 12,345."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def human_bytes(count: float) -> str:
    """999 B, 8.31 MB; units are decimal."""
    return f"{count:.0f} B" if count < 999.5 else _prefixed(count, " kMGT", "B")


def human_flops(count: float) -> str:
    """8.31 TFLOPs."""
    return _prefixed(count, " kMGTPE", "FLOPs")


def _prefixed(count: float, prefixes: str, unit: str) -> str:
    """Divided by thousands until less than one is left, or no prefix."""
    place = 0
    while not count < 999.5 and place < len(prefixes) - 1:
        count, place = count / 1000, place + 1
    return f"{three_digits(count)} {prefixes[place].strip()}{unit}"


def human_joules(count: float) -> str:
    """8.31 kJ."""
    return _prefixed(count, " kMGT", "J")


def lasting(seconds: float) -> str:
    """What was computed, and so may be short: 0.0123 s, 8.20 s, 3 min 05 s, 2 h 07 min."""
    return f"{three_digits(seconds)} s" if seconds < 59.95 else duration(seconds)


def amount(count: float, what: str) -> str:
    """Of "bytes", "flops", "seconds" or "joules"."""
    return {"bytes": human_bytes, "flops": human_flops, "seconds": lasting, "joules": human_joules}[what](count)


def scale(largest: float, what: str) -> tuple[float, str]:
    """(what to divide by, unit) of an axis of what `amount` tells, which ends at `largest`."""
    if what == "seconds":
        return next(((float(size), unit) for unit, size, least in TIMES if largest >= least), (1.0, "s"))
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if largest >= 10**power:
            return 10.0**power, prefix + NAMES[what]
    return 1.0, NAMES[what]


def amount_of(text: str, kind: str) -> float:
    """A positive amount of one kind, with or without its unit; decimal units.

    Args:
        text: what was written.
        kind: "bytes", "flops", "seconds" or "joules".

    Raises:
        ValueError: for anything else, with what would be right.
    """
    amount, written, units = 0.0, text.strip(), _AMOUNT_UNITS[kind]
    parts = re.findall(rf"({_NUMBER})\s*([a-z]+)", written)
    if kind == "seconds" and re.fullmatch(rf"(?:{_NUMBER}\s*(?:{'|'.join(_TIME_UNITS)})\s*)+", written):
        amount = sum(_float(number) * _TIME_UNITS[unit] for number, unit in parts)
    elif found := re.fullmatch(rf"({_NUMBER})\s*([kMGTPE]?)({'|'.join(units)}|)", written, re.IGNORECASE):
        amount = _float(found[1]) * _PREFIXES[found[2].lower()] * units.get(found[3].lower(), 1)
    if not 0 < amount < math.inf:
        what = "a length of time" if kind == "seconds" else f"an amount of {kind}"
        raise ValueError(f"{written!r} is not {what}. Write {_EXAMPLES[kind]}, for example.")
    return amount


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def mebibytes(count: int) -> str:
    """87.3 MiB."""
    return f"{count / 2**20:.1f} MiB"


def memory(count: int) -> str:
    """600 MB, 4.2 GB: as `--memory-limit` takes them."""
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def duration(seconds: float) -> str:
    """What was measured: 8.2 s, 3 min 05 s, 2 h 07 min."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def roughly(seconds: float) -> str:
    """Two digits, as an estimate has them: 0.42 s, 8.2 s, 73 s, 12 min, 3.4 h, 2.1 days."""
    for unit, size, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds / 86400)} days"


def _two_digits(value: float) -> str:
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 0.995 else f"{value:.2g}"


def is_text(name: str) -> bool:
    """Whether a name can be written: a file's that is no UTF-8 cannot, and Python has it with halves of letters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def quoted(word: str) -> str:
    r"""A word as shells take it; of a file whose name is no UTF-8 as bash and zsh do, `$'caf\351'`."""
    if is_text(word):
        return shlex.quote(word)
    letters = (chr(b) if 31 < b < 127 and chr(b) not in "'\\" else f"\\{b:03o}" for b in os.fsencode(word))
    return f"$'{''.join(letters)}'"


def command_line(words: Iterable[str]) -> str:
    """A command that can be copied."""
    return " ".join(map(quoted, words))


def visible(text: str) -> str:
    r"""Text whose control characters are written out, as in `\x1b`, so that no name can steer a terminal."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_json(text: str) -> str:
    """A JSON document whose control characters, which stand in its texts alone, are written out as JSON has it."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def on_a_line(text: str) -> str:
    r"""The same of a name that is to take one line: what breaks or moves in it is written out too, as `\n`."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clipped(text: str, width: int) -> str:
    """Text in `width` letters, its middle left out where it is longer: what tells two names apart stands at an end."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def distinct(names: Sequence[str], widths: Sequence[int], among: Collection[str] = ()) -> list[str]:
    """Names cut to so many letters each, so that different names stay different.

    A name is cut at its end, or in its middle where another one, or one of `among`, begins the same way, or around the
    first letter that differs. Where there is no room for that, it gets a number.
    """
    others, found = {*names, *among}, []
    for name, width in zip(names, widths, strict=True):
        shared = any(other != name and other.startswith(name[: width - 1]) for other in others)
        found.append(clipped(name, width) if shared or len(name) <= width else f"{name[: width - 1]}…")
    for cut in (_around, _with_number):
        for text in {text for text in found if found.count(text) > 1}:
            places = [i for i, other in enumerate(found) if other == text]
            if len({names[i] for i in places}) > 1:
                start = len(os.path.commonprefix([names[i] for i in places]))
                for i in places:
                    found[i] = cut(names[i], widths[i], start, i + 1)
    return found


def _around(name: str, width: int, start: int, _: int) -> str:
    """Its beginning, and what follows from `start` on."""
    if len(name) <= width:
        return name
    head = min(start, width // 3)
    rest = name[start:]
    room = width - head - 1
    return f"{name[:head]}…{rest if len(rest) <= room else rest[: room - 1] + '…'}"


def _with_number(name: str, width: int, _: int, number: int) -> str:
    return name if len(name) <= width else f"{name[: max(0, width - 1 - len(str(number)))]}…{number}"


def counted(number: int, noun: str) -> str:
    """1 cell, 2,000 cells, 2 classes, 2 capacities."""
    if number == 1:
        return f"1 {noun}"
    many = f"{noun[:-1]}ies" if noun.endswith("ty") else f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{number:,} {many}"


def shortened(names: Sequence[str], most: int = 12) -> str:
    """Names with commas, the first `most` of them, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shown(value: Any, width: int = 60) -> str:
    """A value as a message quotes it, on one line and cut to `width`."""
    if value is None:
        return "null"
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= width else text[: width - 3] + "..."


def nearest(word: str, known: Iterable[str], most: int = 1, least: float = 0.6) -> list[str]:
    """The names that a wrong one comes close to, whatever its case, the closest first. least: how close, where 1 is
    equal and 0 has nothing in common."""
    folded = {_folded(name): name for name in known}
    return [folded[name] for name in difflib.get_close_matches(_folded(word), folded, most, least)]


def composed(name: str) -> str:
    """A name in the one Unicode form (NFC) in which names from other file systems are compared."""
    return unicodedata.normalize("NFC", name)


def _folded(name: str) -> str:
    """What names that look the same have in common."""
    return unicodedata.normalize("NFKC", name).strip().lower()


def meant(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean 'fedra'?`, or `otherwise` where no name is near."""
    return f"did you mean {near[0]!r}?{unlike(word, near[0])}" if (near := nearest(word, known)) else otherwise


def unlike(word: str, other: str) -> str:
    """In words how two names differ that look the same, such as ` (upper and lower case differ)`; else ""."""
    one, two = (unicodedata.normalize("NFKC", name) for name in (word, other))
    ways = {
        "letters and accents are encoded in another Unicode form": word != other and one == two,
        "spaces at an end differ": one != two and one.strip() == two.strip(),
        "upper and lower case differ": one.strip() != two.strip() and one.strip().casefold() == two.strip().casefold(),
    }
    return next((f" ({way})" for way, differs in ways.items() if differs), "")


def in_short(value: Any) -> str:
    """A value as a variant's name shows it: `attn.proj+mlp.fc2`, `lora(rank=4)`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "+".join(map(in_short, value))
    if isinstance(value, dict):
        options = ",".join(f"{key}={in_short(part)}" for key, part in value.items() if key != "name")
        return f"{value.get('name', '')}({options})" if options else str(value.get("name", "{}"))
    return shown(value)


def suggestion(word: str, known: Iterable[str], what: str = "known") -> str:
    """`; did you mean "fedra"?`, or what there is to choose from; not that where `what` is ""."""
    names = sorted(set(known))
    if near := nearest(word, names):
        return f"; did you mean {shown(near[0])}?{unlike(word, near[0])}"
    return f"; {what}: {shortened(names)}" if names and what else ""


def span(values: Iterable[int]) -> str:
    """`1,200`, or from the least to the most, `8 to 1,200`."""
    found = sorted(set(values))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"
