"""A method's state on disk: its tensors as safetensors, its shape and scalars as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedbench.disk import hash_of_bytes, hash_of_file, write_atomically
from fedbench.errors import UserError
from fedbench.results.documents import json_text, read_json
from fedbench.results.files import STRUCTURE, TENSORS

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
MEND = "Run the cell again with --force, or copy both files from where they are whole."

# What JSON cannot say is an object with one of these keys; a key of the state that begins with $ gets another one.
TENSOR, FLOAT = "$tensor", "$float"


def save(folder: Path, state: dict[str, Any], *, lasting: bool = True) -> None:
    """Write a state into a folder: nested dicts (texts as keys) and lists of tensors and JSON scalars.

    Equal states give equal files. Each file is whole or not there, but the two are renamed one after the other:
    who needs the last state until the next one is whole saves that into another folder. lasting: see
    `write_atomically`. Raises UserError for what is no state, or where the folder cannot be written to.
    """
    for name, content in file_bytes(state).items():
        write_atomically(Path(folder) / name, content, lasting=lasting)


def file_bytes(state: Any) -> dict[str, bytes]:
    """The two files of a state by name. Raises UserError for what is no state."""
    import torch
    from safetensors.torch import save as serialized

    tensors, structure = taken_apart(state)
    content = serialized(
        {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    )
    written = {"format": FORMAT, "sha256": hash_of_bytes(content), "state": structure}
    return {TENSORS: content, STRUCTURE: json_text(written).encode()}


def taken_apart(state: Any) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a state by their places, which are JSON pointers (RFC 6901), and the rest of it as JSON.

    Raises UserError for what is no state.
    """
    if not isinstance(state, dict):
        raise _no_state("", f"is a {type(state).__name__}")
    tensors: dict[str, Tensor] = {}
    return tensors, _nested(state, "", tensors)


def load(folder: Path, devices: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """What `save` wrote, bit for bit, every tensor in memory of its own: on the CPU, or on the device given for its
    name.

    Raises UserError where a file is missing, torn or foreign, or where the two do not belong together.
    """
    tensors, structure = Path(folder) / TENSORS, Path(folder) / STRUCTURE
    for file in (structure, tensors):
        if not file.is_file():
            raise UserError(f"{file}: there is no such file, and no state without it.\n{MEND}")
    written = read_json(structure, ("format", "sha256", "state"), MEND)
    if written["format"] != FORMAT:
        raise UserError(
            f"{structure}: state format {written['format']}, but this fedbench reads format {FORMAT}.\n"
            "Read it with the fedbench that wrote it."
        )
    if hash_of_file(tensors) != written["sha256"]:
        raise UserError(f"{tensors}: torn, or not the file that {STRUCTURE} beside it belongs to.\n{MEND}")
    return _put_together(structure, tensors, written["state"], devices)


def _nested(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON, its tensors entered under their places."""
    import torch

    if isinstance(value, torch.Tensor):
        tensors[place] = value
        return {TENSOR: place}
    if isinstance(value, dict):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise _no_state(place, f"has the key {odd[0]!r}, and keys are texts")
        return {_escaped(key): _nested(part, f"{place}/{_pointed(key)}", tensors) for key, part in value.items()}
    if isinstance(value, list):
        return [_nested(part, f"{place}/{i}", tensors) for i, part in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _no_state(place, f"is a {type(value).__name__}")


def _put_together(structure: Path, tensors: Path, value: Any, devices: Mapping[str, str]) -> dict[str, Any]:
    from safetensors.torch import load as read

    try:
        found = read(tensors.read_bytes())
        state = _filled(value, lambda name: found.pop(name).to(devices.get(name, "cpu")))
    except Exception as error:
        raise UserError(f"{structure}: not a state of fedbench ({type(error).__name__}: {error}).\n{MEND}") from error
    if found or not isinstance(state, dict):
        raise UserError(f"{structure}: not a state of fedbench (it does not fit {TENSORS}).\n{MEND}")
    return state


def _filled(value: Any, tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(value, list):
        return [_filled(part, tensor) for part in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return tensor(value[TENSOR]).clone()
    if FLOAT in value:
        return float(value[FLOAT])
    return {key.removeprefix("$"): _filled(part, tensor) for key, part in value.items()}


def _escaped(key: str) -> str:
    return f"${key}" if key.startswith("$") else key


def _pointed(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _no_state(place: str, what: str) -> UserError:
    return UserError(
        f"the method's state cannot be saved: {place or 'the state'} {what}.\n"
        "A state is nested dicts and lists of tensors and JSON scalars."
    )
