"""A GPU that is none, for tests: what is "on cuda" lies in the CPU's memory and is marked; numbers are real.

    with pretended() as gpu:
        x = torch.ones(3, device="cuda")          # x.device.type == "cuda", x + torch.ones(3) raises
        gpu.waits                                  # how often, and where, the CPU has waited for it

The rules for code that is to run on a GPU: tensors of both sides do not mix, generators draw on their own side, and
other numbers there, and what makes the CPU wait is counted. Two modes of torch see Python's calls (`Calls`) and every
operator below them, those of a backward pass too (`Operators`).
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedbench import machine

CUDA = torch.device("cuda", 0)
TOTAL = 2**34  # bytes
_NOT_CALLERS = (str(Path(torch.__file__).parent), __file__)
MODES = {"default": 0, "error": 2}  # of torch's sync debug mode


class Gpu(threading.local):
    """What lies on the GPU, and how often the CPU has waited for it.

    Attributes:
        waits: How often, by what and where; of all threads.
        debug: torch's sync debug mode, 0 or 2.
        onto: Whether what this thread just makes is to lie on the GPU, where its inputs do not say so.
    """

    waits: Counter[tuple[str, str]]
    debug = 0
    onto: bool | None = None

    def __init__(self, storages: dict[int, StorageWeakRef], waits: Counter) -> None:  # in every thread anew
        self._storages, self.waits = storages, waits  # an address is used by no other while a weak reference is held

    def holds(self, tensor: Tensor) -> bool:
        """Whether it lies here; shapes alone, and what has no memory, lie nowhere."""
        try:
            return tensor.untyped_storage()._cdata in self._storages
        except (NotImplementedError, RuntimeError):
            return False

    def take(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._storages.setdefault(storage._cdata, StorageWeakRef(storage))

    def sweep(self) -> None:
        """Forget what nobody refers to any more."""
        for at in [at for at, ref in self._storages.items() if ref.expired()]:
            del self._storages[at]

    @contextmanager
    def making(self, onto: bool | None) -> Iterator[None]:
        """Inside, what is made lies on the GPU, or does not; None: where its inputs lie."""
        before, self.onto = self.onto, onto
        try:
            yield
        finally:
            self.onto = before

    def wait(self, what: str) -> None:
        """The CPU waits for the GPU. Raises RuntimeError where it must not."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.startswith(_NOT_CALLERS):
            frame = frame.f_back
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self.waits[what, place] += 1
        if self.debug == 2:
            raise RuntimeError(f"called a synchronizing CUDA operation: {what}, {place}")


class Generator(torch.Generator):
    """torch.Generator for both sides; on the pretended GPU one seed draws other numbers."""

    def __new__(cls, device: torch.device | str = "cpu") -> Generator:
        made = super().__new__(cls, "cpu")
        made.on_gpu = torch.device(device).type == "cuda"
        return made

    @property
    def device(self) -> torch.device:
        return CUDA if self.on_gpu else torch.device("cpu")

    def manual_seed(self, seed: int) -> Generator:
        super().manual_seed(seed ^ 0x6E0D1A if self.on_gpu else seed)
        return self


ANSWERS: dict[Callable, Callable[[bool, Tensor], Any]] = {
    Tensor.device.__get__: lambda there, x: CUDA if there else x.device,
    Tensor.is_cuda.__get__: lambda there, x: there,
    Tensor.is_cpu.__get__: lambda there, x: x.is_cpu and not there,
    Tensor.get_device: lambda there, x: 0 if there else x.get_device(),
}
WITHOUT_CONVERSION = (Tensor.numpy, Tensor.__array__)
FROM_DATA = (torch.tensor, torch.as_tensor)  # made here, copied there


class Calls(TorchFunctionMode):
    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping | None = None) -> Any:
        gpu, kwargs = self.gpu, dict(kwargs or {})
        if func in ANSWERS:
            return ANSWERS[func](gpu.holds(args[0]), args[0])
        if func in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return self._moved(func, *args, **kwargs)
        there = any(gpu.holds(x) for x in tensors((args, kwargs)))
        if there and func in WITHOUT_CONVERSION:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        if there and func is Tensor.tolist:
            gpu.wait("tolist")
        if func is Tensor.pin_memory:
            if there:
                raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
            return args[0].clone()
        asked = kwargs.get("device")
        onto = (func not in FROM_DATA or isinstance(args[0], Tensor)) if there else None  # a list of tensors is data
        if asked is not None:
            onto = torch.device(asked).type == "cuda"
            kwargs["device"] = "cpu" if onto else asked
        if func in FROM_DATA and onto and not there:
            gpu.wait("a copy from the CPU")
        if func in FROM_DATA and there and not isinstance(args[0], Tensor):
            gpu.wait("numbers of the GPU as data")
        for draw in (one for one in (*args, *kwargs.values()) if isinstance(one, torch.Generator)):
            self._check_draw(draw, "cuda" if onto else "cpu")
        with gpu.making(onto):
            out = func(*args, **kwargs)
        if onto and (func in FROM_DATA or func is Tensor.__deepcopy__):
            gpu.take(out)
        return out

    def _check_draw(self, draw: torch.Generator, kind: str) -> None:
        """Raises RuntimeError where a generator is of the other side."""
        if draw.device.type != kind:
            raise RuntimeError(f"Expected a '{kind}' device type for generator but found '{draw.device.type}'")

    def _moved(self, func: Callable, x: Tensor, *rest: Any, **kwargs: Any) -> Tensor:
        """x.to(...), x.cuda(), x.cpu(), whatever else they are asked for. A copy that goes the other way waits for the
        GPU, unless it need not."""
        device = {Tensor.cuda: "cuda", Tensor.cpu: "cpu"}.get(func, kwargs.pop("device", None))
        given, switches = [], ["non_blocking", "copy"]
        for one in rest if func is Tensor.to else ():
            if isinstance(one, Tensor):
                device, one = CUDA if self.gpu.holds(one) else one.device, one.dtype
            if isinstance(one, bool):
                kwargs[switches.pop(0)] = one
            elif isinstance(one, str | torch.device):
                device = one
            elif one is not None:
                given.append(one)
        there, kind = self.gpu.holds(x), None if device is None else torch.device(device).type
        if kind not in ("cuda", "cpu") or not x.is_cpu:  # shapes alone
            return x.to(*given, **kwargs) if kind is None else x.to(device, *given, **kwargs)
        if (kind == "cuda") == there:
            return x.to(*given, **kwargs)
        if not kwargs.pop("non_blocking", False):
            self.gpu.wait("a copy to the CPU" if there else "a copy from the CPU")
        with self.gpu.making(kind == "cuda"):
            return x.to(*given, **{**kwargs, "copy": True})


def tensors(given: Any) -> list[Tensor]:
    """All in lists, tuples and dicts."""
    found: list[Tensor] = []
    for one in given.values() if isinstance(given, dict) else given:
        if isinstance(one, Tensor):
            found.append(one)
        elif isinstance(one, list | tuple | dict) and one and not isinstance(one, torch.Size):
            found += tensors(one)
    return found


aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense,
    aten._unique,
    aten._unique2,
    aten.bincount,
    aten.equal,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
COPIES = {aten.copy_, aten._foreach_copy_}
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
ALL_TENSORS = {aten.cat, aten.stack}  # take no number of the CPU beside tensors of the GPU


class Operators(TorchDispatchMode):
    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Mapping | None = None) -> Any:
        gpu, kwargs = self.gpu, dict(kwargs or {})
        with torch._C.DisableTorchFunction():
            given = tensors((args, kwargs))
            there = [gpu.holds(x) for x in given]
            onto = any(there) if gpu.onto is None else gpu.onto
            self._check(func, args, kwargs, given, there)
            return self._marked(func(*args, **kwargs), given, onto)

    def _marked(self, out: Any, given: list[Tensor], onto: bool) -> Any:
        """What is new in a result, on its side."""
        if onto:
            old = {x.untyped_storage()._cdata for x in given if x.is_cpu}
            for x in tensors((out,)):
                if x.is_cpu and x.untyped_storage()._cdata not in old:
                    self.gpu.take(x)
        return out

    def _check(self, func: Any, args: tuple, kwargs: Mapping, given: list[Tensor], there: list[bool]) -> None:
        """Raises RuntimeError where tensors of both sides meet; counts where the CPU waits."""
        if not any(there):
            return
        kind = func.overloadpacket
        here = [x for x, on in zip(given, there, strict=True) if not on and x.is_cpu]
        if kind in COPIES:
            if here and not (args[2] if len(args) > 2 else kwargs.get("non_blocking")):
                self.gpu.wait("a copy between both sides")
        elif kind in INDEXED:
            self._check_index(args, kwargs)
        elif any(x.dim() or kind in ALL_TENSORS for x in here):  # numbers of the CPU may stand beside elements
            shapes = ", ".join(str(tuple(x.shape)) for x in here)
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({func}; on the CPU: {shapes})"
            )
        if kind in WAITING or func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            self.gpu.wait(str(func))

    def _check_index(self, args: tuple, kwargs: Mapping) -> None:
        target, *values = (args[0], *tensors(args[2:3]))
        indices = [x for x in args[1] if x is not None]
        on = self.gpu.holds
        if not on(target) and any(on(x) for x in (*indices, *values)):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        if any(not on(x) and x.dim() for x in values):
            raise RuntimeError("Expected all tensors to be on the same device: values on cpu, put in on cuda:0")
        if any(not on(x) for x in indices):
            self.gpu.wait("an index from the CPU")
        if any(x.dtype in (torch.bool, torch.uint8) for x in indices):
            self.gpu.wait("a mask as an index")


class Autocast(torch.autocast):
    """On the GPU is the CPU, for torch's autocast too."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def answers(gpu: Gpu) -> dict[str, Any]:
    """What stands in torch.cuda."""

    def debug(mode: int | str) -> None:
        gpu.debug = MODES.get(mode, mode)

    def free(device: Any = None) -> tuple[int, int]:
        gpu.sweep()
        return TOTAL, TOTAL

    facts = SimpleNamespace(name="pretended", total_memory=TOTAL, multi_processor_count=1)
    constant = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": "pretended",
        "get_device_capability": (7, 5), "get_device_properties": facts, "is_bf16_supported": True,
        "is_initialized": True, "empty_cache": None, "init": None, "reset_peak_memory_stats": None,
        "memory_allocated": 0, "memory_reserved": 0, "max_memory_allocated": 0,
        "get_per_process_memory_fraction": 1.0, "set_per_process_memory_fraction": None,
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),  # of the one that nobody may draw from
    }  # fmt: skip
    return {name: lambda *args, value=value, **kwargs: value for name, value in constant.items()} | {
        "get_sync_debug_mode": lambda: gpu.debug,
        "mem_get_info": free,
        "set_sync_debug_mode": debug,
        "synchronize": lambda device=None: gpu.wait("synchronize"),
    }


@contextmanager
def pretended() -> Iterator[Gpu]:
    """Inside, torch finds one GPU."""
    made = Gpu({}, Counter())
    with ExitStack() as stack:
        for name, value in answers(made).items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        for kind in ("cuda", "accelerator"):  # asks the driver
            check = f"_{kind}_graph_capture_health_check"
            stack.enter_context(patch.object(torch.optim.Optimizer, check, lambda optimizer: None, create=True))
        for name in ("is_autocast_enabled", "get_autocast_dtype"):
            told = getattr(torch, name)
            value = lambda kind="cuda", told=told: told("cpu" if kind == "cuda" else kind)  # noqa: E731
            stack.enter_context(patch.object(torch, name, value))
        stack.enter_context(patch.object(torch, "Generator", Generator))
        stack.enter_context(patch.object(torch, "autocast", Autocast))
        stack.enter_context(patch.object(machine, "has_gpu", lambda: True))
        stack.enter_context(Operators(made))
        stack.enter_context(Calls(made))
        yield made
