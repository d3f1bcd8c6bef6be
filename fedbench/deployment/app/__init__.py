"""What Flower runs, in a process for each message: doors to processes that have torch and the data at hand."""

from flwr.app import Array, ArrayRecord, Message, RecordDict

KIND = "fedbench.safetensors"


def record(content: bytes) -> RecordDict:
    """One array for the whole message: one for each tensor would take several percent more."""
    return RecordDict({"fedbench": ArrayRecord({"message": Array("uint8", (len(content),), KIND, content)})})


def content(message: Message) -> bytes:
    """The bytes of a message. Raises ValueError where it is not one of fedbench."""
    array = message.content["fedbench"]["message"]
    if array.stype != KIND:
        raise ValueError(f"not a message of fedbench: {array.stype!r}")
    return array.data
