"""torch.cuda as the pretended GPU answers it, and the pretence switched on and off."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.cuda._utils import _get_device_index

from fedbench import machine
from pretended.device import Generator, Gpu
from pretended.memory import Memory
from pretended.operators import Operators
from pretended.rules import Rules

NAME = "pretended"
MODES = {"default": 0, "warn": 1, "error": 2}


class Autocast(torch.autocast):
    """On the GPU is the CPU, for torch's autocast too."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def answers(gpu: Gpu) -> dict[str, Any]:
    """What stands in torch.cuda."""
    memory = gpu.memory
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
        "get_per_process_memory_fraction": fraction,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),  # of the one that nobody may draw from
        "get_sync_debug_mode": lambda: gpu.debug,
        "max_memory_allocated": lambda device=None: memory.most,
        "mem_get_info": lambda device=None: (memory.free, memory.total),
        "memory_allocated": lambda device=None: memory.used(),
        "memory_reserved": lambda device=None: memory.used(),
        "set_per_process_memory_fraction": share,
        "set_sync_debug_mode": debug,
        "synchronize": lambda device=None: gpu.wait("synchronize"),
    }


def swaps(gpu: Gpu) -> Iterator[tuple[Any, str, Any]]:
    """(where, name, what stands there instead)"""
    yield from ((torch.cuda, name, value) for name, value in answers(gpu).items())
    for kind in ("cuda", "accelerator"):  # asks the driver
        yield torch.optim.Optimizer, f"_{kind}_graph_capture_health_check", lambda optimizer: None
    yield torch, "Generator", Generator
    yield torch, "autocast", Autocast
    for name in ("is_autocast_enabled", "get_autocast_dtype"):
        told = getattr(torch, name)
        yield torch, name, lambda kind="cuda", told=told: told("cpu" if kind == "cuda" else kind)
    yield machine, "has_gpu", lambda: True


@contextmanager
def gpu(total: int = 2**34, steps: Callable[[], None] = lambda: None) -> Iterator[Gpu]:
    """Inside, torch finds one GPU of so many bytes."""
    made = Gpu(Memory(total), Counter())
    missing = object()
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
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(Operators(made))
        stack.enter_context(Rules(made))
        yield made
