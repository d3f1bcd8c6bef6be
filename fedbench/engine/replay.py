"""Many small kernels as one: a training step recorded once on a GPU and replayed for as long as it stays the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterable

import torch
from torch import Tensor

EAGER = 2  # steps before the recording: they create the optimiser's state and the libraries' workspaces

Inputs = dict[int, tuple[Tensor, Tensor]]


@functools.cache
def _stream() -> torch.cuda.Stream:
    """One for all recordings of this process: each stream has workspaces and free blocks of its own."""
    return torch.cuda.Stream()


class Replayed:
    """step(inputs) -> losses, by a CUDA graph from the third call with inputs of the same shapes on.

    Whatever else the step reads or writes (weights, gradients, optimiser state) must stay where it is from call
    to call. draws: the generators it draws from, which go on drawing from replay to replay.
    """

    def __init__(self, step: Callable[[Inputs], Tensor], draws: Iterable[torch.Generator]) -> None:
        self.step, self.draws = step, list(draws)
        self.stream = _stream()
        self.shapes: Hashable = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls, self.waits = 0, False

    def __call__(self, inputs: Inputs) -> Tensor:
        shapes = tuple((n, x.shape, y.shape) for n, (x, y) in inputs.items())
        if shapes != self.shapes:
            self.shapes, self.calls, self.graph, self.waits = shapes, 0, None, False
        self.calls += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if self.calls < EAGER or self.waits:
                losses = self.step(inputs)
            elif self.calls == EAGER:
                losses = self._tried(inputs)
            else:
                losses = self._replay(inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return losses

    def _tried(self, inputs: Inputs) -> Tensor:
        """The last eager step, which shows whether the CPU waits for the GPU in it: that cannot be recorded."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                losses = self.step(inputs)
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        self.waits = any("synchronizing" in str(warning.message) for warning in told)
        return losses

    def _replay(self, inputs: Inputs) -> Tensor:
        graph = self.graph
        if graph is None:
            self.inputs = {n: (x.clone(), y.clone()) for n, (x, y) in inputs.items()}
            graph = torch.cuda.CUDAGraph()
            for draw in self.draws:
                graph.register_generator_state(draw)
            # Records; nothing is computed yet. Other threads may go on bringing images.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self.losses = self.step(self.inputs)
            self.graph = graph
        for kept, new in zip(self.inputs.values(), inputs.values(), strict=True):
            torch._foreach_copy_(kept, new)
        graph.replay()
        return self.losses.clone()
