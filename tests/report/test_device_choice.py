"""Which method for which device: the matrix, its order, and what is recommended."""

from __future__ import annotations

from fedbench.devices.feasibility import Outlook
from fedbench.devices.fitting import RoundSeconds
from fedbench.devices.table import SHIPPED
from fedbench.report.frames import records
from fedbench.report.style import style
from fedbench.report.views.choice import Accuracies, choice, recommendation
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
SCORED = Accuracies(
    ["vit"],
    {
        "deep": {Size(12): {0: 0.9}, Size(6): {0: 0.5}},
        "wide": {Size(12, width=0.5): {0: 0.5, 1: 0.7}, Size(12, width=1.0): {0: 0.8, 1: 0.8}, None: {0: 0.8, 1: 0.8}},
        "small": {None: {0: 0.4}},
        "probe": {},
    },
)
RULES = "the device's memory", "Clients train somehow."


def test_the_matrix_has_size_memory_seconds_bytes_and_the_accuracy_at_that_size():
    matrix, cells = choice("vit", FOUND, ROLES, SCORED, RULES, clients={"laptop": 3})
    assert list(matrix.columns) == ["method", "role", "phone_high", "laptop"]
    assert list(matrix["method"]) == ["wide", "small", "deep", "probe"]  # first what fits most, of these the best
    assert list(matrix["role"]) == ["", "", "", "control"]
    assert "| 3 × laptop |" in style(matrix, "markdown").replace("\\_", "_").replace("  ", " ")
    shown = {row["method"]: row for row in records(matrix)}
    assert shown["wide"]["phone_high"] == "width 0.5 · 2.00 MB · 60 s · 4.00 MB · 60.0 %"
    assert shown["small"]["laptop"] == "one size · 2.00 MB · 1.0 s · 4.00 MB · 40.0 %"
    assert shown["deep"]["phone_high"] == "–" and shown["probe"]["laptop"].endswith(" · –")
    (row,) = (row for row in records(cells) if (row["method"], row["device"]) == ("wide", "phone_high"))
    assert (row["width"], row["accuracy"], row["micro_batch"], row["bytes"]) == (0.5, 0.6, 4, 4_000_000)


def said(found, scored, clients=None):
    _, cells = choice("vit", found, ROLES, scored, RULES, clients=clients)
    return cells.attrs["legend"][-1]


def seeds(*values):
    return dict(enumerate(values))


def both(wide_phone, wide_laptop, small):
    """Accuracies of the two methods that fit both devices."""
    wide = {Size(12, width=0.5): wide_phone, Size(12, width=1.0): wide_laptop}
    return Accuracies(["vit"], {"wide": wide, "small": {None: small}, "probe": {Size(12): seeds(1.0, 1.0, 1.0)}})


def test_nothing_is_recommended_of_unknown_accuracy():
    assert said(FOUND, None).startswith("No recommendation: what fits says nothing of accuracy. --accuracy RESULTS")
    other = Accuracies(["tiny"], SCORED.scores)
    assert said(FOUND, other) == "No recommendation: the accuracies are those of tiny, not of vit."
    assert said({"wide": FOUND["wide"]}, SCORED).startswith(
        "No recommendation: of 1 method that fits every device, 1 was scored at the sizes that fit, and it takes two"
    )
    assert "of 1 method that fits 1 of 2 devices, none was scored" in said({"deep": FOUND["deep"]}, Accuracies(["vit"]))
    nothing = "No recommendation: no method fits any of these devices."
    assert said({"deep": [on(PHONE, None)]}, SCORED) == nothing == recommendation("vit", {}, None)


def test_nothing_is_recommended_from_fewer_than_three_seeds():
    assert said(FOUND, SCORED) == (
        "No recommendation: 2 seeds: too few to say which method is best; that takes at least three seeds."
    )


def test_what_is_recommended_follows_the_rules_of_a_leaderboard_and_is_no_control():
    begins = "By accuracy over these devices, comparing 2 of 2 methods that fit every device: "
    clear = both(seeds(0.5, 0.52, 0.51), seeds(0.8, 0.81, 0.8), seeds(0.4, 0.43, 0.41))
    assert said(FOUND, clear) == f"{begins}wide is significantly better than the other ranked method."
    unclear = both(seeds(0.3, 0.5, 0.4), seeds(0.5, 0.4, 0.5), seeds(0.4, 0.43, 0.41))
    difference = "the difference is not significant."
    assert said(FOUND, unclear) == f"{begins}wide has the best mean of the ranked methods; {difference}"


def test_accuracies_are_weighted_by_the_clients_of_each_device():
    scored = both(seeds(0.1, 0.11, 0.1), seeds(0.9, 0.91, 0.92), seeds(0.4, 0.43, 0.41))
    assert "wide is significantly better" in said(FOUND, scored)
    assert "small is significantly better" in said(FOUND, scored, {"phone_high": 9})


def test_draws_of_several_seeds_are_one_replicate():
    scored = both(seeds(0.5, 0.52, 0.51), seeds(0.8, 0.81, 0.8), seeds(0.4, 0.43, 0.41))
    same = Accuracies(scored.backbones, scored.scores, {0: 0, 1: 0, 2: 0})
    assert said(FOUND, same).startswith("No recommendation: 1 draw: too few to say")


def test_a_ceiling_is_said_to_have_no_limit():
    for roles, said_so in (({"wide": "ceiling"}, True), ({}, False)):
        legend = choice("micro_vit", FOUND, roles, None, ("memory", "how"))[0].attrs["legend"]
        assert any("ceiling: nothing limits it" in line for line in legend) == said_so
