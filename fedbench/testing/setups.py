"""Set-ups small enough for tests: two tiny backbones, cohorts of random images, and a Setup in float64."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn

from fedbench.engine import sequential
from fedbench.method import Setup
from fedbench.models.backbone import Blocks, Source, body_of
from fedbench.registry.registry import Registry
from fedbench.simulation.state import ClientStore
from fedbench.types import Client, Cohort, Dataset, Scenario, Uploads

CLASSES = 3
Variants = Iterable[tuple[str, Callable[[], Any]]]  # what is made with another option, by what that is
SEEDED = "take `generator`, or fedbench.seeding.generator"

TRAIN = {
    "rounds": 3,
    "local_epochs": 1,
    "max_steps": None,
    "batch_size": 4,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "clip": 1.0,
}


def tiny_vit(depth: int = 4, dim: int = 8) -> nn.Module:
    """A timm ViT for 8x8 images: four patches, weights from seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return timm.models.VisionTransformer(
            img_size=8, patch_size=4, embed_dim=dim, depth=depth, num_heads=2, mlp_ratio=2.0, num_classes=0
        )


def tiny_mixer(depth: int = 4, dim: int = 8) -> nn.Module:
    """A timm MLP-Mixer of the same size."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return timm.models.MlpMixer(img_size=8, patch_size=4, embed_dim=dim, num_blocks=depth, num_classes=0)


class RandomBatches:
    """Batches of four random images in float64 for every client.

    There are `steps`, and `spare` more, as an epoch has more than the steps that a client takes.

    Attributes:
        taken: how many batches each pass over a client's images has taken, by the client's id.
        other_spare: whether those beyond `steps` have other images and labels than usual.
    """

    image_size = 8
    size = 4  # images of a batch

    def __init__(
        self,
        ids: Sequence[int],
        steps: int,
        spare: int = 0,
        taken: dict[int, list[int]] | None = None,
        other_spare: bool = False,
    ) -> None:
        self.ids, self.steps, self.spare, self.other_spare = ids, steps, spare, other_spare
        self.taken: dict[int, list[int]] = {} if taken is None else taken

    def __call__(self, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches (x, y) of the client at position n."""
        passes = self.taken.setdefault(self.ids[n], [])
        this = len(passes)
        passes.append(0)
        for batch in self._drawn(n):
            passes[this] += 1
            yield batch

    def first(self, n: int) -> int:
        """How many images the first batch of client n has."""
        return 4

    def labels(self, n: int) -> Tensor:
        """(4 steps,) int64: of the images of client n; to know them takes no batch."""
        drawn = [y for _, (_, y) in zip(range(self.steps), self._drawn(n), strict=False)]
        return torch.cat(drawn) if drawn else torch.empty(0, dtype=torch.int64)

    def only(self, rows: Sequence[int]) -> RandomBatches:
        """Those of the clients at these positions."""
        return RandomBatches([self.ids[n] for n in rows], self.steps, self.spare, self.taken, self.other_spare)

    def _drawn(self, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        draw = torch.Generator().manual_seed(100 + self.ids[n])
        for k in range(self.steps + self.spare):
            x = torch.randn(4, 3, 8, 8, generator=draw, dtype=torch.float64)
            y = torch.randint(CLASSES, (4,), generator=draw)
            yield (-x, (y + 1) % CLASSES) if self.other_spare and k >= self.steps else (x, y)


def cohort_of(
    capacities: list[int],
    examples: list[int] | None = None,
    steps: int = 2,
    ids: list[int] | None = None,
    ranks: list[int] | None = None,
    widths: list[float] | None = None,
    spare: int = 0,
    other_spare: bool = False,
) -> Cohort:
    """Return a cohort with other random images for every client, 3 classes, float64.

    For `spare` and `other_spare` see `RandomBatches`.
    """
    examples = examples or [4] * len(capacities)
    ids = ids if ids is not None else list(range(len(capacities)))
    batches = RandomBatches(ids, steps, spare, other_spare=other_spare)
    numbers = (capacities, examples, [steps] * len(capacities))
    L_n, D, K = (torch.tensor(values, dtype=torch.int64) for values in numbers)
    r_n = None if ranks is None else torch.tensor(ranks, dtype=torch.int64)
    width = None if widths is None else torch.tensor(widths, dtype=torch.float64)
    return Cohort(ids, L_n, D, K, batches, ranks=r_n, widths=width)


def setup_of(
    registry: Registry,
    model: nn.Module,
    capacities: list[int],
    adapter: dict[str, Any] | None = None,
    ranks: list[int] | None = None,
    widths: list[float] | None = None,
    engine: Callable[..., Uploads] = sequential.train,
    origin: str | None = None,
    image_size: int | None = None,
    **train: Any,
) -> Setup:
    """Return a set-up in float64 with the sequential engine, or another, and a dozen images for the server.

    `train` changes single training options, and `origin` is as in `Body`. `image_size` is 8 where none is given.
    """
    blocks = body_of(model, origin, image_size or 8).double()
    clients = [Client(i, i, np.arange(4)) for i in range(len(capacities))]
    options = {**TRAIN, **train}

    def component(kind: str, ref: Any) -> Any:
        if callable(ref):
            return ref
        return registry.make(kind, {"name": ref} if isinstance(ref, str) else ref, setup=setup)

    attach = registry.make("adapter", adapter or {"name": "lora", "rank": 2, "alpha": 4})

    def attach_in_double(model: Blocks) -> None:
        attach(model)
        model.double()

    L_n = np.array([[c, c] for c in capacities])
    r_n, width = (None if sizes is None else np.array([[size, size] for size in sizes]) for sizes in (ranks, widths))
    setup = Setup(
        backbone=blocks,
        adapter=attach_in_double,
        engine=engine,
        scenario=Scenario(clients, L_n, blocks.num_layers, options["rounds"], r_n, width),
        train=options,
        num_classes=CLASSES,
        image_size=image_size or 8,
        seed=0,
        component=component,
        store=ClientStore(),
        proxy=proxy_images,
    )
    return setup


def proxy_images() -> tuple[Tensor, Tensor]:
    """Twelve random images, four of each class."""
    draw = torch.Generator().manual_seed(99)
    x = torch.randn(4 * CLASSES, 3, 8, 8, generator=draw, dtype=torch.float64)
    return x, torch.arange(4 * CLASSES) % CLASSES


def expect(holds: object, message: str) -> None:
    """Raises AssertionError with the message, whatever Python's -O says."""
    if not holds:
        raise AssertionError(message)


def refuse(fault: str) -> None:
    """Raises AssertionError where there is a fault."""
    expect(not fault, fault)


@contextmanager
def shapes_are_enough(what: str, how: str = "") -> Iterator[None]:
    """Inside, shapes alone are computed, as by `fedbench plan`, which needs no values. Raises AssertionError."""
    try:
        yield
    except Exception as error:
        why = f"needs values where there are but shapes (device meta), as in plans{how}"
        raise AssertionError(f"{what} {why} ({type(error).__name__}: {error})") from error


def same(one: Any, other: Any, exactly: bool = True) -> bool:
    """Whether two nests of dicts, lists, tensors and plain values are equal, bit for bit or up to the order of sums."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key], exactly) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b, exactly) for a, b in zip(one, other, strict=True))
    if not exactly and isinstance(one, Tensor) and isinstance(other, Tensor) and one.is_floating_point():
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-8, equal_nan=True)
    if not exactly and isinstance(one, float) and isinstance(other, float) and one == one and other == other:
        return abs(one - other) <= 1e-5 * abs(one) + 1e-8 or one == other
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        both = isinstance(one, Tensor) and isinstance(other, Tensor)
        return (
            both
            and one.dtype == other.dtype
            and one.shape == other.shape
            and bool(((one == other) | (one != one)).all())
        )
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and (one == other or (one != one and other != other))


def close(one: Any, other: Any) -> bool:
    """Whether two nests are equal up to the order of sums."""
    return same(one, other, exactly=False)


def global_states() -> dict[str, Any]:
    """The states of the generators that the whole process shares."""
    return {"torch": torch.get_rng_state(), "NumPy": np.random.get_state(), "Python": random.getstate()}


@contextmanager
def untouched(*given: Any, what: str, instead: str = SEEDED) -> Iterator[None]:
    """Forbid, inside, changes of `given` and draws from the global generators of torch, NumPy and Python.

    `instead` says what to draw from.
    """
    before, states = copy.deepcopy(given), global_states()
    yield
    expect(same(before, given), f"{what} changes what it is given; work on a copy (`.clone()`)")
    drawn = [name for name, state in global_states().items() if not same(state, states[name])]
    expect(not drawn, f"{what} draws from a global generator (of {', '.join(drawn)}); {instead}")


@contextmanager
def shaken(seed: int) -> Iterator[None]:
    """Inside, the global generators stand elsewhere, so that what was drawn from them in secret comes out otherwise."""
    before = global_states()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before["Python"])
        np.random.set_state(before["NumPy"])
        torch.set_rng_state(before["torch"])


def twice(
    compute: Callable[[], Any],
    what: str,
    *given: Any,
    instead: str = SEEDED,
    memory: str = "keep nothing between calls",
) -> Any:
    """The result of a computation, which must leave `given` untouched and give the same result a second time.

    Args:
        compute: called with the global generators in another state the second time.
        what: the subject of messages.
        given: what it must not change.
        instead: what to draw from instead of a hidden generator.
        memory: where to keep what it may remember between calls.

    Raises:
        AssertionError: where it does not.
    """
    with shaken(1), untouched(*given, what=what, instead=instead):
        first = compute()
    with shaken(2):
        second = compute()
    expect(
        same(first, second),
        f"{what} gives another result when called again with the same seed: does it remember something, in a closure, "
        f"an object or the module? An interrupted run loses that: {memory}. Or does it read a clock, or draw from a "
        f"generator of its own? {instead}",
    )
    return first


def check_state(state: Any, who: str = "the method") -> None:
    """Check that a state is nested dicts (with texts as keys) and lists of contiguous tensors and JSON scalars.

    No tensor's memory occurs twice.
    """
    seen: dict[int, str] = {}

    def walk(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                expect(isinstance(key, str), f"{who}: the keys of {place} must be texts, not {key!r}")
                walk(part, f"{place}[{key!r}]")
        elif isinstance(value, list):
            for i, part in enumerate(value):
                walk(part, f"{place}[{i}]")
        elif isinstance(value, Tensor):
            expect(not value.requires_grad, f"{who}: {place} must be detached")
            expect(value.is_contiguous(), f"{who}: {place} is not contiguous, as it is when read from disk")
            memory = value.untyped_storage().data_ptr()
            twin = seen.setdefault(memory, place) if value.numel() else place
            expect(twin == place, f"{who}: {place} shares its memory with {twin}; clone one of them")
        else:
            plain = value is None or isinstance(value, bool | int | float | str)
            expect(plain, f"{who}: {place} is a {type(value).__name__}, which is neither tensor nor JSON")
            json.dumps(value)

    expect(isinstance(state, dict), f"{who} must give a dict as state, not {type(state).__name__}")
    walk(state, "state")


def check_fingerprint(one: Source | Dataset, other: Source | Dataset, how: str = "again") -> None:
    """Check that the same, made another time, has the same fingerprint."""
    expect(
        one.fingerprint == other.fingerprint,
        f"made {how}, the fingerprint is {other.fingerprint!r}, and was {one.fingerprint!r}: it must be a function of "
        "the options and the files, or no result would ever be found again",
    )


def confused(one: Source | Dataset, variants: Variants) -> Iterator[tuple[str, Any]]:
    """The variants of equal fingerprint, by what differs."""
    made = ((what, make()) for what, make in variants)
    return ((what, variant) for what, variant in made if variant and variant.fingerprint == one.fingerprint)
