"""What clients keep for themselves between rounds: tensors in files named by their content, read when needed."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.disk import cannot_write, hash_of_bytes, hash_of_file, settle, write_atomically
from fedbench.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".safetensors"


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
