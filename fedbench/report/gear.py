"""Devices as people read them: their numbers, and which size of each method fits them and how long a round takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedbench.report.page import Column, Page, Shown, Table, View
from fedbench.report.records import csv_text, json_text
from fedbench.types import Device
from fedbench.words import human_bytes, roughly, span, three_digits

if TYPE_CHECKING:
    from fedbench.cell.outlook import Outlook

NONE = "–"
LISTED = ("name", "memory", "flops", "flops_bf16", "down", "up", "watts", "source")
WHERE = ("suite", "scenario", "variant", "backbone")
FITTED = ("method", "device", "size", "capacity", "rank", "width", "least_memory", "memory_bytes")
COST = ("bytes_down", "bytes_up", "images")
SECONDS = ("down_seconds", "compute_seconds", "up_seconds", "server_seconds", "seconds")
Where = tuple[str, str, str]  # scenario, variant, backbone
Found = Mapping[str, Sequence["Outlook"]]  # by the labels of methods


def listed(devices: Sequence[Device]) -> View:
    """The devices with their numbers and sources."""
    rows = [[getattr(device, key) for key in LISTED] for device in devices]
    return View(
        [Page("Devices", [numbers(devices)], remarks=[f"{one.name}: {one.source}" for one in devices if one.source])],
        ["memory: what training may take; fp32, bf16: FLOP/s that training sustains. docs/devices.md has the shares"],
        to_csv=lambda: csv_text(LISTED, rows),
        to_json=lambda: json_text([dict(zip(LISTED, row, strict=True)) for row in rows]),
    )


def numbers(devices: Sequence[Device]) -> Table:
    """A row for each device."""

    def column(title: str, texts: Iterable[str]) -> Column:
        return Column(title, "cost", [Shown(text) for text in texts])

    return Table(
        [
            Column("device", "name", [Shown(one.name) for one in devices], least=16),
            column("memory", (human_bytes(one.memory) for one in devices)),
            column("fp32", (_flops(one.flops) for one in devices)),
            column("bf16", (_flops(one.flops_bf16) for one in devices)),
            column("down/s", (human_bytes(one.down) for one in devices)),
            column("up/s", (human_bytes(one.up) for one in devices)),
            column("watts", (NONE if one.watts is None else f"{one.watts:g}" for one in devices)),
        ]
    )


def fitting(suite: str, scenarios: Mapping[Where, Found], missing: Sequence[str], images: int, ruled: str) -> View:
    """Which size of each method fits each device, of clients of so many training images. missing: notes on methods that
    have no size here · ruled: what sizes must fit into."""
    columns = (*WHERE, *FITTED, *COST, *SECONDS)
    pages = [
        Page(" · ".join(filter(None, (suite, *where))), [_table(*one) for one in _alike(found)])
        for where, found in scenarios.items()
    ]
    if not pages:
        return View([Page(suite, [], notes=missing)], [], to_csv=lambda: csv_text(columns, ()), to_json=lambda: "[]")
    if missing:
        pages[-1] = Page(pages[-1].title, pages[-1].tables, notes=missing)
    rows = [row for where, found in scenarios.items() for row in _records((suite, *where), found)]
    trained = sorted({one.images for found in scenarios.values() for ones in found.values() for one in ones})
    return View(
        pages,
        [
            f"size: the largest that fits {ruled}; {NONE}: none does.",
            "Methods of equal sizes and costs share a table.",
            f"A round of a client of {images:,} training images, which trains on {span(trained)} in it: down + compute "
            "+ up, and where the server computes along, its seconds for this client.",
        ],
        to_csv=lambda: csv_text(columns, ([row[key] for key in columns] for row in rows)),
        to_json=lambda: json_text(rows),
    )


def _alike(found: Found) -> list[tuple[list[str], Sequence[Outlook]]]:
    """Methods together that have the same sizes at the same cost on every device."""
    groups: dict[Any, tuple[list[str], Sequence[Outlook]]] = {}
    for label, rows in found.items():
        key = tuple(
            (one.told, one.ceiling, one.size, one.cost and one.cost.needed_bytes, one.seconds, one.least)
            for one in rows
        )
        groups.setdefault(key, ([], rows))[0].append(label)
    return list(groups.values())


def _table(labels: Sequence[str], rows: Sequence[Outlook]) -> Table:
    def column(title: str, texts: Iterable[str], left: bool = False) -> Column:
        return Column(title, "cost", [Shown(text) for text in texts], left=left)

    def seconds(name: str) -> list[str]:
        return [NONE if one.seconds is None else roughly(getattr(one.seconds, name)) for one in rows]

    columns = [
        Column("device", "name", [Shown(one.device.name) for one in rows], least=16),
        column("size", (NONE if one.size is None else one.told for one in rows)),
        column("memory", (NONE if one.cost is None else human_bytes(one.cost.needed_bytes) for one in rows)),
        column("down", seconds("down")),
        column("compute", seconds("compute")),
        column("up", seconds("up")),
    ]
    if any(one.seconds and one.seconds.server for one in rows):
        columns.append(column("server", seconds("server")))
    columns.append(column("round", seconds("total")))
    none = [i for i, one in enumerate(rows) if one.size is None]
    what = " · a ceiling, which holds all whatever fits" * rows[0].ceiling
    least = f" · the smallest size needs {human_bytes(rows[0].least)}" if none else ""
    return Table(columns, caption=", ".join(labels) + what + least, faint=none)


def _records(where: Sequence[str], found: Found) -> Iterable[dict[str, Any]]:
    for label, rows in found.items():
        for one in rows:
            size, cost, took = one.size, one.cost, one.seconds
            values: tuple[Any, ...] = (
                (*where, label, one.device.name, size and one.told, size and size.capacity)
                + (size and size.rank, size and size.width, one.least, cost and cost.needed_bytes)
                + (*(one.moved or (None, None)), one.images)
            )
            times = (None,) * 5 if took is None else (took.down, took.compute, took.up, took.server, took.total)
            yield dict(zip((*WHERE, *FITTED, *COST, *SECONDS), (*values, *times), strict=True))


def _flops(rate: float) -> str:
    """7.80 T."""
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if rate >= 0.9995 * 10**power:
            return f"{three_digits(rate / 10**power)} {prefix}"
    return three_digits(rate)
