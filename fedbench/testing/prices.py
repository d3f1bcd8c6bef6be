"""Whether clients pay for what they send: the bytes that a method declares beside those that are in its uploads."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedbench.cell.channel import messages_of
from fedbench.method import Method, State
from fedbench.models.places import places, started, trainers
from fedbench.testing.world import RandomBatches, expect
from fedbench.types import ClientCost, Report

FINEST = 1e6  # values of a message are told apart to a millionth of the largest
FLOPS_APART = 2  # times as many in a report as in a plan, or the other way round
BITS = 8  # of a number that has nearly a value of its own; an eighth of what the kit computes in


def check_costs(method: Method, before: State, report: Report, t: int) -> None:
    """What a plan says of round t, its report, and the uploads agree. before: the state before the round."""
    check_paid(method, before, report, t)
    check_planned(method, report, t)


def check_paid(method: Method, before: State, report: Report, t: int) -> None:
    """No client sends far more than it pays for, by the report of round t and by `cost`, of which plans are made.

    before: the state before the round. Compressed messages may pay less than what their rows take: only numbers that
    the client has changed count, with a byte each, and with fewer bits where they have few different values.
    """
    least = _least_bytes(before, report)
    for who, costs in (("its report", report.cost), ("`cost`", method.prices(report.cohort, t))):
        for n, cost in enumerate(costs):
            steps = int(report.uploads.steps[n])
            expect(
                cost is None or _declared(cost, steps) >= least[n],
                f"client {report.cohort.ids[n]} sends at least {least[n]} bytes in round {t}, however well they are "
                f"packed, and by {who} {cost and _declared(cost, steps)} bytes go up: `bytes_up` and what `sent` says "
                "of a ClientCost count all that is in a client's rows of `uploads`, numel() times element_size()",
            )


def check_planned(method: Method, report: Report, t: int) -> None:
    """What `cost` says of a round beforehand, of which plans are made, and what its report says of it afterwards: who
    takes part, and about how many FLOPs an image takes, which may depend on what the state chooses."""
    for n, cost in enumerate(method.prices(report.cohort, t)):
        who = f"client {report.cohort.ids[n]} takes part in round {t}"
        expect(cost is not None, f"{who}, and by `cost` it does not: None is for clients that the round leaves out")
        assert cost is not None
        before, after = cost.flops_per_image, report.cost[n].flops_per_image
        expect(
            max(before, after) <= FLOPS_APART * min(before, after),
            f"{who} at {after} FLOPs an image, and by `cost` at {before}: put the same ClientCost into the report",
        )


def _declared(cost: ClientCost, steps: int) -> int:
    """Bytes up of a round of so many steps of the kit's batches."""
    images = RandomBatches.size
    return sum(up for _, _, up in cost.exchange(images * steps, images * min(steps, 1)))


def _least_bytes(before: State, report: Report) -> list[int]:
    """Of every client the bytes that its message takes at least."""
    up, plan = report.uploads, report.plan
    rows = dict(places({"r": up.r, "shared": up.shared}))
    begun = dict(places(before)) if {"r", "shared"} <= before.keys() else {}
    own = {
        place: started(begun[place], plan, place, value.dim() - 1) if place in begun else torch.zeros_like(value)
        for place, value in rows.items()
    }
    senders = {place: trainers(plan, place) for place in rows}
    sent, given = (messages_of(values, up, plan, senders) for values in (rows, own))
    return [least_bytes(one, was) for one, was in zip(sent, given, strict=True)]


def least_bytes(sent: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> int:
    """What a message takes at least, by place, of a client that was given these values."""
    return math.ceil(sum(_bits(value.double() - given[place].double()) for place, value in sent.items()) / 8)


def _bits(change: Tensor) -> int:
    moved = change[change != 0]
    if not moved.numel():
        return 0
    values = (moved / moved.abs().max() * FINEST).round().unique().numel()
    return math.ceil(moved.numel() * (BITS if 2 * values > moved.numel() else min(BITS, math.log2(values))))
