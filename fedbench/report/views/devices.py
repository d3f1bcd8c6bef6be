"""Tables of devices: their numbers, and which size of each method fits them and how long a round takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas

from fedbench.report.frames import Format, frame, page
from fedbench.types import Device
from fedbench.words import human_bytes, span

if TYPE_CHECKING:
    from fedbench.devices.feasibility import Outlook

NONE = "–"
LISTED = ("name", "memory", "flops", "flops_bf16", "down", "up", "watts", "message", "source")
WHERE = ("suite", "scenario", "variant", "backbone")
FORMATS = {
    "name": Format("device", part="name"),
    "memory": Format("memory", "bytes"),
    "flops": Format("fp32", "flops a second"),
    "flops_bf16": Format("bf16", "flops a second"),
    "down": Format("down/s", "bytes"),
    "up": Format("up/s", "bytes"),
    "watts": Format("watts", "rank"),
    "message": Format(unit="seconds", part=""),
    "source": Format(part=""),
    "method": Format("method", part=""),
    "size": Format("size"),
    "memory_bytes": Format("memory", "bytes"),
    "micro_batch": Format("micro-batch", "int"),
    "down_seconds": Format("down", "estimate"),
    "compute_seconds": Format("compute", "estimate"),
    "up_seconds": Format("up", "estimate"),
    "server_seconds": Format("server", "estimate"),
    "seconds": Format("round", "estimate"),
    **dict.fromkeys(
        ("capacity", "rank", "width", "least_memory", "bytes_down", "bytes_up", "images"), Format(part="")
    ),
}  # fmt: skip
SECONDS = ("down_seconds", "compute_seconds", "up_seconds", "server_seconds", "seconds")
Where = tuple[str, str, str]  # scenario, variant, backbone
Outlooks = Mapping[str, Sequence["Outlook"]]  # by the labels of methods


def listed(devices: Sequence[Device]) -> pandas.DataFrame:
    """The devices with their numbers and sources."""
    return frame(
        [{name: getattr(device, name) for name in LISTED} for device in devices],
        LISTED,
        caption="Devices",
        by=(),
        pages=[page((), title="Devices", remarks=[f"{one.name}: {one.source}" for one in devices if one.source])],
        formats=FORMATS,
        legend=[
            "memory: what training may take; fp32, bf16: FLOP/s that training sustains. docs/devices.md has the shares"
        ],
        dashes=True,
    )


def fitting(
    suite: str, scenarios: Mapping[Where, Outlooks], missing: Sequence[str], images: int, ruled: str, how: str
) -> pandas.DataFrame:
    """Which size of each method fits each device.

    Args:
        suite: its name.
        scenarios: by scenario, variant and backbone, what fits.
        missing: notes on methods that have no size here.
        images: training images of a client.
        ruled: what sizes must fit into.
        how: batch, precision and optimiser, a sentence.
    """
    rows, pages = [], []
    for where, found in scenarios.items():
        for labels, outlooks in _equal(found):
            shared = ", ".join(labels)
            for label in labels:
                rows += [{**row, "methods": shared} for row in _records((suite, *where), label, found[label])]
            ceiling = " · a ceiling, which holds all whatever fits" * outlooks[0].ceiling
            none = any(one.size is None for one in outlooks)
            least = f" · the smallest size needs {human_bytes(outlooks[0].least)}" if none else ""
            title = " · ".join(filter(None, (suite, *where)))
            pages.append(page((suite, *where, shared), title=title, caption=f"{shared}{ceiling}{least}"))
    if pages:
        pages[-1]["notes"] = list(missing)
    else:
        pages = [page((suite, "", "", "", ""), title=suite, notes=list(missing))]
    trained = sorted({one.images for found in scenarios.values() for ones in found.values() for one in ones})
    sizes = ("size", "capacity", "rank", "width", "least_memory", "memory_bytes", "micro_batch")
    names = (*WHERE, "method", "methods", "device", *sizes)
    return frame(
        rows,
        (*names, "bytes_down", "bytes_up", "images", *SECONDS),
        caption="Which size of each method fits each device",
        by=(*WHERE, "methods"),
        pages=pages,
        formats=FORMATS,
        legend=_legend(images, trained, ruled, how) if trained else [],
        dashes=True,
    )


def _legend(images: int, trained: Sequence[int], ruled: str, how: str) -> list[str]:
    """As of `fitting`; trained: on how many images clients train in a round."""
    return [
        f"size: the largest that fits {ruled}; {NONE}: none does.",
        how,
        "micro-batch: how many examples of a batch pass at once.",
        "Methods of equal sizes and costs share a table.",
        f"A round of a client of {images:,} training examples, which trains on {span(trained)} in it: down + compute + "
        "up, and where the server computes, its seconds for this client.",
    ]


def shared(found: pandas.DataFrame) -> pandas.DataFrame:
    """For people: methods of equal sizes and costs in one table, its rows once."""
    return found.drop_duplicates([*found.attrs["by"], "device"])


def _equal(found: Outlooks) -> list[tuple[list[str], Sequence[Outlook]]]:
    """Methods together that have the same sizes at the same cost on every device."""
    groups: dict[Any, tuple[list[str], Sequence[Outlook]]] = {}
    for label, rows in found.items():
        key = tuple((one.label, one.ceiling, one.size, one.needed, one.batch, one.seconds, one.least) for one in rows)
        groups.setdefault(key, ([], rows))[0].append(label)
    return list(groups.values())


def _records(where: Sequence[str], label: str, rows: Sequence[Outlook]) -> Iterator[dict[str, Any]]:
    for one in rows:
        size, took = one.size, one.seconds
        down, up = one.moved or (None, None)
        found: dict[str, Any] = {**dict(zip(WHERE, where, strict=True)), "method": label, "device": one.device.name}
        found |= {"size": size and one.label, "capacity": size and size.capacity, "rank": size and size.rank}
        found |= {"width": size and size.width, "least_memory": one.least, "memory_bytes": one.needed}
        found |= {"micro_batch": one.batch or None}
        found |= {"bytes_down": down, "bytes_up": up, "images": one.images}
        if took:
            found |= {"down_seconds": took.down, "compute_seconds": took.compute, "up_seconds": took.up}
            found |= {"server_seconds": took.server, "seconds": took.total}
        yield found
