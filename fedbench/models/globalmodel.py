"""What a method has made: the layers and classifiers of its global model, as one thing to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedbench.models.backbone import Blocks
from fedbench.types import Exit

Combine = Callable[[list[Tensor]], Tensor | Mapping[str, Tensor]]


def only(logits: list[Tensor]) -> Tensor:
    """The one classifier's logits (B, C)."""
    (one,) = logits
    return one


@dataclass(frozen=True)
class GlobalModel:
    """Some layers of a backbone, the classifiers that read them, and how their logits become the answer.

    It holds no weights of its own: valid until the method's next call of `round` or `predictor`.

    Attributes:
        blocks: The backbone, loaded with the state.
        layers: Which of its layers are run, ascending.
        exits: Where classifiers read, in layers run.
        combine: Makes the answer of the logits of every exit, by default the only classifier's.
    """

    blocks: Blocks
    layers: Sequence[int]
    exits: Sequence[Exit]
    combine: Combine = only

    def __call__(self, x: Tensor) -> Tensor | Mapping[str, Tensor]:
        """Images (B, 3, H, W), or ids (B, T) -> logits (B, C), or several by name, the method's own answer first."""
        return self.combine(self.blocks(x, self.layers, self.exits))

    @property
    def reads_features(self) -> bool:
        """Whether it may be called with features (B, D), which never change, see `Blocks.reads_features`."""
        plain = type(self.blocks).forward is Blocks.forward
        return plain and self.blocks.reads_features(self.layers, self.exits)

    @property
    def last(self) -> Exit:
        """The deepest classifier."""
        return max(self.exits, key=lambda exit: exit.depth)

    def features(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W), or ids (B, T) -> (B, D): what the deepest classifier reads, after the frozen final norm
        and the model's pooling."""
        return self.blocks.pooled(x, self.layers[: self.last.depth])
