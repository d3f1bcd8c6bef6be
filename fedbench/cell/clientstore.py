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

from fedbench.disk import hash_of_bytes, hash_of_file, write_atomically
from fedbench.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".safetensors"


class ClientStore:
    """Tensors of clients, each set of them in a file called by the SHA-256 of its bytes.

    A method's state refers to them as `state["clients"] = {str(client id): key}`; a client that never took part has
    no entry. Putting changes nothing that is there, so that a state remains what it was for as long as somebody
    refers to it, and equal states have equal keys.

    pinned: the keys that checkpoints refer to, by checkpoint; `sweep` leaves them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: made with the first file; by default a temporary one that ends with the store."""
        self._given = folder
        self.pinned: dict[str, frozenset[str]] = {}

    @cached_property
    def folder(self) -> Path:
        if self._given is not None:
            return Path(self._given)
        made = tempfile.mkdtemp(prefix="fedbench-clients-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return Path(made)

    def put(self, tensors: Mapping[str, Tensor]) -> str:
        """The key of these tensors, which are on disk from now on. Raises UserError where they cannot be written."""
        import torch
        from safetensors.torch import save

        content = save(
            {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
        )
        key = hash_of_bytes(content)
        if not self._whole(key):
            write_atomically(self._file(key), content)
        return key

    def get(self, key: str, device: str = "cpu") -> dict[str, Tensor]:
        """The tensors of that key by name, in the names' order, in memory of their own. Raises UserError where they are
        missing or torn."""
        from safetensors.torch import load

        content = self._file(key).read_bytes() if self._there(key) else None
        if content is None:
            raise UserError(
                f"a client's own model is not kept ({key[:12]}): a finished cell has the model of the server alone."
            )
        if hash_of_bytes(content) != key:
            raise UserError(f"{self._file(key)}: torn (its hash is another).")
        # safetensors gives them in a random order, and sums over them would not come out the same twice.
        return {name: value.to(device, copy=True) for name, value in sorted(load(content).items())}

    def check(self, keys: Iterable[str]) -> None:
        """Raises UserError where a key's tensors are missing or torn."""
        for key in keys:
            if not self._there(key):
                raise UserError(f"{self._file(key)}: missing.")
            if not self._whole(key):
                raise UserError(f"{self._file(key)}: torn (its hash is another).")

    def sweep(self, state: Mapping[str, Any]) -> None:
        """Delete what neither this state nor a checkpoint refers to."""
        if not self._exists():
            return
        wanted = {key + _SUFFIX for key in keys_of(state).union(*self.pinned.values())}
        for file in self.folder.iterdir():
            if file.name not in wanted:
                file.unlink(missing_ok=True)

    def _exists(self) -> bool:
        return (self._given is not None or "folder" in vars(self)) and self.folder.is_dir()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _there(self, key: str) -> bool:
        return bool(_KEY.fullmatch(key)) and self._file(key).is_file()

    def _whole(self, key: str) -> bool:
        return self._there(key) and hash_of_file(self._file(key)) == key


def keys_of(state: Mapping[str, Any]) -> set[str]:
    """The keys that a state refers to."""
    clients = state.get("clients")
    values = clients.values() if isinstance(clients, Mapping) else ()
    return {key for key in values if isinstance(key, str) and _KEY.fullmatch(key)}
