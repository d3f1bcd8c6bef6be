"""Which method for which device: the matrix, its order, and what is recommended."""

from __future__ import annotations

from fedbench.devices.feasibility import Outlook
from fedbench.devices.fitting import RoundSeconds
from fedbench.devices.table import SHIPPED
from fedbench.report.frames import records
from fedbench.report.views.choice import choice, recommendation
from fedbench.types import Size

PHONE, LAPTOP = SHIPPED["phone_high"], SHIPPED["laptop"]
ROLES = {"deep": "method", "wide": "method", "small": "method", "probe": "control"}


def on(device, size, seconds=0.0, only=False):
    if size is None:
        return Outlook(device, None, None, None, None, None, 10, 5, only)
    return Outlook(device, size, 2_000_000, 4, RoundSeconds(0.0, seconds, 0.0), (3_000_000, 1_000_000), 10, 5, only)


FOUND = {
    "deep": [on(PHONE, None), on(LAPTOP, Size(12), 2.0)],
    "wide": [on(PHONE, Size(12, width=0.5), 60.0), on(LAPTOP, Size(12, width=1.0), 3.0)],
    "small": [on(PHONE, Size(12), 30.0, only=True), on(LAPTOP, Size(12), 1.0, only=True)],
    "probe": [on(PHONE, Size(12), 1.0), on(LAPTOP, Size(12), 1.0)],
}
SCORED = {
    "deep": {Size(12): 0.9, Size(6): 0.5},
    "wide": {Size(12, width=0.5): 0.6, Size(12, width=1.0): 0.8, None: 0.8},
    "small": {None: 0.4},
}


def test_the_matrix_has_size_memory_seconds_bytes_and_the_accuracy_at_that_size():
    matrix, cells = choice("vit", FOUND, ROLES, SCORED, "Clients train somehow.")
    assert list(matrix.columns) == ["method", "phone_high", "laptop"]
    assert list(matrix["method"]) == ["wide", "small", "probe", "deep"]  # first what fits most, of these the best
    shown = {row["method"]: row for row in records(matrix)}
    assert shown["wide"]["phone_high"] == "width 0.5 · 2.00 MB · 60 s · 4.00 MB · 60.0 %"
    assert shown["small"]["laptop"] == "one size · 2.00 MB · 1.0 s · 4.00 MB · 40.0 %"
    assert shown["deep"]["phone_high"] == "–" and shown["probe"]["laptop"].endswith(" · –")
    (row,) = (row for row in records(cells) if (row["method"], row["device"]) == ("wide", "phone_high"))
    assert (row["width"], row["accuracy"], row["micro_batch"], row["bytes"]) == (0.5, 0.6, 4, 4_000_000)


def said(found, scored):
    _, cells = choice("vit", found, ROLES, scored, "")
    return cells.attrs["legend"][-1]


def test_one_sentence_recommends_no_control_and_says_what_it_rests_on():
    assert said(FOUND, SCORED) == (
        "Recommended: wide, with 70.0 % over devices the most accurate of the 2 scored of 2 methods that fit every "
        "device."
    )
    assert said(FOUND, {}) == (
        "Recommended: small, the quickest of 2 methods that fit every device (a round takes 30 s on phone_high). This "
        "says nothing of accuracy; --accuracy RESULTS does."
    )
    assert "1 method that fits 1 of 2 devices" in said({"deep": FOUND["deep"]}, {})
    assert said({"deep": [on(PHONE, None)]}, {}) == "Recommended: none, since no method fits any of these devices."
    assert recommendation({}) == "Recommended: none, since no method fits any of these devices."
