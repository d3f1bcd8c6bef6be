"""The backbone `micro_cnn`: a convolutional network of 0.4 million parameters with group norm, never pre-trained."""

from __future__ import annotations

from torch import nn

from fedbench import hookimpl
from fedbench.models.backbone import Architecture, Source

IMAGE_SIZE = 32
HALF = (0.5, 0.5, 0.5)
CHANNELS = (32, 64, 128, 256)
GROUPS = 8


class MicroCNN(nn.Sequential):
    """Four times a 3x3 convolution, group norm and ReLU, the image halved between them; then the mean over what is left
    of it, and with classes a linear layer.

    Its weights are drawn from torch's current random state, as PyTorch draws them. Features are (B, 256).
    """

    num_features = CHANNELS[-1]

    def __init__(self, num_classes: int = 0) -> None:
        layers: list[nn.Module] = []
        for i, (before, channels) in enumerate(zip((3, *CHANNELS), CHANNELS, strict=False)):
            layers += [nn.MaxPool2d(2)] if i else []
            layers += [nn.Conv2d(before, channels, 3, padding=1, bias=False), nn.GroupNorm(GROUPS, channels), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, *([nn.Linear(CHANNELS[-1], num_classes)] if num_classes else []))


def micro_cnn() -> Source:
    """A CNN of four layers, 0.4 million parameters, with group norm, for 32x32 images: not pre-trained.

    Its weights are drawn from the run's seed. It cannot be cut into layers: for methods that train whole models.
    """
    architecture = Architecture(f"{__name__}:{MicroCNN.__name__}")
    return Source(MicroCNN(), IMAGE_SIZE, HALF, HALF, fingerprint="micro_cnn:drawn", architecture=architecture)


@hookimpl
def fedbench_register_backbones(register):
    register("micro_cnn", micro_cnn)
