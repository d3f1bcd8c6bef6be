"""What Python's calls of torch mean where tensors lie on the pretended GPU: where they go, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pretended.device import CUDA, Gpu

ANSWERS: dict[Callable, Callable[[bool, Tensor], Any]] = {
    Tensor.device.__get__: lambda there, x: CUDA if there else x.device,
    Tensor.is_cuda.__get__: lambda there, x: there,
    Tensor.is_cpu.__get__: lambda there, x: x.is_cpu and not there,
    Tensor.get_device: lambda there, x: 0 if there else x.get_device(),
}
WITHOUT_CONVERSION = (Tensor.numpy, Tensor.__array__)
FROM_DATA = (torch.tensor, torch.as_tensor)  # made here, copied there


class Rules(TorchFunctionMode):
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
