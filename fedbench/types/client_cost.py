"""What a client and the server pay: bytes, FLOPs and memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

FROZEN = ("embedding", "backbone")  # the kinds of `Sent` that are frozen weights


@dataclass(frozen=True)
class Sent:
    """The bytes of one kind that a client and the server exchange.

    Attributes:
        what: `backbone` (frozen), `additions` (to it, last), `adapters`, `classifiers`, `weights`, `features`,
            `gradients`, `scalars`, `losses`, `counts` or `images`.
        down: Bytes to the client in a round, whatever the number of its steps.
        up: Bytes from the client in a round.
        down_per_image: Bytes to the client for every image of every step.
        up_per_image: Bytes from the client for every image of every step.
        down_last: Bytes to the client for every image of the round's last step.
        up_last: Bytes from the client for every image of the round's last step.
        down_after: Bytes sent back to a client whose update was accepted.
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
        """Return the bytes (down, up) of a round, without `down_after`.

        Args:
            images: Images of all steps.
            last: Images of the last step.
        """
        return (
            self.down + self.down_per_image * images + self.down_last * last,
            self.up + self.up_per_image * images + self.up_last * last,
        )


@dataclass(frozen=True)
class ServerCost:
    """What the server computes for one client in one round.

    Attributes:
        flops_per_image: FLOPs of every image of every step.
        flops_last: Additional FLOPs of every image of the round's last step.
        memory_bytes: Parameters, gradients, and the activations saved for a batch.
    """

    flops_per_image: int = 0
    flops_last: int = 0
    memory_bytes: int = 0

    def flops(self, images: int, last: int) -> int:
        """Return the FLOPs of a round of so many images, `last` of them in its last step."""
        return self.flops_per_image * images + self.flops_last * last


@dataclass(frozen=True)
class Frozen:
    """The part of a client's model that never changes, which it could keep from one round to the next.

    Attributes:
        embedding: Bytes of the vocabulary of a model of texts.
        outside: Bytes of all other frozen weights outside the layers.
        layer: Bytes of the frozen weights of each layer.
        flops_per_image: FLOPs of an image beneath the classifiers, where nothing is trained there; else 0.
        feature_bytes: Bytes of what the classifiers read of an image, where nothing is trained beneath them; else 0.
    """

    embedding: int
    outside: int
    layer: int
    flops_per_image: int = 0
    feature_bytes: int = 0


@dataclass(frozen=True)
class ClientCost:
    """What one client pays in one round.

    Attributes:
        flops_per_image: Forward and backward pass of one image; a multiply-add counts as 2 FLOPs.
        bytes_down: Frozen layers, adapters and classifiers sent to the client. The frozen part counts in every round,
            as FedRA's step 2 sends it.
        bytes_up: Adapters and classifiers sent back.
        memory_bytes: Parameters, gradients, optimiser state, what a regulariser keeps, and the activations saved for a
            batch. It is an estimate without what the allocator and libraries take.
        sent: These bytes kind by kind, and what every step adds to them.
        server: The server's part, for methods whose server computes along.
        flops_last: Additional FLOPs of every image of the round's last step.
        personal_epochs: Passes over its images in which a client also trains a personal model, within the same limits
            and at the same FLOPs per image.
        workspace_bytes: What is computed at once and not saved, where that is more: a batch that passes frozen layers,
            and features in transit with their gradients.
        batch: How many images pass at once, for which memory and workspace are counted; 0 where that is not known.
        passes: (bytes, bytes per image) that each kind of pass holds, of which the largest is part of `memory_bytes`;
            none where a batch cannot be computed in parts.
        frozen: The frozen part of its model, where it has one that it could keep.
        flops_once: FLOPs of this round whatever the number of its steps.
    """

    flops_per_image: int
    bytes_down: int
    bytes_up: int
    memory_bytes: int
    sent: tuple[Sent, ...] = ()
    server: ServerCost | None = None
    flops_last: int = 0
    personal_epochs: int = 0
    workspace_bytes: int = 0
    batch: int = 0
    passes: tuple[tuple[int, int], ...] = ()
    frozen: Frozen | None = field(default=None, compare=False)
    flops_once: int = 0

    def at(self, micro_batch: int) -> ClientCost:
        """Return the cost with at most so many images at once, where a batch can be computed in parts."""
        if not self.passes or micro_batch >= self.batch:
            return self
        fewer, usual = (max(fixed + B * each for fixed, each in self.passes) for B in (micro_batch, self.batch))
        return replace(
            self,
            memory_bytes=self.memory_bytes - usual + fewer,
            workspace_bytes=self.workspace_bytes * micro_batch // self.batch,
            batch=micro_batch,
        )

    def within(self, memory: int) -> ClientCost:
        """Return the cost with as few equal micro-batches as fit into so many bytes; with one image each if none do."""
        sizes = (-(-self.batch // parts) for parts in range(1, self.batch + 1))
        return next((cost for B in sizes if (cost := self.at(B)).needed_bytes <= memory), self.at(1))

    def with_frozen_sent(self, layers: int, outside: bool, missed: int = 0) -> ClientCost:
        """Return the cost of a client that kept frozen weights: it is sent those that it lacks.

        Args:
            layers: How many layers it lacks.
            outside: Whether it lacks the frozen weights outside the layers.
            missed: For how many rounds it lacks the additions to frozen weights; each took as much as the last one.
        """
        if self.frozen is None or not any(one.what in FROZEN for one in self.sent):
            return self
        lacking = {
            "embedding": self.frozen.embedding * outside,
            "backbone": self.frozen.outside * outside + self.frozen.layer * layers,
        }
        additions = sum(one.down for one in self.sent if one.what == "additions")
        whole = additions + sum(one.down for one in self.sent if one.what in FROZEN)
        lacking["additions"] = min(missed * additions, whole)
        sent = tuple(replace(one, down=lacking.get(one.what, one.down)) for one in self.sent)
        return replace(self, sent=sent, bytes_down=sum(one.down for one in sent))

    def with_features_kept(self, images: int = 0) -> ClientCost:
        """Return the cost of a client that keeps what the frozen model makes of its images.

        Args:
            images: Of how many images it computes that in this round.
        """
        beneath = self.frozen.flops_per_image if self.frozen else 0
        return replace(
            self, flops_per_image=self.flops_per_image - beneath, flops_once=self.flops_once + beneath * images
        )

    @property
    def needed_bytes(self) -> int:
        """Bytes that a device must have to train."""
        return self.memory_bytes + self.workspace_bytes

    def messages(self, steps: int, arrives: bool = True) -> tuple[int, int]:
        """Return how many messages go (down, up) in a round: one, and one for each step that exchanges something.

        Args:
            steps: How many steps the client takes.
            arrives: Whether the update reaches the server.
        """
        down = (self.bytes_down > 0) + steps * any(one.down_per_image for one in self.sent)
        up = (self.bytes_up > 0 and arrives) + steps * any(one.up_per_image for one in self.sent)
        return down, up

    def flops(self, images: int, last: int, arrives: bool = True, personal_images: int = 0) -> int:
        """Return the FLOPs of a round.

        Args:
            images: Images of all steps.
            last: Images of the last step.
            arrives: Whether the update reaches the server. A client whose update is lost does not reach its last step.
            personal_images: Images of the steps of its personal model.
        """
        stepwise = self.flops_per_image * (images + personal_images) + self.flops_last * (last if arrives else 0)
        return self.flops_once + stepwise

    def exchange(
        self, images: int, last: int, arrives: bool = True, refused: bool = False
    ) -> list[tuple[str, int, int]]:
        """Return (what, bytes down, bytes up) of a round, kind by kind.

        Args:
            images: Images of all steps.
            last: Images of the last step.
            arrives: Whether the update reaches the server. What the steps exchange counts in any case.
            refused: Whether the server refuses the update, and so sends nothing back.
        """
        given = self.sent or (Sent("weights", self.bytes_down, self.bytes_up),)
        lines = []
        for one in given:
            down, up = one.bytes_of(images, last if arrives else 0)
            back = one.down_after if arrives and not refused else 0
            lines.append((one.what, down + back, up if arrives else up - one.up))
        return lines
