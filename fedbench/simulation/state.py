"""A method's state as files, and what clients keep between rounds: tensors, frozen weights, features of images."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.disk import cannot_write, hash_of_bytes, hash_of_file, settle, write_atomically
from fedbench.errors import UserError
from fedbench.results.documents import json_text, read_json
from fedbench.results.files import STRUCTURE, TENSORS
from fedbench.types import ClientCost
from fedbench.types.client_cost import FROZEN

if TYPE_CHECKING:
    from torch import Tensor


FORMAT = 1
MEND = "Run the cell again with --force, or copy both files from where they are whole."
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".safetensors"

# What JSON cannot say is an object with one of these keys; a key of the state that begins with $ gets another one.
TENSOR, FLOAT = "$tensor", "$float"


def save(folder: Path, state: dict[str, Any]) -> None:
    """Write a state into a folder: nested dicts (texts as keys) and lists of tensors and JSON scalars.

    Equal states give equal files. Each file is whole or not there, but the two are renamed one after the other:
    who needs the last state until the next one is whole saves that into another folder. Raises UserError for what is
    no state, or where the folder cannot be written to.
    """
    for name, content in file_bytes(state).items():
        write_atomically(Path(folder) / name, content)


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
        raise UserError(f"{tensors}: torn, or not the file that {STRUCTURE} next to it belongs to.\n{MEND}")
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


class ClientStore:
    """Tensors of clients, each set of them in a file called by the SHA-256 of its bytes.

    A method's state refers to them as `state["clients"] = {str(client id): key}`; a client that never took part has
    no entry. Putting changes nothing that is there, so that a state remains what it was for as long as somebody
    refers to it, and equal states have equal keys. What is put outlives the process at once, and the machine from
    `settle` on: a checkpoint settles what it is to name.

    Of several processes that compute a cell together one writes and deletes files; the stores of the others `follow`.

    pinned: the keys that checkpoints refer to, by checkpoint; `sweep` leaves them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: made with the first file; by default a temporary one that ends with the store."""
        self._given = folder
        self.pinned: dict[str, frozenset[str]] = {}
        self._unsettled: set[Path] = set()
        self._followed: dict[str, bytes] | None = None  # of a store that follows: what it was given, by key

    def follow(self) -> None:
        """From now on write and delete nothing: to be called in a copy of the process whose files these are. What is
        put stays in memory until a sweep finds that the other process has written it too."""
        self._followed = {}

    @cached_property
    def folder(self) -> Path:
        if self._given is not None:
            return Path(self._given)
        made = tempfile.mkdtemp(prefix="fedbench-clients-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return Path(made)

    def put(self, tensors: Mapping[str, Tensor]) -> str:
        """The key of these tensors, which `get` knows from now on. Raises UserError where they cannot be written."""
        from safetensors.torch import save

        content = save(_here(tensors))
        key = hash_of_bytes(content)
        if self._followed is not None:
            self._followed[key] = content
        elif not self._whole(key):
            write_atomically(self._file(key), content, lasting=False)
            self._unsettled.add(self._file(key))
        return key

    def settle(self) -> None:
        """Return when all that was put, and not swept since, is on the disk. Raises UserError where it cannot be."""
        for file in sorted(self._unsettled):
            try:
                settle(file)
            except OSError as error:
                raise cannot_write(file, error) from error
        self._unsettled.clear()

    def get(self, key: str, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of that key by name, in the names' order, in memory of their own. Raises UserError where they are
        missing or torn."""
        from safetensors.torch import load

        own = (self._followed or {}).get(key)
        content = self._read(key) if own is None else own
        # safetensors gives them in a random order, and sums over them would not come out the same twice.
        return {name: _sent(value, device) for name, value in sorted(load(content).items())}

    def _read(self, key: str) -> bytes:
        if not self._there(key):
            raise UserError(
                f"a client's own model is not kept ({key[:12]}): a finished cell has the model of the server alone."
            )
        content = self._file(key).read_bytes()
        if hash_of_bytes(content) != key:
            raise UserError(f"{self._file(key)}: torn (its hash is another).")
        return content

    def check(self, keys: Iterable[str]) -> None:
        """Raises UserError where a key's tensors are missing on the disk, or torn."""
        for key in keys:
            if not self._there(key):
                raise UserError(f"{self._file(key)}: missing.")
            if not self._whole(key):
                raise UserError(f"{self._file(key)}: torn (its hash is another).")

    def sweep(self, state: Mapping[str, Any], torn: bool = False) -> None:
        """Delete what neither this state nor a checkpoint refers to. torn: also what a killed process left half
        written, where no other uses the folder. One that follows deletes nothing: it forgets what nothing refers to,
        and what is on the disk by now, to stay there until every process has called for the next sweep."""
        if self._followed is not None:
            live = keys_of(state)
            self._followed = {k: own for k, own in self._followed.items() if k in live and not self._whole(k)}
            return
        if not self._exists():
            return
        wanted = {self._file(key) for key in keys_of(state).union(*self.pinned.values())}
        self._unsettled &= wanted
        for file in self.folder.iterdir() if self.folder.is_dir() else ():
            if file not in wanted and (torn or file.suffix == _SUFFIX):
                file.unlink(missing_ok=True)

    def _exists(self) -> bool:
        return self._given is not None or "folder" in vars(self)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _there(self, key: str) -> bool:
        return bool(_KEY.fullmatch(key)) and self._exists() and self._file(key).is_file()

    def _whole(self, key: str) -> bool:
        return self._there(key) and hash_of_file(self._file(key)) == key


def keys_of(state: Mapping[str, Any]) -> set[str]:
    """The keys that a state refers to."""
    clients = state.get("clients")
    values = clients.values() if isinstance(clients, Mapping) else ()
    return {key for key in values if isinstance(key, str) and _KEY.fullmatch(key)}


def _here(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, in memory of their own. Waits for a GPU once."""
    import torch

    whole = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    here = {name: value.to("cpu", non_blocking=True) for name, value in whole.items()}
    if any(value.is_cuda for value in whole.values()):
        torch.cuda.synchronize()
    return here


def _sent(value: Tensor, device: str) -> Tensor:
    """A copy on that device, for which a GPU is not waited."""
    there = device.startswith("cuda")
    return value.pin_memory().to(device, non_blocking=True) if there else value.to(device, copy=True)


@dataclass
class Kept:
    """What one client has kept: the layers whose frozen weights it has, the positions of the images whose features it
    has, and the last round in which it took part, from 0."""

    layers: set[int] = field(default_factory=set)
    images: set[int] = field(default_factory=set)
    last: int | None = None


@dataclass
class ClientStorage:
    """What every client has kept so far, by a suite's `frozen_weights: cached` and `frozen_features: kept`.

    A client keeps the frozen weights of every layer that it ever held, and those outside the layers. Where nothing
    beneath the classifiers is trained, it keeps what they read of every image that it has trained on. Whoever is lost
    in a round has kept what it was sent.

    weights, features: whether clients keep them.
    """

    weights: bool = False
    features: bool = False
    of: dict[int, Kept] = field(default_factory=dict)

    @classmethod
    def said(cls, config: Mapping[str, Any]) -> ClientStorage:
        """What the configuration of a cell says, before the first round."""
        return cls(config.get("frozen_weights") == "cached", config.get("frozen_features") == "kept")

    @property
    def is_used(self) -> bool:
        """Whether clients keep anything."""
        return self.weights or self.features

    def keep(self, t: int, client: int, layers: Iterable[int], images: Iterable[int] = ()) -> None:
        """Note what a client keeps of round t."""
        kept = self.of.setdefault(client, Kept())
        kept.layers.update(layers)
        kept.images.update(images)
        kept.last = t

    def charged(
        self, t: int, client: int, cost: ClientCost, held: Collection[int], images: np.ndarray
    ) -> tuple[ClientCost, list[int]]:
        """What a client pays in round t, and the layers whose frozen weights it is sent; it keeps both.

        Args:
            held: the layers that it holds in this round.
            images: positions of those that it trains on.
        """
        kept = self.of.get(client, Kept())
        lacks, unseen = sorted(set(held) - kept.layers), set(images.tolist()) - kept.images
        if self.weights:
            missed = 0 if kept.last is None else t - kept.last
            cost = cost.with_frozen_sent(len(lacks), outside=kept.last is None, missed=missed)
        if self.features:
            cost = cost.with_features_kept(len(unseen))
        self.keep(t, client, lacks, unseen)
        return cost, lacks

    def stored(self, client: int, cost: ClientCost) -> int:
        """Bytes that a client has kept by now. cost: of its last round."""
        frozen, kept, bytes_kept = cost.frozen, self.of[client], 0
        if frozen and self.weights and any(one.what in FROZEN for one in cost.sent):
            bytes_kept += frozen.embedding + frozen.outside + len(kept.layers) * frozen.layer
        if frozen and self.features:
            bytes_kept += len(kept.images) * frozen.feature_bytes
        return bytes_kept

    def steady(self, cost: ClientCost) -> ClientCost:
        """What a client pays in a round that adds nothing to what it keeps."""
        if self.weights:
            cost = cost.with_frozen_sent(0, outside=False, missed=1)
        return cost.with_features_kept() if self.features else cost
