"""What a global model says on a GPU, by less work: its layers compiled, the last one for the class token alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from fedbench.engine import rounding, shortcuts
from fedbench.models.adapter import settled
from fedbench.models.backbone import Blocks
from fedbench.models.globalmodel import GlobalModel

Answer = Tensor | Mapping[str, Tensor]


def answer(predict: Callable[[Tensor], Answer], x: Tensor) -> Answer:
    """predict(x), up to the order of sums. Layers are compiled where those of training are, by graphs of their own:
    they serve batches of any size but one image, which is run plainly."""
    if not isinstance(predict, GlobalModel) or type(predict.blocks).forward is not Blocks.forward:
        return predict(x)
    last = _last_read(predict)

    def through(block: nn.Module, tokens: Tensor) -> Tensor:
        how, tokens = shortcuts.last_layer if block is last else _whole, rounding.rounded(tokens)
        if not shortcuts.pays(tokens) or len(tokens) == 1:
            return how(block, tokens)
        with settled(block):
            return shortcuts.compiled(how)(block, tokens)

    return predict.combine(predict.blocks.run(x, predict.layers, predict.exits, through))


def _whole(block: nn.Module, tokens: Tensor) -> Tensor:
    made: Tensor = block(tokens)
    return made


def _last_read(predict: GlobalModel) -> nn.Module | None:
    """The last layer, where one exit or several stand right behind it, and it is of the kind for that."""
    if not predict.layers or predict.last.depth < len(predict.layers):
        return None
    j = predict.layers[-1]
    return predict.blocks.blocks[j] if shortcuts.reads_class_token(predict.blocks, j) else None
