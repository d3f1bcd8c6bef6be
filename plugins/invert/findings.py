"""The probe on a finished cell: training images attacked through its last heads, encoder and tails."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedbench.errors import UserError
from fedbench.families.split.cut import Cut
from fedbench.families.split.server import Backward, ZerothOrder
from fedbench.models.backbone import in_layers
from fedbench.seeding import generator, numpy_generator
from fedbench.simulation.batches import Pixels
from fedbench.simulation.saved_model import reopen
from fedbench.types import Images

from .attack import ATTACKS, Descent, Learner, Mismatch, Observer, correlation, invert, psnr

if TYPE_CHECKING:
    from fedbench.registry.registry import Registry
    from fedbench.results import Result
    from fedbench.simulation.simulation import Simulation

OPTIONS = {"head_blocks", "tail_blocks", "server_lr"}  # of a method that cuts the model, read here
AVERAGED = 1000  # images at most, whose mean is the guess of one who has seen nothing


@dataclass(frozen=True)
class Probe:
    """How many training images of a cell are attacked, by which of ATTACKS, and how each searches."""

    victims: int = 4
    attacks: Collection[str] = ATTACKS
    descent: Descent = Descent()


@dataclass
class InversionScores:
    """PSNR in dB and correlation of one guess for each victim."""

    psnr: list[float] = field(default_factory=list)
    correlation: list[float] = field(default_factory=list)

    def add(self, guess: Tensor, truth: Tensor) -> None:
        self.psnr.append(psnr(guess, truth))
        self.correlation.append(correlation(guess, truth))

    def extend(self, other: InversionScores) -> None:
        self.psnr.extend(other.psnr)
        self.correlation.extend(other.correlation)


@dataclass
class Inversion:
    """One attack on several victims, with two controls: the mean training image as the guess (`mean`), and the same
    attack on noise (`blind`). images: what it rebuilt, (3, H, W) for each victim."""

    seen: str
    how: str
    attack: InversionScores = field(default_factory=InversionScores)
    mean: InversionScores = field(default_factory=InversionScores)
    blind: InversionScores = field(default_factory=InversionScores)
    images: list[np.ndarray] = field(default_factory=list)

    def add(self, truth: Tensor, guess: Tensor, mean: Tensor, blind: Tensor) -> None:
        """One victim more."""
        self.attack.add(guess, truth)
        self.mean.add(mean, truth)
        self.blind.add(blind, truth)
        self.images.append(guess[0].numpy())

    def extend(self, other: Inversion) -> None:
        """More victims of the same attack, such as another seed's."""
        self.attack.extend(other.attack)
        self.mean.extend(other.mean)
        self.blind.extend(other.blind)
        self.images.extend(other.images)


def is_split(result: Result) -> bool:
    """Whether a result is of a method that cuts the model between client and server."""
    return result.manifest.get("config", {}).get("method", {}).keys() >= OPTIONS


def split_methods(registry: Registry) -> list[str]:
    """The registered methods that cut the model between client and server."""
    methods = registry.catalogue.components["method"].values()
    return sorted(method.name for method in methods if method.options.keys() >= OPTIONS)


def findings(result: Result, registry: Registry, probe: Probe) -> tuple[list[Inversion], list[np.ndarray]]:
    """The probe's attacks on training images drawn from the cell's seed, each a batch of its own; and these images
    (3, H, W), in [0, 1].

    Raises: UserError where the cell is of another kind of method, is not finished or has kept no state.
    """
    if not is_split(result):
        raise UserError(f"{result.folder}: {result.entry.method} does not cut the model between client and server")
    simulation, _ = reopen(result.folder, registry)
    options = result.manifest["config"]["method"]
    cut = Cut(
        in_layers(simulation.model), len(simulation.dataset.classes), options["head_blocks"], options["tail_blocks"]
    )
    test = cast(Pixels, simulation.evaluation.test)  # normalised like the training images
    observer = Observer(cut, test.mean, test.std)
    learner, images, labels, mean = _learner(cut, simulation, options), *_images(simulation, probe.victims)
    found: dict[tuple[str, str], Inversion] = {}
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels' gradients have no gradients
        for v in range(probe.victims):
            x, y = images[v : v + 1], labels[v : v + 1]
            g_s = observer.g_s(x, y, learner, t=-1, client=v) if learner else None
            for one in observer.attacks(x, y, g_s, generator(simulation.seed, client=v, use="blind")):
                if one.how not in probe.attacks:
                    continue
                finding = found.setdefault((one.seen, one.how), Inversion(one.seen, one.how))
                guess, blind = (_inverted(m, x, probe.descent, simulation.seed, v) for m in (one.mismatch, one.blind))
                finding.add(x, guess, mean, blind)
    return list(found.values()), [image.numpy() for image in images]


def _inverted(mismatch: Mismatch, x: Tensor, how: Descent, seed: int, v: int) -> Tensor:
    """Of x the search knows the shape; attacks on one victim all start at the same noise."""
    return invert(mismatch, x.shape, how, generator(seed, client=v, use="invert"))


def _images(simulation: Simulation, victims: int) -> tuple[Tensor, Tensor, Tensor]:
    """x (victims, 3, H, W) in [0, 1], y (victims,), and the mean (1, 3, H, W) of training images but those."""
    train = cast(Images, simulation.dataset.load().train)
    if victims >= len(train):
        raise UserError(f"{victims} victims of {len(train)} training images: one at least has to be left")
    order = numpy_generator(simulation.seed, use="victims").permutation(len(train))

    def x(positions: np.ndarray) -> Tensor:
        found = torch.from_numpy(np.array(train.x[np.sort(positions)]))
        return found.float() / 255 if found.dtype == torch.uint8 else found

    chosen = np.sort(order[:victims])
    rest = order[victims : victims + AVERAGED]
    return x(chosen), torch.from_numpy(np.array(train.y[chosen])), x(rest).mean(0, keepdim=True)


def _learner(cut: Cut, simulation: Simulation, options: Mapping[str, Any]) -> Learner | None:
    """How the cell's server has its gradient; None where it learns nothing."""
    if options["server_lr"] == 0:
        return None
    if {"num_directions", "epsilon"} <= options.keys():
        return ZerothOrder(cut, simulation.seed, options["epsilon"], options["num_directions"])
    return Backward(cut)
