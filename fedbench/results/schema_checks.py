"""What the JSON files of a results folder, which may be a stranger's, must look like to be read at all."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, cast, get_args, get_type_hints

from annotated_types import Interval

from fedbench.errors import UserError
from fedbench.results.columns import STATUSES
from fedbench.results.metric_direction import declare
from fedbench.schema import adapter
from fedbench.types import SIZES

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

# Parts of a manifest that are read; other parts are passed on as they are.
CONFIG = "config."  # before the name of a part of the configuration
TYPES: dict[str, Any] = {
    **dict.fromkeys(("status", "started", "id", "signal", "root", "computed_as", "digest"), str),
    **dict.fromkeys(("reason", "traceback", "git"), str | None),
    **dict.fromkeys(("config", "machine", "versions", "fingerprints", "files", "left_out", "turnout"), dict),
    **dict.fromkeys(("metrics", "method"), dict),
    **dict.fromkeys(("round", "exit_code"), int),
    **dict.fromkeys(("ignored", "tables"), list),
    "seconds": int | float,
    **dict.fromkeys((CONFIG + part for part in ("backbone", "adapter", "data", *SIZES, "devices", "fit")), dict),
    **dict.fromkeys((CONFIG + part for part in ("participation", "train", "method", "evaluation")), dict),
    **dict.fromkeys((CONFIG + part for part in ("profile", "precision")), str),
    CONFIG + "seed": int,
}
FILE_TYPES: dict[str, Any] = {"size": int, "sha256": str}
FACTS: dict[str, dict[str, Any]] = {
    "left_out": {"images": int, "of": int},
    "turnout": {**dict.fromkeys(("clients", "of_clients", "images", "of_images"), int), "sizes": dict},
}
NAMED = tuple(CONFIG + part for part in ("backbone", "adapter", "data", "method"))
LISTS = {
    CONFIG + "capacities": ("depth", int),
    CONFIG + "ranks": ("rank", int),
    CONFIG + "widths": ("width", int | float),
}

MOST = 2**63  # of what fedbench counts, nothing comes near
_BOUNDED: dict[Any, Any] = {kind: Annotated[kind, Interval(gt=-MOST, lt=MOST)] for kind in (int, float)}


def typed(shape: type[T], values: Any) -> T:
    """A JSON object as a dataclass. Raises: TypeError for a field that is missing, unknown or of another type."""
    from pydantic import ValidationError

    try:
        _fields(cast(Any, shape)).validate_python(values)
        return shape(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, given = "".join(map(str, first["loc"][:1])) or "it", f"is {first['input']!r:.80}"
        wrong = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(first["type"], given)
        raise TypeError(f"{name:.80} {wrong}") from None


@functools.cache
def _fields(shape: Any) -> TypeAdapter:
    """The validator of a JSON object with the fields of a dataclass."""
    from typing import NotRequired

    from pydantic import ConfigDict
    from typing_extensions import TypedDict

    hints = get_type_hints(shape)
    wanted = {
        field.name: _bounded(hints[field.name])
        if field.default is MISSING
        else NotRequired[_bounded(hints[field.name])]
        for field in fields(shape)
    }
    made: Any = cast(Any, TypedDict)(shape.__name__, wanted)
    made.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return adapter(made)


def check_all(values: Mapping[str, Any], types: Mapping[str, Any], where: str = "") -> None:
    """`check` what is there of `types`, each called by its key, after `where`."""
    for name in types.keys() & values.keys():
        check(where + name, values[name], types[name])


def check(name: str, value: Any, wanted: Any) -> None:
    """Raises: TypeError for a value of another type, as pydantic has it: an integer is a float too, a truth value is
    neither, and no number is infinite or NaN."""
    from pydantic import ValidationError

    try:
        _validator(wanted).validate_python(value)
    except ValidationError:
        raise TypeError(f"{name:.80} is {value!r:.80}") from None


@functools.cache
def _validator(wanted: Any) -> TypeAdapter:
    return adapter(_bounded(wanted))


def _bounded(wanted: Any) -> Any:
    """A type, or a union of types, whose numbers are no larger than files can hold."""
    kinds = tuple(_BOUNDED.get(kind, kind) for kind in get_args(wanted) or (wanted,))
    return Union[kinds]  # noqa: UP007  # of as many as there are


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raises: TypeError, saying what is wrong, for a manifest that fedbench did not write."""
    for name, value in manifest.items():
        check_part(name, value)
    for name, value in manifest["config"].items():
        check_part(CONFIG + name, value)


def check_part(name: str, value: Any) -> None:
    """Check one part of a manifest, or `config.NAME`. Raises: TypeError where fedbench did not write it."""
    if name in TYPES:
        check(name, value, TYPES[name])
    if name in NAMED:
        check_all(value, {"name": str}, f"{name}.")
    elif name in LISTS:
        _check_sizes(name, value)
    elif name in PARTS:
        PARTS[name](name, value)


def _check_status(name: str, value: str) -> None:
    if value not in STATUSES:
        raise TypeError(f"{name} is {value!r:.80}")


def _check_sizes(name: str, ways: Mapping[str, Any]) -> None:
    noun, kind = LISTS[name]
    for way, given in ways.items():
        check(f"{name}.{way}", [] if given is True else given, list)
        for value in () if given is True else given:
            check(f"a {noun} of {name}.{way}", value, kind)


def _check_facts(name: str, facts: Mapping[str, Any]) -> None:
    for what, wanted in FACTS[name].items() if facts else ():
        check(f"{name}.{what}", facts.get(what), wanted)


def _check_texts(name: str, texts: Mapping[str, Any]) -> None:
    for what, value in texts.items():
        check(f"{name}.{what}", value, str)
        if name == "method" and not value.isprintable():  # it ends up in tables, on its own line
            raise TypeError(f"{name}.{what} is {value!r:.80}")


def _check_files(name: str, files: Mapping[str, Any]) -> None:
    for file, facts in files.items():
        if not is_folder_name(file):  # a run sets damaged files aside: that must move nothing of another folder
            raise TypeError(f"{name} has {file!r:.80}")
        check(f"{name}.{file}", facts, dict)
        for what, wanted in FILE_TYPES.items():
            check(f"{name}.{file}.{what}", facts.get(what), wanted)


def _check_ignored(name: str, parts: Sequence[Any]) -> None:
    for part in parts:
        check(f"a part of {name}", part, str)


# What parts of a manifest hold, where their type does not say all.
PARTS: Mapping[str, Callable[[str, Any], None]] = {
    "status": _check_status,
    "files": _check_files,
    "ignored": _check_ignored,
    "metrics": lambda _, measures: declare(measures),
    CONFIG + "train": lambda name, value: check_all(value, {"rounds": int}, f"{name}."),
    **dict.fromkeys(FACTS, _check_facts),
    **dict.fromkeys(("method", "versions", "fingerprints"), _check_texts),
}


def is_folder_name(name: str) -> bool:
    """Whether a name stands for something visible in the folder it is looked up in, and nowhere else."""
    return name != "" and not name.startswith(".") and not set(name) & set("/\\\0") and len(os.fsencode(name)) < 256


def refuse_links(suite_folder: Path, option: str = "--results") -> None:
    """Raises: UserError where a suite's folder is a link, or one lies in it: what is written there could land
    anywhere; or a pipe, whose reader could wait for ever."""
    found = (Path(folder, name) for folder, folders, files in os.walk(suite_folder) for name in (*folders, *files))
    for path in (Path(suite_folder), *found):
        if odd := _odd(path):
            raise UserError(
                f"{path}: {odd}. fedbench writes into folders of its own only.\n"
                f"Remove it, or choose another folder with {option} DIR."
            )


def _odd(path: Path) -> str:
    """What a path is but a file or a folder; nothing where it has gone meanwhile."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return ""
    if stat.S_ISLNK(mode):
        return "a link"
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "a pipe or a device"
