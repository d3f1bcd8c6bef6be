"""What the JSON files of a results folder, which may be a stranger's, must look like to be read at all."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, cast, get_args, get_type_hints

from annotated_types import Interval

from fedbench.errors import UserError
from fedbench.schema import adapter

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

MOST = 2**63  # of what fedbench counts, nothing comes near
_BOUNDED: dict[Any, Any] = {kind: Annotated[kind, Interval(gt=-MOST, lt=MOST)] for kind in (int, float)}


def typed(shape: type[T], values: Any) -> T:
    """A JSON object as a dataclass. Raises: TypeError for a field that is missing, unknown or of another type."""
    made = shape(**values)
    for name, wanted in _wanted(cast(Any, shape)).items():
        check(name, getattr(made, name), wanted)
    return made


@functools.cache
def _wanted(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


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
    """Of a type, or of a union of types, whose numbers are no larger than files can hold."""
    kinds = tuple(_BOUNDED.get(kind, kind) for kind in get_args(wanted) or (wanted,))
    return adapter(Union[kinds])  # noqa: UP007  # of as many as there are


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
