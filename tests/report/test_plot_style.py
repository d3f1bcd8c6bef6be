"""Looks of methods: distinct, stable, and readable without one of colour, marker and line."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedbench.report.plot_data import BUILT_IN, COLORS, FAINT, FREE, LINES, MOST, greyed, styles

ROLES = {"a": "method", "b": "method", "top": "ceiling", "low": "floor", "probe": "control", "part": "control"}

# How a colour is seen with each kind of colour blindness (Machado, Oliveira and Fernandes 2009), in linear RGB.
SEEN = {
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    "everybody": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
}


def lab(color: str, seen: list[list[float]]) -> np.ndarray:
    """CIE L*a*b*, in which equal distances look about equal."""
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.clip(np.array(seen) @ np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_built_in_method_has_a_look_and_any_two_parts_tell_two_of_them_apart(registry):
    assert BUILT_IN.keys() == registry.catalogue.roles.keys()
    for first, second in combinations(range(3), 2):
        assert len({(look[first], look[second]) for look in BUILT_IN.values()}) == len(BUILT_IN)


@pytest.mark.parametrize("eyes", SEEN)
def test_colours_differ_for_any_kind_of_colour_blindness(eyes):
    found = [lab(color, SEEN[eyes]) for color in COLORS.values()]
    assert min(np.linalg.norm(a - b) for a, b in combinations(found, 2)) > 12


def test_roles_have_lines_that_methods_do_not_have(registry):
    for name, role in registry.catalogue.roles.items():
        line = BUILT_IN[name][2]
        assert (line in ("ceiling", "control")) == (role in ("ceiling", "control"))
        assert line == role or role in ("method", "floor")


def test_a_look_is_that_of_the_name_in_every_picture(registry):
    roles = registry.catalogue.roles
    labels = {name: name for name in roles} | {"mine": "mine", "fedra [rank=4]": "fedra", "wide": "fedra"}
    together = styles(labels, roles)
    assert len({(look["color"], look["marker"]) for look in together.values()}) == len(labels)
    for label, name in labels.items():
        assert styles({label: name}, roles) == {label: together[label]}
    assert list(together) == list(labels), "legends stay in the order given"


def test_built_in_methods_look_as_they_always_did(registry):
    """Pictures of one study, drawn with different versions, may stand side by side."""
    names = ("fedra", "inclusivefl", "depthfl", "allsmall", "alllarge", "head_only", "exclusive")
    found = styles({name: name for name in names}, registry.catalogue.roles)
    assert [tuple(look.values()) for look in found.values()] == [
        ("#D55E00", "-", "o"), ("#0072B2", "-", "s"), ("#009E73", "-", "^"), ("#E69F00", "-", "v"),
        ("#000000", "--", "D"), ("#CC79A7", ":", "P"), ("#56B4E9", ":", "X"),
    ]  # fmt: skip


def test_what_extends_a_method_has_the_line_of_its_role():
    found = styles({"higher": "top", "wider": "probe", "more": "a"}, ROLES)
    assert [found[label]["linestyle"] for label in ("higher", "wider")] == [LINES["ceiling"], LINES["control"]]
    assert found["more"]["linestyle"] not in (LINES["ceiling"], LINES["control"])


def test_two_of_one_picture_never_share_a_look_as_long_as_there_are_any():
    labels = {f"method {n}": "a" for n in range(len(FREE))}
    found = styles(labels, ROLES).values()
    assert len({(look["color"], look["marker"]) for look in found}) == len(FREE)
    assert len(styles(labels | {"one more": "a"}, ROLES)) == len(FREE) + 1


def test_of_many_methods_the_first_are_in_colour():
    looks = styles({f"method {n}": "a" for n in range(MOST + 3)}, ROLES)
    few = greyed(dict(list(looks.items())[:MOST]), list(looks)[:MOST])
    assert FAINT not in {look["color"] for look in few.values()}
    ordered = ["method 10", *looks]
    many = greyed(looks, ordered)
    assert [label for label, look in many.items() if look["color"] == FAINT] == ["method 7", "method 8", "method 9"]
    assert many["method 10"] == looks["method 10"] and many["method 9"]["marker"] == looks["method 9"]["marker"]


def test_no_two_methods_of_one_picture_have_one_colour_while_there_are_colours():
    own = {name: name for name in ("mine", "my_other", "a", "b", "c")}
    found = styles({**own, "fedra": "fedra", "depthfl": "depthfl"}, {})
    colors = [look["color"] for look in found.values()]
    assert len(set(colors)) == len(colors)
    many = styles({f"method {i}": "x" for i in range(60)}, {})
    pairs = [(look["color"], look["marker"]) for look in many.values()]
    assert len(set(pairs)) == 60, "then at least colour and marker tell them apart"
