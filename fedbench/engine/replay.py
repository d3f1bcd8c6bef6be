"""Many small kernels as one: a training step recorded once on a GPU and replayed for as long as it stays the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedbench.models.draws import Draws

WAITED = "called a synchronizing"  # how torch begins to tell of a wait
DEBUGGED = "Synchronization debug mode"  # and of the mode itself
EAGER = 2  # steps before the recording: they create the optimiser's state and the libraries' workspaces

Inputs = dict[int, tuple[Tensor, Tensor]]

_told: set[type[Exception]] = set()


@functools.cache
def _stream() -> torch.cuda.Stream:
    """One for all recordings of this process: each stream has workspaces and free blocks of its own."""
    return torch.cuda.Stream()


@dataclass
class Recorded:
    """What is known of a step on inputs of one shape: how often it was taken, whether it must be run eagerly, and its
    graph with the memory that this reads and writes."""

    calls: int = 0
    eager: bool = False
    graph: torch.cuda.CUDAGraph | None = None
    inputs: Inputs = field(default_factory=dict)
    losses: Tensor | None = None


class Replayed:
    """step(inputs) -> losses, by a CUDA graph from the third call with inputs of the same shapes on.

    Whatever else the step reads or writes (weights, gradients, optimiser state) must stay where it is from call
    to call. draws: what it draws from, which goes on drawing from replay to replay · most: of shapes that are known at
    a time; the one that was met least goes. A step that cannot be recorded is run eagerly; why is said once.
    """

    recording = True  # until one has failed for another reason than memory: old allocators do not get over that

    def __init__(self, step: Callable[[Inputs], Tensor], draws: Iterable[Draws], most: int = 1) -> None:
        self.step, self.draws, self.most = step, list(draws), most
        self.stream = _stream()
        self.known: dict[Hashable, Recorded] = {}

    def __call__(self, inputs: Inputs) -> Tensor:
        shapes = tuple((n, x.shape, y.shape) for n, (x, y) in inputs.items())
        if shapes not in self.known:
            while len(self.known) >= self.most:
                del self.known[min(self.known, key=lambda one: self.known[one].calls)]  # of equal ones the oldest
            self.known[shapes] = Recorded()
        one = self.known[shapes]
        one.calls += 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if one.calls < EAGER or one.eager:
                losses = self.step(inputs)
            elif one.calls == EAGER:
                losses = self._tried(one, inputs)
            else:
                losses = self._replay(one, inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return losses

    def _tried(self, one: Recorded, inputs: Inputs) -> Tensor:
        """The last eager step, which shows whether the CPU waits for the GPU in it: that cannot be recorded."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")  # itself a reason for torch to warn
            try:
                losses = self.step(inputs)
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        one.eager = any(WAITED in str(warning.message) for warning in told)
        for one_told in told:
            if not any(text in str(one_told.message) for text in (WAITED, DEBUGGED)):
                warnings.warn_explicit(one_told.message, one_told.category, one_told.filename, one_told.lineno)
        return losses

    def _replay(self, one: Recorded, inputs: Inputs) -> Tensor:
        if one.graph is None and not (Replayed.recording and self._record(one, inputs)):
            one.eager = True
            return self.step(inputs)
        assert one.graph is not None and one.losses is not None  # recorded
        for kept, new in zip(zip(*one.inputs.values(), strict=True), zip(*inputs.values(), strict=True), strict=True):
            torch._foreach_copy_(kept, new)  # all images, then all labels
        one.graph.replay()
        return one.losses.clone()

    def _record(self, one: Recorded, inputs: Inputs) -> bool:
        """Record the step as a graph, by which nothing is computed yet; False where that cannot be."""
        one.inputs = {n: (x.clone(), y.clone()) for n, (x, y) in inputs.items()}
        graph, before = torch.cuda.CUDAGraph(), [(draw.generator.get_state(), draw.asks()) for draw in self.draws]
        for draw in self.draws:
            graph.register_generator_state(draw.generator)
        try:  # other threads may go on bringing images
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                one.losses = self.step(one.inputs)
        except Exception as error:  # whatever it is: where it is the step's own fault, the eager step has it too
            Replayed.recording = isinstance(error, torch.OutOfMemoryError)
            _tell(error)
            one.inputs, one.losses = {}, None
            for draw, (state, asks) in zip(self.draws, before, strict=True):
                _renew(draw.generator, state)
                draw.ask_again(asks)
            return False
        one.graph = graph
        return True


def _tell(error: Exception) -> None:
    """Once for each kind of error in a process."""
    if type(error) not in _told:
        _told.add(type(error))
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"a training step cannot be recorded as a CUDA graph, going on without: {reason}", stacklevel=4)


def _renew(draw: torch.Generator, state: Tensor) -> None:
    """Let a generator draw again, from a state on: one whose recording has failed still waits for that to end."""
    fresh = torch.Generator(draw.device)
    fresh.set_state(state)
    draw.graphsafe_set_state(fresh.graphsafe_get_state())
