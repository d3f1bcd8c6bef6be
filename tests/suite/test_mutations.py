"""Whatever someone does to a suite, the answer is cells or a message of one screen, never a traceback."""

from __future__ import annotations

import random
import re

import pytest

from fedbench.errors import UserError
from fedbench.suite.node import ON_A_SCREEN

FULL = """\
suite: full
profile: reference
defaults:
  backbone: {name: micro_vit, pretrained: false}
  adapter: {name: lora, rank: 4, targets: [a, b]}
  data:
    name: strokes6
    partition: {name: dirichlet, alpha: 0.5, clients_per_domain: 1}
  participation: {per_domain: 1}
  faults:
    dropout: 0.1
    stragglers: {probability: 0.2, slowdown: [2, 5], deadline: 1.5, late: partial}
    corrupted: {probability: 0.1, kind: scaled, scale: 1e6}
  rotate_capacities: true
  evaluation: {every: 2, by: client, metrics: [accuracy]}
scenarios:
  a: {capacities: [1, 2, 3, 4, 5, 6]}
  b: {capacities: {by_domain: [1, 2, 3, 4, 5, 6]}}
  c: {capacities: {uniform: [1, 12]}}
methods:
  - fedra
  - {name: z, extends: fedra, aggregator: {weights: uniform}, allocation: {name: strided, step: 2}}
  - {name: y, extends: z, aggregator: momentum}
sweep:
  backbone: [micro_vit, {name: micro_mixer}]
  methods.z.missing_layers: [keep, cover]
  capacities:
    - [6, 5, 4, 3, 2, 1]
    - {uniform: [1, 2]}
seeds: [0, 1]
overlays:
  o: {backbone: micro_mixer, data: {name: image_folder, root: x}}
expected:
  - {scenario: a, dataset: b, backbone: c, method: z, metric: e, value_percent: 1, variant: methods.z.missing_layers=keep}
"""
# The same keys, and fewer points of them.
SHORT = FULL.replace("seeds: [0, 1]", "seeds: [0]").replace("[micro_vit, {name: micro_mixer}]", "[{name: micro_mixer}]")
SHORT = SHORT.replace("[keep, cover]", "[cover]").replace("    - {uniform: [1, 2]}\n", "")
FILED = FULL.partition("expected:")[0] + "expected:\n  file: x.csv\n  paper: a\n  table: b\n"
VALUES = """null; 3; -1; []; {}; yes; true; 'x'; [1, [2]]; {name: 3}; {name: [a]}; {a: {b: 1}}; !foo x; *z; 1e999; fedra; [fedra, {}];
{name: null}; [null]; [{name: x, extends: 3}]; {name: lora, name: lora}; {extends: x}; [{}]""".replace("\n", " ").split(
    "; "
)
TOKEN = re.compile(r"[\w.]+")


def mutated(lines: list[str], chance: random.Random) -> list[str]:
    """One line dropped, swapped with another, given another value, or with one word replaced."""
    lines = list(lines)
    i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    how = chance.randrange(4)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 2:
        lines[i] = lines[i].split(":")[0] + ": " + chance.choice(VALUES)
    elif words := list(TOKEN.finditer(lines[i])):
        word = chance.choice(words)
        lines[i] = lines[i][: word.start()] + chance.choice(VALUES) + lines[i][word.end() :]
    return lines


@pytest.fixture
def answered(suite_of):
    def check(text: str, **options) -> None:
        try:
            suite_of(text, **options).points()
        except UserError as error:
            lines = str(error).splitlines()
            assert 0 < len(lines) <= ON_A_SCREEN + 1
            assert all(
                re.match(r"s\.yaml:\d+:\d+: |--set |--data |overlay |profile |\.\.\. and", line) for line in lines
            )

    return check


def test_the_whole_suite_is_sound(suite_of):
    assert len(suite_of(FULL).points()) == 3 * 8 * 3 * 2


@pytest.mark.parametrize("many", [10, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data", [None, "o", "embedded"])
def test_a_damaged_suite_is_answered(answered, data, many):
    chance = random.Random(7)
    for _ in range(many):
        lines = FULL.splitlines()
        for _ in range(chance.choice([1, 1, 2, 4])):
            lines = mutated(lines, chance)
        answered("\n".join(lines), data=data if "overlays" in "\n".join(lines) else None)


def test_a_damaged_request_for_numbers_of_a_file_is_answered(answered):
    chance = random.Random(8)
    head, request = FILED.partition("expected:")[0], FILED.splitlines()[-4:]
    for _ in range(10):
        answered(head + "\n".join(mutated(request, chance)))


@pytest.mark.parametrize(
    "key",
    ["train", "methods.z.aggregator", "a.b"]
    + [
        pytest.param(key, marks=pytest.mark.slow)
        for key in ("data.partition", "capacities", "participation", "faults", "faults.dropout", "faults.stragglers")
        + ("faults.stragglers.slowdown", "faults.corrupted", "faults.corrupted.scale", "evaluation.by")
        + ("train.guard", "train.guard.max_norm")
    ],
)
def test_any_value_of_a_set_is_answered(answered, key):
    for value in VALUES:
        answered(SHORT, sets=[f"{key}={value}"])
