"""torch.cuda as the pretended GPU answers it, and the pretence switched on and off."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.cuda._utils import _get_device_index

from fedbench import machine
from fedbench.cell import pixels
from fedbench.engine import replay
from pretended.device import Generator, Gpu
from pretended.graphs import Graphs
from pretended.memory import Memory
from pretended.operators import Operators
from pretended.rules import Rules

NAME = "pretended"
MODES = {"default": 0, "warn": 1, "error": 2}


class Stream:
    """Work in order, as everything is here."""

    def wait_stream(self, other: Stream) -> None: ...


class Autocast(torch.autocast):
    """On the GPU is the CPU, for torch's autocast too."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def answers(gpu: Gpu) -> dict[str, Any]:
    """What stands in torch.cuda."""
    memory, graphs = gpu.memory, gpu.graphs
    facts = SimpleNamespace(name=NAME, total_memory=memory.total, multi_processor_count=1)

    def share(fraction: float, device: Any = None) -> None:
        memory.fraction = fraction

    def fraction(device: Any = None) -> float:
        if device is not None:
            _get_device_index(device)  # of torch, which takes no "cuda" without a number here
        return memory.fraction

    def debug(mode: int | str) -> None:
        gpu.debug = MODES.get(mode, mode)

    constant = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_name": NAME,
        "get_device_capability": (7, 5), "get_device_properties": facts, "is_bf16_supported": True,
        "is_initialized": True, "empty_cache": None, "init": None,
        "reset_peak_memory_stats": None,
    }  # fmt: skip
    return {name: lambda *args, value=value, **kwargs: value for name, value in constant.items()} | {
        "CUDAGraph": graphs.make,
        "Stream": Stream,
        "current_stream": lambda device=None: Stream(),
        "get_per_process_memory_fraction": fraction,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),  # of the one that nobody may draw from
        "get_sync_debug_mode": lambda: gpu.debug,
        "graph": graphs.graph,
        "is_current_stream_capturing": lambda: gpu.recording is not None,
        "max_memory_allocated": lambda device=None: memory.most,
        "mem_get_info": lambda device=None: (memory.free, memory.total),
        "memory_allocated": lambda device=None: memory.used(),
        "memory_reserved": lambda device=None: memory.used(),
        "set_per_process_memory_fraction": share,
        "set_sync_debug_mode": debug,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device=None: gpu.wait("synchronize"),
    }


def swaps(gpu: Gpu) -> Iterator[tuple[Any, str, Any]]:
    """(where, name, what stands there instead)"""

    class Threads(ThreadPoolExecutor):
        """Whose threads see the GPU too."""

        def __init__(self, **given: Any) -> None:
            super().__init__(initializer=lambda: [mode.__enter__() for mode in (Operators(gpu), Rules(gpu))], **given)

    def health(optimizer: torch.optim.Optimizer) -> None:
        if gpu.recording is not None and not all(group["capturable"] for group in optimizer.param_groups):
            raise RuntimeError("Attempting CUDA graph capture of step(), but param_groups' capturable is False")

    yield from ((torch.cuda, name, value) for name, value in answers(gpu).items())
    yield from (
        (torch.optim.Optimizer, f"_{kind}_graph_capture_health_check", health) for kind in ("cuda", "accelerator")
    )
    yield torch, "Generator", Generator
    yield torch, "autocast", Autocast
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        told = getattr(torch, name)
        yield torch, name, lambda kind="cuda", told=told: told("cpu" if kind == "cuda" else kind)
    yield pixels, "ThreadPoolExecutor", Threads
    yield machine, "has_gpu", lambda: True


@contextmanager
def gpu(total: int = 2**34, steps: Callable[[], None] = lambda: None) -> Iterator[Gpu]:
    """Inside, torch finds one GPU of so many bytes."""
    made = Gpu(Memory(total), Counter())
    made.graphs = Graphs(made)
    missing = object()
    replay._stream.cache_clear()
    with ExitStack() as stack:
        for where, name, value in swaps(made):
            before = (
                vars(where).get(name, missing) if not isinstance(where, type(sys)) else getattr(where, name, missing)
            )
            setattr(where, name, value)
            if before is missing:
                stack.callback(delattr, where, name)
            else:
                stack.callback(setattr, where, name, before)
        stack.callback(replay._stream.cache_clear)
        stack.callback(setattr, replay.Replayed, "recording", True)
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(Operators(made))
        stack.enter_context(Rules(made))
        yield made
