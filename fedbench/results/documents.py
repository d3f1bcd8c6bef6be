"""The JSON files of a results folder, with a version and a seal: what they must look like, and how they are read.

They may come from a third party; a message says where they are not ours, or not as they were written.
"""

from __future__ import annotations

import functools
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Interval, Len, Predicate
from typing_extensions import TypedDict

from fedbench.disk import hash_of_bytes, opened, write_atomically
from fedbench.errors import UserError
from fedbench.results.columns import STATUSES
from fedbench.results.scores import declare
from fedbench.results.tables import RESULT_VERSION, wrong_version
from fedbench.schema import adapter

if TYPE_CHECKING:
    from pydantic import TypeAdapter


T = TypeVar("T")

MOST = 2**63  # of what fedbench counts, nothing comes near
Count = Annotated[int, Interval(gt=-MOST, lt=MOST)]
Counted = Annotated[int, Interval(ge=1, lt=MOST)]
Number = Count | Annotated[float, Interval(gt=-MOST, lt=MOST)]
_BOUNDED: dict[Any, Any] = {int: Count, float: Annotated[float, Interval(gt=-MOST, lt=MOST)]}


def is_folder_name(name: str) -> bool:
    """Whether a name stands for something visible in the folder it is looked up in, and nowhere else."""
    return name != "" and not name.startswith(".") and not set(name) & set("/\\\0") and len(os.fsencode(name)) < 256


def _object(strict: bool = False, **parts: Any) -> Any:
    """A JSON object with these keys, which may be missing unless `Required` or strict, and any others."""
    made: Any = cast(Any, TypedDict)(
        "Part",
        {key: kind if strict or get_origin(kind) is Required else NotRequired[kind] for key, kind in parts.items()},
    )
    made.__pydantic_config__ = {"strict": True, "allow_inf_nan": False}
    return made


NOTHING = Annotated[dict, Len(0, 0)]
NAMED: Any = _object(name=Required[str])
FILE: Any = _object(strict=True, size=Count, sha256=str)
COUNTS: Any = Literal[True] | list[Count]
NUMBERS: Any = Literal[True] | list[Number]
LEFT_OUT = _object(strict=True, images=Count, of=Count)
TURNOUT = _object(strict=True, clients=Count, of_clients=Count, images=Count, of_images=Count, sizes=dict)

# Parts of a manifest that are read; other parts are passed on as they are.
CONFIG = "config."  # before the name of a part of the configuration
TYPES: dict[str, Any] = {
    "status": Literal[STATUSES],
    **dict.fromkeys(("started", "id", "signal", "root", "computed_as", "digest"), str),
    **dict.fromkeys(("reason", "traceback", "git"), str | None),
    **dict.fromkeys(("config", "machine", "metrics"), dict),
    **dict.fromkeys(("versions", "fingerprints"), dict[str, str]),
    **dict.fromkeys(("round", "exit_code"), Count),
    **dict.fromkeys(("ignored", "tables"), list[str]),
    "seconds": Number,
    "method": dict[str, Annotated[str, Predicate(str.isprintable)]],  # it ends up in tables, on its own line
    # A run sets damaged files aside: that must move nothing of another folder.
    "files": dict[Annotated[str, Predicate(is_folder_name)], FILE],
    "left_out": NOTHING | LEFT_OUT,
    "doubts": list[Annotated[str, Predicate(str.isprintable)]],
    "turnout": NOTHING | TURNOUT,
    **dict.fromkeys((CONFIG + part for part in ("backbone", "adapter", "data", "method")), NAMED),
    **dict.fromkeys((CONFIG + part for part in ("capacities", "ranks")), dict[str, COUNTS]),
    CONFIG + "widths": dict[str, NUMBERS],
    **dict.fromkeys((CONFIG + part for part in ("fit", "participation")), dict),
    CONFIG + "devices": _object(known=dict[str, dict]),
    CONFIG + "evaluation": _object(
        metrics=Required[Annotated[list[NAMED], Len(1)]], every=Counted | None, at=list[Counted] | str | None
    ),
    CONFIG + "train": _object(rounds=Required[Counted]),
    **dict.fromkeys((CONFIG + part for part in ("profile", "precision")), str),
    CONFIG + "seed": Count,
}


# What every manifest has.
REQUIRED = (
    *("status", "fingerprints", "versions"),
    *(CONFIG + part for part in ("backbone", "adapter", "data", "method", "train", "evaluation", "seed")),
)


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raises: TypeError, saying what is wrong, for a manifest that fedbench did not write."""
    there = {*manifest, *(CONFIG + part for part in manifest["config"])} if isinstance(manifest["config"], dict) else {}
    if missing := [name for name in REQUIRED if name not in there]:
        raise TypeError(f"{missing[0]} is missing")
    for name, value in manifest.items():
        check_parts(name, [value])
    for name, value in manifest["config"].items():
        check_parts(CONFIG + name, [value])


def check_parts(name: str, values: Sequence[Any]) -> None:
    """Check one part of several manifests, or `config.NAME`. Raises: TypeError where fedbench did not write one."""
    if name in TYPES:
        check_all(name, values, TYPES[name])
    if name == "metrics":
        for metrics in values:
            declare(metrics)


def typed(shape: type[T], values: Any) -> T:
    """A JSON object as a dataclass. Raises: TypeError for a field that is missing, unknown or of another type."""
    from pydantic import ValidationError

    try:
        validator_of(cast(Any, shape)).validate_python(values)
        return shape(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, given = "".join(map(str, first["loc"][:1])) or "it", f"is {first['input']!r:.80}"
        wrong = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(first["type"], given)
        raise TypeError(f"{name:.80} {wrong}") from None


@functools.cache
def validator_of(shape: Any) -> TypeAdapter:
    """The validator of a JSON object with the fields of a dataclass."""
    hints = {name: _bounded(kind) for name, kind in get_type_hints(shape).items()}
    optional = {field.name for field in fields(shape) if field.default is not MISSING}
    made: Any = cast(Any, TypedDict)(
        shape.__name__, {name: NotRequired[kind] if name in optional else kind for name, kind in hints.items()}
    )
    made.__pydantic_config__ = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
    return adapter(made)


def check(name: str, value: Any, wanted: Any) -> None:
    """Raises: TypeError for a value of another type, as pydantic has it: an integer is a float too, a truth value is
    neither, and no number is infinite or NaN."""
    check_all(name, [value], wanted)


def check_all(name: str, values: Sequence[Any], wanted: Any) -> None:
    """`check` of several values at once. Raises: TypeError for the first of another type."""
    from pydantic import ValidationError

    try:
        adapter(list[_bounded(wanted)]).validate_python([*values])  # type: ignore[misc]  # a type made here
    except ValidationError as error:
        position, *parts = error.errors(include_url=False)[0]["loc"]
        value = values[int(position)]
        for part in parts:  # which also names members of unions
            if isinstance(value, dict) and part in value:
                name, value = f"{name}.{part}", value[part]
        raise TypeError(f"{name:.80} is {value!r:.80}") from None


@functools.cache
def _bounded(wanted: Any) -> Any:
    """A type, or a union of types, whose numbers are no larger than files can hold."""
    kinds = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    return Union[tuple(_BOUNDED.get(kind, kind) for kind in kinds)]  # noqa: UP007  # of as many as there are


def refuse_links(suite_folder: Path, option: str = "--results") -> None:
    """Raises: UserError where a suite's folder is a link, or one lies in it: what is written there could land
    anywhere; or a pipe, whose reader could wait for ever."""
    found = (Path(folder, name) for folder, folders, files in os.walk(suite_folder) for name in (*folders, *files))
    for path in (Path(suite_folder), *found):
        if odd := _odd(path):
            other = f", or choose another folder with {option} DIR" if option else ""
            raise UserError(f"{path}: {odd}. fedbench uses folders of its own only.\nRemove it{other}.")


def _odd(path: Path) -> str:
    """What a path is but a file or a folder; nothing where it has gone meanwhile."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISLNK(mode):
        return "a link"
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "a pipe or a device"


MAX_DEPTH = 100  # what walks through a value may call itself as often
SEAL = "sha256"  # of the bytes of its file, in which it stands as BLANK
BLANK = "0" * 64


class TornFile(UserError):
    """A JSON file that says nothing that can be believed; one of another version is none."""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file with the result version and a seal: the hash of its own bytes.

    Raises:
        ValueError: for NaN, which JSON does not have.
    """
    write_atomically(path, sealed_text(value).encode())


def sealed_text(value: Mapping[str, Any]) -> str:
    """What `write_json` writes."""
    text = json_text({key: part for key, part in value.items() if key != SEAL} | {SEAL: BLANK})
    return _with_seal(text, BLANK, hash_of_bytes(text.encode()))


def _with_seal(text: str, old: str, new: str) -> str:
    """A text with another seal; it stands last."""
    before, key, after = text.rpartition(f'"{SEAL}": "{old}"')
    return f'{before}"{SEAL}": "{new}"{after}' if key else ""


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON text marked with the result version, without a seal: a line for each item of a list or dict in it, so
    that an entry of an index is a line. Raises: ValueError for NaN."""
    marked = {"result_version": RESULT_VERSION} | {key: part for key, part in value.items() if key != "result_version"}
    parts = (f" {_json(key)}: {_lines_of(part)}" for key, part in marked.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines_of(part: Any) -> str:
    if part and isinstance(part, Mapping):
        return "{\n" + ",\n".join(f"  {_json({key: item})[1:-1]}" for key, item in part.items()) + "\n }"
    if part and isinstance(part, Sequence) and not isinstance(part, str):
        return "[\n" + ",\n".join(f"  {_json(item)}" for item in part) + "\n ]"
    return _json(part)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def parsed(text: str) -> Any:
    """The value of a JSON text. Raises: ValueError, RecursionError for what nothing can be done with."""
    value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_without_twins)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be neither printed nor written
    if text.count("[") + text.count("{") <= MAX_DEPTH:  # it has no more levels than brackets
        return value
    layer: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        parts = (part for whole in layer for part in (whole.values() if isinstance(whole, dict) else whole))
        layer = [part for part in parts if isinstance(part, dict | list)]
        if not layer:
            return value
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises: ValueError where a key stands twice: which of its values is meant, no two readers agree on."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.80} stands there twice")
    return found


def read_sealed(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """What `write_json` wrote, without the seal.

    Raises:
        UserError: as `read_json`, and where the seal does not fit.
    """
    written = _bytes_of(path)  # once: a worker may replace the file at any time, and its seal is of its own text
    value = _value_of(written, path, required, mend)
    seal = value.pop(SEAL, None)
    text = written.decode(errors="replace")
    blank = _with_seal(text, seal, BLANK) if isinstance(seal, str) else ""
    if seal != hash_of_bytes(blank.encode()):
        raise TornFile(f"{path}: checksum mismatch: it was changed since it was written.\n{mend}")
    return value


def read_json(path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    """A JSON file marked with the result version, as it stands there.

    Raises: UserError, ending with `mend`, where it is torn, foreign, incomplete or of another version.
    """
    return _value_of(_bytes_of(path), path, required, mend)


def _bytes_of(path: Path) -> bytes:
    try:
        with opened(path) as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error


def _value_of(written: bytes, path: Path, required: Iterable[str], mend: str) -> dict[str, Any]:
    try:
        value = parsed(written.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TornFile(f"{path}: not readable as JSON ({error}).\n{mend}") from error
    if not isinstance(value, dict) or "result_version" not in value:
        raise TornFile(f"{path}: not a file of fedbench (it has no result_version).\n{mend}")
    if value["result_version"] != RESULT_VERSION:
        raise UserError(wrong_version(path, value["result_version"]))
    if missing := [name for name in required if name not in value]:
        raise TornFile(f"{path}: {', '.join(missing)} missing.\n{mend}")
    return value
