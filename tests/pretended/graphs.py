"""CUDA graphs: the operators between beginning and end, undone, and then replayed on the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pretended.device import CAPTURING, Generator, Gpu
from pretended.rules import tensors


class Recording:
    """What is recorded. kept: as they were before, the storages that it has written to · made: what it has made."""

    def __init__(self, gpu: Gpu, draws: list[Generator]) -> None:
        self.gpu, self.draws, self.broken = gpu, draws, False
        self.steps: list[tuple[Any, tuple, dict, Any]] = []
        self.kept: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self.made: dict[int, Tensor] = {}

    def before(self, func: Any, args: tuple, kwargs: dict, given: list[Tensor]) -> None:
        """Keep what an operator is about to write to."""
        if not func._schema.is_mutable:
            return
        for x in given:
            storage = x.untyped_storage()
            if storage._cdata not in self.made and storage._cdata not in self.kept:
                self.kept[storage._cdata] = storage, storage.clone()

    def after(self, func: Any, args: tuple, kwargs: dict, out: Any) -> None:
        """Record an operator. Views of memory stay views; numbers of the CPU are as they were now."""
        known = {x.untyped_storage()._cdata for x in tensors((args, kwargs))}
        fresh = [x for x in tensors((out,)) if x.untyped_storage()._cdata not in known]
        self.made |= {x.untyped_storage()._cdata: x for x in fresh}
        if fresh or func._schema.is_mutable:
            self.steps.append((func, self._baked(args), self._baked(kwargs), out if fresh else None))

    def _baked(self, given: Any) -> Any:
        if isinstance(given, Tensor):
            return given if self.gpu.holds(given) else given.clone()
        if isinstance(given, list | tuple):
            return type(given)(self._baked(one) for one in given)
        return {key: self._baked(one) for key, one in given.items()} if isinstance(given, dict) else given

    @torch.no_grad()
    def undo(self) -> None:
        """Nothing has been computed yet: what was there is as it was, what was made is nothing."""
        for storage, old in self.kept.values():
            storage.copy_(old)
        for x in self.made.values():
            if x.is_floating_point():
                x.fill_(float("nan"))


class Graphs:
    """The graphs of a GPU. recorded, replayed: how many."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.recorded, self.replayed = gpu, 0, 0

    def make(self) -> Graph:
        return Graph(self)

    @contextmanager
    def graph(self, graph: Graph, pool: Any = None, stream: Any = None, capture_error_mode: str = "") -> Iterator[None]:
        """What stands for torch.cuda.graph. Raises RuntimeError at the end where anything in it was not permitted."""
        gpu, recording = self.gpu, Recording(self.gpu, graph.draws)
        states = [draw.get_state() for draw in graph.draws]
        gpu.recording = recording
        try:
            yield
        except Exception:
            recording.broken = True
            raise
        finally:
            gpu.recording = None
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                recording.undo()
            for draw, state in zip(graph.draws, states, strict=True):
                draw.set_state(state)
                draw.waiting = recording.broken
            self.recorded += not recording.broken
        if recording.broken:
            raise RuntimeError(f"{CAPTURING}: the graph is invalid")
        graph.recording = recording


class Graph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, graphs: Graphs) -> None:
        self.graphs, self.draws = graphs, []
        self.recording: Recording | None = None

    def register_generator_state(self, draw: Generator) -> None:
        self.draws.append(draw)

    @torch.no_grad()
    def replay(self) -> None:
        assert self.recording is not None, "nothing has been recorded"
        self.graphs.replayed += 1
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            for func, args, kwargs, out in self.recording.steps:
                new = func(*args, **kwargs)
                if out is not None:
                    for old, value in zip(tensors((out,)), tensors((new,)), strict=True):
                        old.copy_(value)
