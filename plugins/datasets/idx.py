"""The IDX format of MNIST and its kin, read with care: nothing is taken from a header before the bytes are there.

A file is two zero bytes, a byte for the type of the values (8: unsigned bytes, the only one read here), one for the
number of axes, each axis as four bytes, the most significant first, and then the values, the last axis fastest.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.errors import UserError

if TYPE_CHECKING:
    import numpy as np

UNSIGNED = b"\0\0\x08"
MOST_AXES = 4


def unpacked(file: Path, size: int) -> bytes:
    """The bytes of a file, plain or packed by gzip, of which there must be `size`; no more are ever unpacked.

    Raises: UserError where it cannot be read, is damaged or cut short, or has another size.
    """
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = (gzip.GzipFile(fileobj=raw) if packed else raw).read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file} is damaged or cut short ({error}); fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    if len(data) != size:
        found = f"more than {size:,}" if len(data) > size else f"{len(data):,}"
        raise UserError(f"{file} holds {found} bytes{' once unpacked' * packed}, and should hold {size:,}")
    return data


def parse(data: bytes, what: object) -> np.ndarray:
    """The unsigned bytes of an IDX file, in its shape, as a view. what: to call it in a message.

    Raises: UserError for another type of values, and for axes that do not multiply to the number of values there are.
    """
    import numpy as np

    if data[:3] != UNSIGNED or len(data) < 4 or not 1 <= data[3] <= MOST_AXES:
        raise UserError(f"{what} begins with {data[:4].hex(' ') or 'nothing'}, which is no IDX file of unsigned bytes")
    head = 4 + 4 * data[3]
    if len(data) < head:
        raise UserError(f"{what} ends within its header")
    shape = struct.unpack(f">{data[3]}I", data[4:head])
    if not math.prod(shape) or math.prod(shape) != len(data) - head:
        told = " x ".join(f"{side:,}" for side in shape)
        raise UserError(f"{what} says that it holds {told} values, and holds {len(data) - head:,}")
    return np.frombuffer(data, dtype=np.uint8, offset=head).reshape(shape)


def assembled(values: np.ndarray) -> bytes:
    """The IDX file of unsigned bytes of any shape of up to four axes."""
    return UNSIGNED + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
