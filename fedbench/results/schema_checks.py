"""What the JSON files of a results folder must look like to be read: they may come from a third party."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Mapping, Sequence
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

from fedbench.errors import UserError
from fedbench.results.columns import STATUSES
from fedbench.results.metric_direction import declare
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
