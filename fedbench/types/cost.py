"""What a client and the server pay: bytes, FLOPs and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sent:
    """One kind of thing that crosses the line between a client and the server, in bytes.

    what: `backbone` (frozen), `additions` (to it, last), `adapters`, `classifiers`, `weights`, `features`, `gradients`,
    `losses`, `counts` · down, up: to and from the client in a round, however many its steps · down_per_image,
    up_per_image: added by every image of every step · down_last, up_last: added by every image of the round's last
    step · down_after: sent back to a client whose work was taken.
    """

    what: str
    down: int = 0
    up: int = 0
    down_per_image: int = 0
    up_per_image: int = 0
    down_last: int = 0
    up_last: int = 0
    down_after: int = 0

    def bytes_of(self, images: int, last: int) -> tuple[int, int]:
        """(down, up) of a round of so many images, `last` of them in its last step; without `down_after`."""
        return (
            self.down + self.down_per_image * images + self.down_last * last,
            self.up + self.up_per_image * images + self.up_last * last,
        )


@dataclass(frozen=True)
class ServerCost:
    """What the server computes for one client in one round.

    flops_per_image: of every image of every step · flops_last: more, for every image of the round's last step ·
    memory_bytes: what it holds at once: parameters, gradients, and the activations saved for a batch.
    """

    flops_per_image: int = 0
    flops_last: int = 0
    memory_bytes: int = 0

    def flops(self, images: int, last: int) -> int:
        """Of a round of so many images, `last` of them in its last step."""
        return self.flops_per_image * images + self.flops_last * last


@dataclass(frozen=True)
class ClientCost:
    """One client in one round.

    flops_per_image: forward and backward of one image (2 FLOPs a multiply-add) · bytes_down: frozen layers, adapters
    and classifiers sent to the client; the frozen part is counted in every round, as FedRA's step 2 sends it ·
    bytes_up: adapters and classifiers sent back · memory_bytes: parameters, gradients, optimiser state, what a
    regulariser keeps, and the activations saved for a batch (an estimate: what allocator and libraries take is not in
    it) · workspace_bytes: what it computes at once and does not save, where that is more: a batch that passes frozen
    layers, features on their way and their gradients ·
    sent: what these bytes are, kind by kind, and what every step adds to them · server: of methods whose server
    computes along · flops_last: more, for every image of the round's last step · epochs_beside: passes over its images
    in which a client trains a model of its own besides, within the same limits, at the same FLOPs an image.
    """

    flops_per_image: int
    bytes_down: int
    bytes_up: int
    memory_bytes: int
    sent: tuple[Sent, ...] = ()
    server: ServerCost | None = None
    flops_last: int = 0
    epochs_beside: int = 0
    workspace_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """What a device must have to train."""
        return self.memory_bytes + self.workspace_bytes

    def flops(self, images: int, last: int, arrives: bool = True, beside: int = 0) -> int:
        """Of a round of so many images, `last` of them in its last step, which a client whose work is lost has not
        come to; beside: images of its own model's steps."""
        return self.flops_per_image * (images + beside) + self.flops_last * (last if arrives else 0)

    def exchange(
        self, images: int, last: int, arrives: bool = True, refused: bool = False
    ) -> list[tuple[str, int, int]]:
        """(what, bytes down, bytes up) of a round of so many images, `last` of them in its last step. Of a client
        whose work is lost, what steps exchange has crossed all the same, what ends a round has not; one whose work is
        refused has sent it and gets nothing back."""
        given = self.sent or (Sent("weights", self.bytes_down, self.bytes_up),)
        lines = []
        for one in given:
            down, up = one.bytes_of(images, last if arrives else 0)
            back = one.down_after if arrives and not refused else 0
            lines.append((one.what, down + back, up if arrives else up - one.up))
        return lines
