"""What is wrong in a suite is told with file, line and column, in plain words, all of it at once."""

from __future__ import annotations

import pytest
from made_up import SMALL

from fedbench.errors import UserError

SLOW = "{probability: 0.5, deadline: 1, late: lost"

WRONG = {
    "suite: small": {
        "suite: two words": 's.yaml:1:8: suite: expected letters, digits, and _ - . + after the first, at most 80 of them, got "two words"',
        "suite: ../x": 's.yaml:1:8: suite: expected letters, digits, and _ - . + after the first, at most 80 of them, got "../x"',
        "suite: small\nprofile: papper": 's.yaml:2:10: profile: expected "paper" or "reference", got "papper"; did you mean "paper"?',
        "suite: small\nseeds: [0, 1.5]": "s.yaml:2:12: seeds[1]: expected a whole number from 0 to 2^32 - 1, got 1.5",
        "suite: small\nseeds: []": "s.yaml:2:8: seeds: expected a list of at least 1, each a whole number from 0 to 2^32 - 1, got []",
        "suite: small\nseeds: [3, 3]": "s.yaml:2:8: seeds: 3 is listed twice",
        "suite: small\nseeds: {count: 3}": 's.yaml:2:8: seeds: expected a list of at least 1, each a whole number from 0 to 2^32 - 1, got {"count": 3}',
        "suite: small\ntimeout: 0": "s.yaml:2:10: timeout: expected a number above 0, or null, got 0",
        "suite: small\nsweeps: {}": 's.yaml:2:1: unknown key "sweeps"; did you mean "sweep"?',
        "suite: small\nadapter: lora": 's.yaml:2:1: unknown key "adapter"; it belongs to the settings, under defaults or a scenario',
        "suite: small\nexpected: [{scenario: skew, dataset: b}]": 's.yaml:2:12: expected[0] needs "backbone", "method", "metric", "value_percent"',
        "suite: small\nexpected: 3": "s.yaml:2:11: expected: expected a mapping {file: a text, paper: a text, table: a text, dataset: a text, score: a text}, or a list, each a mapping (key: value), got 3",
        "suite: small\nexpected: {file: x, paper: y, tabel: z}": 's.yaml:2:31: unknown key "tabel" in expected; did you mean "table"?',
        "suite: small\nexpected: {file: x.csv}": 's.yaml:2:1: expected needs "paper"',
        "suite: small\nexpected: {file: x.csv, paper: y, table: 1}": "s.yaml:2:42: expected table: expected a text, got 1; write 1 in quotes",
        "suite: small\nexpected: {file: x.csv, paper: y}": "s.yaml:2:18: x.csv: cannot be read: No such file or directory",
        "suite: small\nsweep: {train.rounds: []}": "s.yaml:2:23: sweep.train.rounds: expected a list of at least 1, got []",
        "suite: small\nsweep: {train.rounds: 3}": "s.yaml:2:23: sweep.train.rounds: expected a list of at least 1, got 3",
        "suite: small\nsweep: {train.rounds: [3, 0]}": "s.yaml:2:27: train.rounds: expected a whole number of at least 1, got 0",
        "suite: small\nsweep: {train.rounds: [3, 3]}": 's.yaml:2:27: the sweep point "train.rounds=3" is listed twice',
        "suite: small\nsweep: {train.ruonds: [3]}": 's.yaml:2:9: unknown key "ruonds" in train; did you mean "rounds"?',
        "suite: small\nsweep: {methods.fedro.beta: [3]}": 's.yaml:2:9: "methods.fedro.beta": expected methods.NAME.option, '
        'with a method of this suite; did you mean "fedra"?',
        "suite: small\nsweep: {adapter.rank: [4, big]}": 's.yaml:2:27: lora rank: expected a whole number, got "big"',
        "suite: small\noverlays: {x: {backbone: 3}}": "s.yaml:2:26: overlays.x.backbone: expected a name, or {name: ..., option: value}, got 3",
        "suite: small\noverlays: {x: {adapter: {name: lora, rnk: 3}}}": 's.yaml:2:38: adapter "lora" has no option "rnk"; did you mean "rank"?',
    },
    "  backbone: micro_vit\n": {
        "": 's.yaml:6:3: scenario "skew" has no backbone, and neither have the defaults',
        "  backbone: {pretrained: true}\n": "s.yaml:3:3: this backbone has no name",
        "  backbone: {name: micro_vit, pretrained: yes}\n": "s.yaml:3:43: micro_vit pretrained: "
        'expected true or false, got "yes"; YAML 1.2 writes true and false',
        "  backbone: {name: micro_vit, pretrained: 1}\n": "s.yaml:3:43: micro_vit pretrained: expected true or false, or a file, got 1",
        "  backbone: nowhere\n": "s.yaml:3:13: the weights of nowhere are not to be had",
        "  bakbone: micro_vit\n": 's.yaml:3:3: unknown key "bakbone" in defaults; did you mean "backbone"?',
        "  backbone: micro_vit\n  adapter: lorra\n": "s.yaml:4:12: no adapter is called 'lorra'; did you mean 'lora'?",
        "  backbone: micro_vit\n  adapter: null\n": "s.yaml:4:12: defaults.adapter: expected a name, or {name: ..., option: value}, got null",
        "  backbone: micro_vit\n  adapter: {dropout: high}\n": 's.yaml:4:22: lora dropout: expected a number, got "high"',
        "  backbone: micro_vit\n  adapter: {targets: [1]}\n": "s.yaml:4:23: lora targets[0]: expected a text, got 1; write 1 in quotes",
        "  backbone: micro_vit\n  train: {rounds: 0}\n": "s.yaml:4:19: defaults.train.rounds: expected a whole number of at least 1, got 0",
        "  backbone: micro_vit\n  train: {rounds: twelve}\n": 's.yaml:4:19: defaults.train.rounds: expected a whole number of at least 1, got "twelve"',
        "  backbone: micro_vit\n  train: {rounds: true}\n": "s.yaml:4:19: defaults.train.rounds: expected a whole number of at least 1, got true",
        "  backbone: micro_vit\n  train: {rounds: null}\n": "s.yaml:4:19: defaults.train.rounds: expected a whole number of at least 1, got null",
        "  backbone: micro_vit\n  train:\n  # nothing\n": "s.yaml:4:3: defaults.train: expected a mapping (key: value), "
        "got nothing; what belongs to it is indented further than it is",
        "  backbone: micro_vit\n  at: 3\n": 's.yaml:4:3: unknown key "at" in defaults; it belongs to evaluation',
        "  backbone: micro_vit\n  a: 3\n": 's.yaml:4:3: unknown key "a" in defaults; known: adapter, backbone, capacities, data, '
        "device_jitter, device_scale, devices, engine, evaluation, faults, fit, frozen_features and 10 more",
        "  backbone: micro_vit\n  train: [3]\n": "s.yaml:4:10: defaults.train: expected a mapping (key: value), got [3]",
        "  backbone: micro_vit\n  rounds: 3\n": 's.yaml:4:3: unknown key "rounds" in defaults; it belongs to train',
        "  backbone: micro_vit\n  train: {optimizer: {lr: 0}}\n": "s.yaml:4:27: defaults.train.optimizer.lr: expected a number above 0, got 0",
        "  backbone: micro_vit\n  train: {max_steps: few}\n": "s.yaml:4:22: defaults.train.max_steps: "
        'expected a whole number of at least 1, "smallest", or null, got "few"',
        "  backbone: micro_vit\n  train: {max_steps: smallest_each_epoch}\n": "s.yaml:4:22: defaults.train.max_steps: "
        'expected a whole number of at least 1, "smallest", or null, got "smallest_each_epoch"',
        **{
            f"  backbone: micro_vit\n  evaluation: {{at: {at}}}\n": "s.yaml:4:20: defaults.evaluation.at: expected rounds, "
            f'such as [10, 50], "reference", or null, got {got}'
            for at, got in (("released", '"released"'), ("20", "20"), ("[]", "[]"))
        },
        "  backbone: micro_vit\n  evaluation: {at: [5, 0]}\n": "s.yaml:4:24: defaults.evaluation.at[1]: "
        "expected a whole number of at least 1, got 0",
        "  backbone: micro_vit\n  evaluation: {at: [5, 5]}\n": "s.yaml:4:20: defaults.evaluation.at: 5 is listed twice",
        "  backbone: micro_vit\n  evaluation: {at: [5], every: 2}\n": "s.yaml:4:15: defaults.evaluation: "
        "expected `every` or `at`, not both",
        "  backbone: micro_vit\n  train: {regularizer: feddyn}\n": "s.yaml:4:24: defaults.train.regularizer: "
        'expected {feddyn: ...}, {fedprox: ...}, or null, got "feddyn"',
        "  backbone: micro_vit\n  train: {regularizer: {fedyn: 0.1}}\n": 's.yaml:4:25: unknown key "fedyn" in '
        'defaults.train.regularizer; did you mean "feddyn"?',
        "  backbone: micro_vit\n  train: {regularizer: {}}\n": "s.yaml:4:24: defaults.train.regularizer: "
        "expected one of feddyn, fedprox, got 0 of them",
        "  backbone: micro_vit\n  train: {regularizer: {feddyn: 0.1, fedprox: 1}}\n": "s.yaml:4:24: "
        "defaults.train.regularizer: expected one of feddyn, fedprox, got 2 of them",
        "  backbone: micro_vit\n  train: {regularizer: {feddyn: 0}}\n": "s.yaml:4:33: "
        "defaults.train.regularizer.feddyn: expected a number above 0, got 0",
        "  backbone: micro_vit\n  train: {feddyn: 0.1}\n": 's.yaml:4:11: unknown key "feddyn" in defaults.train; '
        "it belongs to train.regularizer",
        "  backbone: micro_vit\n  participation: {fraction: 1.5}\n": "s.yaml:4:29: defaults.participation.fraction: "
        "expected a number above 0 and at most 1, got 1.5",
        "  backbone: micro_vit\n  participation: some\n": "s.yaml:4:18: defaults.participation: "
        'expected "all", {all: ...}, {fraction: ...}, {count: ...}, or {per_domain: ...}, got "some"',
        "  backbone: micro_vit\n  participation: {count: 7}\n": "s.yaml:4:26: participation count 7 is above the 6 clients there are",
        "  backbone: micro_vit\n  faults: {dropout: 1}\n": "s.yaml:4:21: defaults.faults.dropout: expected a number of at least 0 and below 1, got 1",
        "  backbone: micro_vit\n  faults: {dropuot: 0.1}\n": 's.yaml:4:12: unknown key "dropuot" in defaults.faults; did you mean "dropout"?',
        "  backbone: micro_vit\n  faults: 0.1\n": "s.yaml:4:11: defaults.faults: expected a mapping {dropout, stragglers, corrupted}, got 0.1",
        "  backbone: micro_vit\n  dropout: 0.1\n": 's.yaml:4:3: unknown key "dropout" in defaults; it belongs to faults or adapter (an option of lora)',
        "  backbone: micro_vit\n  faults: {stragglers: {probability: 0.5, late: lost}}\n": 's.yaml:4:12: faults.stragglers needs "slowdown", "deadline"',
        f"  backbone: micro_vit\n  faults: {{stragglers: {SLOW}, slowdown: 0.5}}}}\n": "s.yaml:4:78: defaults.faults.stragglers.slowdown: "
        "expected a number of at least 1, or [lowest, highest], got 0.5",
        f"  backbone: micro_vit\n  faults: {{stragglers: {SLOW}, slowdown: [4, 2]}}}}\n": "s.yaml:4:78: defaults.faults.stragglers.slowdown: "
        "the lowest, 4.0, is above the highest, 2.0",
        "  backbone: micro_vit\n  faults: {corrupted: {kind: nan}}\n": 's.yaml:4:12: faults.corrupted needs "probability"',
        "  backbone: micro_vit\n  faults: {corrupted: {probability: 0.1, kind: nann}}\n": "s.yaml:4:48: defaults.faults.corrupted.kind: "
        'expected "nan", "inf", "wrong_shape", "scaled" or "noise", got "nann"; did you mean "nan"?',
        "  backbone: micro_vit\n  faults: {corrupted: {probability: 2, kind: nan}}\n": "s.yaml:4:37: defaults.faults.corrupted.probability: "
        "expected a number from 0 to 1, got 2",
        "  backbone: micro_vit\n  train: {guard: 5}\n": "s.yaml:4:18: defaults.train.guard: expected {max_norm: ...}, or null, got 5",
        "  backbone: micro_vit\n  train: {guard: {max_norm: 0}}\n": "s.yaml:4:29: defaults.train.guard.max_norm: expected a number above 0, got 0",
        "  backbone: micro_vit\n  train: {guard: {}}\n": "s.yaml:4:18: defaults.train.guard: expected one of max_norm, got 0 of them",
        "  backbone: micro_vit\n  evaluation: {by: clients}\n": 's.yaml:4:20: defaults.evaluation.by: expected "domain" or "client", got "clients"; did you mean "client"?',
        "  backbone: micro_vit\n  precision: fp16\n": 's.yaml:4:14: defaults.precision: expected "fp32" or "bf16", got "fp16"; did you mean "bf16"?',
        "  backbone: micro_vit\n  rotate_capacities: yes\n": 's.yaml:4:22: defaults.rotate_capacities: expected true or false, got "yes"; '
        "YAML 1.2 writes true and false",
        "  backbone: micro_vit\n  evaluation: {metrics: [acuracy]}\n": "s.yaml:4:26: no metric is called 'acuracy'; did you mean 'accuracy'?",
        "  backbone: micro_vit\n  train: {clip: .inf}\n": 's.yaml:4:17: expected a finite number, got ".inf"',
    },
    "  data: strokes6\n": {
        "  data: {name: strokes6, clases: 3}\n": 's.yaml:4:26: dataset "strokes6" has no option "clases"; did you mean "classes"?',
        "  data: {partition: dirichlet}\n": 's.yaml:7:3: scenario "skew" has no data, and neither have the defaults',
        "  data: image_folder\n": 's.yaml:4:9: dataset "image_folder" needs "root"',
        "  data: {name: strokes6, partition: {name: iid, clients: 7}}\n": "s.yaml:5:15: 6 capacities given, but this partition makes 7 clients; give 7 of them, or set the partition's `clients: 6`",
        "  data: {name: strokes6, partition: {name: dirichlet, clients_per_domain: 1, alfa: 1}}\n": 's.yaml:4:78: partition "dirichlet" has no option "alfa"; did you mean "alpha"?',
        "  data: {name: strokes6, image_size: 0}\n": "s.yaml:4:38: defaults.data.image_size: expected a whole number of at least 1, or null, got 0",
    },
    "  capacities: [12, 10, 8, 6, 4, 3]\n": {
        "  capacities: [13, 10, 8, 6, 4, 3]\n": "s.yaml:5:16: capacity 13 is above the 12 layers of micro_vit",
        "  capacities: [12, 0, 8, 6, 4, 3]\n": "s.yaml:5:20: defaults.capacities.by_client[1]: expected a whole number of at least 1, got 0",
        "  capacities: [12, 10]\n": "s.yaml:5:15: 2 capacities given, but this partition makes 6 clients; give 6 of them",
        "  capacities: {by_domain: [12]}\n": "s.yaml:5:27: 1 capacity given, but the data set has 6 domains; give 6 of them, or `by_client` one for each client",
        "  capacities: {uniform: [1, 2, 3]}\n": "s.yaml:5:25: defaults.capacities.uniform: expected [lowest, highest], got 3 numbers",
        "  capacities: {uniform: [4, 2]}\n": "s.yaml:5:25: defaults.capacities.uniform: the lowest, 4, is above the highest, 2",
        "  capacities: {uniform: [1, 13]}\n": "s.yaml:5:29: capacity 13 is above the 12 layers of micro_vit",
        "  capacities: {}\n": "s.yaml:5:15: defaults.capacities: expected one of all, by_client, by_domain, cycle, uniform, got 0 of them",
        "  capacities: 6\n": 's.yaml:5:15: defaults.capacities: expected a list with a depth for each client, "all", '
        "{by_client: ...}, {by_domain: ...}, {cycle: ...}, {uniform: ...}, or {all: ...}, got 6",
        "  ranks: 9\n": "s.yaml:5:10: rank 9 is above the rank 8 of lora",
        "  ranks: [8, 8, 4, 4, 2, 10]\n": "s.yaml:5:26: rank 10 is above the rank 8 of lora",
        "  ranks: {uniform: [1, 9]}\n": "s.yaml:5:24: rank 9 is above the rank 8 of lora",
        "  ranks: [4, 2]\n": "s.yaml:5:10: 2 ranks given, but this partition makes 6 clients; give 6 of them",
        "  ranks: {by_domain: [4]}\n": "s.yaml:5:22: 1 rank given, but the data set has 6 domains; give 6 of them, or `by_client` one for each client",
        "  ranks: 0\n": "s.yaml:5:10: defaults.ranks: expected a list with a rank for each client, a whole number of at least 1, "
        "{by_client: ...}, {by_domain: ...}, {cycle: ...}, {uniform: ...}, or null, got 0",
        "  ranks: [4, 2, 0, 1, 1, 1]\n": "s.yaml:5:17: defaults.ranks.by_client[2]: expected a whole number of at least 1, got 0",
        "  ranks: {all: true}\n": 's.yaml:5:11: unknown key "all" in defaults.ranks; known: by_client, by_domain, cycle, uniform',
        "  widths: [1, 0.5]\n": "s.yaml:5:11: 2 widths given, but this partition makes 6 clients; give 6 of them",
        "  widths: 2\n": "s.yaml:5:11: defaults.widths: expected a list with a width for each client, a number above 0 and at most 1, "
        "{by_client: ...}, {by_domain: ...}, {cycle: ...}, {uniform: ...}, or null, got 2",
        "  widths: {uniform: [1, 0.5]}\n": "s.yaml:5:21: defaults.widths.uniform: the lowest, 1.0, is above the highest, 0.5",
        "  widths: [1, 1, 1, 1, 1, 0]\n": "s.yaml:5:27: defaults.widths.by_client[5]: expected a number above 0 and at most 1, got 0",
        "  ranks: all\n": "s.yaml:5:10: defaults.ranks: expected a list with a rank for each client, a whole number of at least 1, "
        '{by_client: ...}, {by_domain: ...}, {cycle: ...}, {uniform: ...}, or null, got "all"',
    },
    "  skew: {}\n": {
        "  skew: 3\n": "s.yaml:7:9: scenarios.skew: expected a mapping (key: value), got 3",
        "  skew: {methods: {fedra: 3}}\n": "s.yaml:7:27: scenarios.skew.methods.fedra: expected a mapping {adapter, train}, got 3",
        "  skew: {devices: {shares: {phone_low: 1}}, device_scale: {memory: half}}\n": "s.yaml:7:68: "
        'scenarios.skew.device_scale.memory: expected a number above 0, got "half"',
        "  a/b: {}\n": 's.yaml:7:3: expected letters, digits, and _ - . + after the first, at most 80 of them, got "a/b"',
    },
    "scenarios:\n  skew: {}\n": {
        "": 's.yaml:1:1: a suite needs "scenarios"',
        "scenarios: {}\n": "s.yaml:6:12: scenarios: expected a mapping (key: value) that is not empty, got {}",
    },
    "methods: [fedra]": {
        "methods: []": "s.yaml:8:10: methods: expected a list of at least 1, each a name, or {name: ..., option: value}, got []",
        "methods: fedra": 's.yaml:8:10: methods: expected a list of at least 1, each a name, or {name: ..., option: value}, got "fedra"',
        "methods: [{name: fedra, train: {optimizer: {lrr: 1}}}]": 's.yaml:8:45: unknown key "lrr" in methods[0].train.optimizer; did you mean "lr"?',
        "methods: [{name: fedra, adapter: {rnak: 1}}]": 's.yaml:8:35: adapter "lora" has no option "rnak"; did you mean "rank"?',
        "methods: [{name: fedra, adapter: lor}]": "s.yaml:8:34: no adapter is called 'lor'; did you mean 'lora'?",
        "methods: [{name: fedra, train: {rounds: 3}}]": "s.yaml:8:33: train.rounds is the same for every method: say it in defaults or a scenario",
        "methods: [fedra, {name: x, extends: fedra, train: 3}]": "s.yaml:8:51: methods[1].train: expected a mapping (key: value), got 3",
        "methods: [{name: fedra, adaptor: lora}]": 's.yaml:8:25: method "fedra" has no option "adaptor"; did you mean "adapter"?',
        "methods: [fedar]": "s.yaml:8:11: no method is called 'fedar'; did you mean 'fedra'?",
        "methods: [3]": "s.yaml:8:11: methods[0]: expected a name, or {name: ..., option: value}, got 3",
        "methods: [{extends: fedra}]": "s.yaml:8:11: this method has no name",
        "methods: [fedra, {name: fedra, missing_layers: cover}]": 's.yaml:8:25: the method "fedra" is listed twice, '
        "first on line 8; give one of them a name of its own and `extends`",
        "methods: [{name: x, extends: fedar}]": 's.yaml:8:30: no method is called "fedar"; did you mean "fedra"?',
        "methods: [{name: x, extends: y}, {name: y, extends: x}]": "s.yaml:8:53: the methods extend each other in a circle: x -> y -> x",
        "methods: [{name: fedra, missing: 3}]": 's.yaml:8:25: method "fedra" has no option "missing"; did you mean "missing_layers"?',
        "methods: [{name: alllarge, depth: 3}]": 's.yaml:8:28: method "alllarge" has no option "depth"',
        "methods: [{name: fedra, allocation: rondom}]": "s.yaml:8:37: no allocation is called 'rondom'; did you mean 'random'?",
        "methods: [{name: fedra, allocation: {name: 3}}]": "s.yaml:8:44: this allocation has no name: expected a text, got 3",
        "methods: [{name: fedra, allocation: 3}]": "s.yaml:8:37: allocation: expected a name, or {name: ..., option: value}, got 3",
        "methods: [{name: fedra, aggregator: {weight: x}}]": 's.yaml:8:38: aggregator "weighted_mean" has no option "weight"; did you mean "weights"?',
    },
}
CASES = [(old, new, line) for old, news in WRONG.items() for new, line in news.items()]


@pytest.mark.parametrize(
    ("old", "new", "line"), CASES, ids=[new.strip().replace("\n", " ") or old for old, new, _ in CASES]
)
def test_one_fault_is_one_exact_line(faults_of, old, new, line):
    assert SMALL.count(old) == 1
    faults = faults_of(SMALL.replace(old, new))
    if "circle" in line:  # told once from each end
        assert line in "\n".join(faults)
    elif line.endswith('has no option "depth"'):
        assert len(faults) == 1 and faults[0].startswith(line)
    else:
        assert faults == [line]


def test_a_good_suite_has_no_faults(faults_of):
    assert faults_of(SMALL) == []


def test_all_faults_of_a_file_come_at_once_and_in_order(faults_of):
    text = (
        SMALL.replace("suite: small", "suite: a b")
        .replace("strokes6", "{name: strokes6, partition: dirichlett}")
        .replace("[12,", "[99,")
        .replace("[fedra]", "[fedar, {name: depthfl, rmp: 3}]")
    )
    places = [line.split(": ")[0] for line in faults_of(text)]
    assert places == ["s.yaml:1:8", "s.yaml:4:37", "s.yaml:5:16", "s.yaml:8:11", "s.yaml:8:34"]


def test_many_faults_fill_one_screen(faults_of):
    text = SMALL + "sweep:\n" + "".join(f"  train.no{n}: [1]\n" for n in range(30))
    faults = faults_of(text)
    assert len(faults) == 21
    assert faults[-1] == "... and 10 more problems"


def test_a_long_value_is_cut_and_its_control_letters_are_not_printed(faults_of):
    (fault,) = faults_of(SMALL.replace("[fedra]", '"\\e[31m' + "x" * 500 + '"'))
    assert "\x1b" not in fault and len(fault) < 200


def test_a_fault_in_a_lower_layer_is_told_where_it_was_written(faults_of):
    """The rank stands in the defaults; that it is used by two scenarios and two points tells it once."""
    text = SMALL.replace("  data:", "  adapter: {rank: big}\n  data:").replace("skew: {}", "a: {}\n  b: {}")
    assert faults_of(text + "sweep: {train.rounds: [1, 2]}\n") == [
        's.yaml:4:19: lora rank: expected a whole number, got "big"'
    ]


def test_wrong_words_on_the_command_line_name_the_option(faults_of):
    assert faults_of(SMALL, sets=["train.rounds=none"]) == [
        '--set train.rounds=none: train.rounds: expected a whole number of at least 1, got "none"'
    ]
    assert faults_of(SMALL, sets=["rounds=3"]) == ['--set rounds=3: unknown key "rounds"; it belongs to train']
    assert faults_of(SMALL, sets=["train.rounds"])[0].startswith("--set train.rounds: expected dotted.key=value")
    assert faults_of(SMALL, sets=["backbone=[a"])[0].startswith('--set backbone=[a: "[a" is not a YAML value')
    assert faults_of(SMALL, data="stroks6") == [
        '--data stroks6: neither an overlay nor a data set; did you mean "strokes6"?'
    ]
    assert faults_of(SMALL, profile="papr") == ['--profile "papr": no such profile; did you mean "paper"?']


def test_a_broken_plugin_is_mentioned_where_its_component_is_missed(faults_of, catalogue):
    catalogue.broken["theirs"] = "plugin 'theirs' of their-package does not load"
    (fault,) = faults_of(SMALL.replace("[fedra]", "[theirs]"))
    assert fault.startswith("s.yaml:8:11: no method is called 'theirs'") and "their-package does not load" in fault


def test_asking_for_what_a_suite_lacks_suggests_what_it_has(suite_of):
    suite = suite_of(SMALL)
    with pytest.raises(UserError, match="no method of this suite is called 'fedro'; did you mean \"fedra\""):
        suite.points(methods=["fedro"])
    with pytest.raises(UserError, match="no scenario of this suite is called 'all_"):
        suite.points(scenarios=["all_*"])
    with pytest.raises(UserError, match="seed -1"):
        suite.points(seeds=[-1])


def test_facts_are_asked_once_for_each_backbone_and_data_set(suite_of, facts):
    text = SMALL.replace("skew: {}", "a: {}\n  b: {data: {partition: dirichlet}, capacities: {uniform: [1, 2]}}")
    suite_of(text + "sweep: {backbone: [micro_vit, micro_mixer], train.rounds: [1, 2]}\n")
    assert sorted(facts.asked) == ["micro_mixer", "micro_vit", "strokes6"]


def test_without_facts_capacities_are_taken_as_they_are(suite_of):
    assert suite_of(SMALL.replace("[12,", "[99,"), facts=None).points()


def test_ranks_are_held_against_the_adapter_that_a_method_brings(faults_of):
    text = SMALL.replace("scenarios:", "  ranks: 8\nscenarios:")
    assert faults_of(text.replace("[fedra]", "[{name: fedra, adapter: {rank: 4}}]")) == [
        "s.yaml:6:10: rank 8 is above the rank 4 of lora"
    ]
    assert not faults_of(text.replace("[fedra]", "[{name: fedra, adapter: houlsby}]"))


def test_wrong_settings_of_a_method_s_own_are_told_where_they_are_set(faults_of):
    assert faults_of(SMALL, sets=["methods.fedra.train.optimizer.lr=0"]) == [
        "--set methods.fedra.train.optimizer.lr=0: train.optimizer.lr: expected a number above 0, got 0"
    ]
    assert faults_of(SMALL, sets=["methods.fedra.train.rounds=3"]) == [
        "--set methods.fedra.train.rounds=3: train.rounds is the same for every method: say it in defaults or a scenario"
    ]
