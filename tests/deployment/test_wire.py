"""A cell on nodes says what the simulated one says, to the bit, and moves the bytes that are simulated."""

import re

import pytest
import torch
from command import write_suite
from deployment.in_process import Here, deployed, same, simulated
from every_method import changed, tiny_cells

from fedbench.deployment import wire as messages
from fedbench.deployment.deployed import FORGETS, Deployed
from fedbench.deployment.node import Examples
from fedbench.errors import UserError
from fedbench.runner.runner import load
from fedbench.simulation.failure_reason import Diverged
from fedbench.simulation.faults import NOT_FINITE
from fedbench.simulation.simulation import Simulation

DEPLOYABLE = [
    *("alllarge", "allsmall", "block_stages", "depthfl", "exclusive", "exit_probe", "fed_hello", "fed_plora"),
    *("fedex_lora", "fedit"),
    *(
        "fedra",
        "ffa_lora",
        "flasc",
        "flexlora",
        "flora",
        "fslora",
        "head_only",
        "hetlora",
        "inclusivefl",
        "legend",
        "lora_fair",
    ),
    *("ova_lp", "raflora", "rolora"),
]
train = Deployed._train
pytestmark = pytest.mark.usefixtures("counted_once")


@pytest.fixture(scope="module")
def cells(plugins, tmp_path_factory):
    return tiny_cells(tmp_path_factory.mktemp("suite"), plugins)


def ranked(config, **changes):
    """With ranks, and a regulariser that every method takes."""
    train = {**config["train"], "regularizer": {"fedprox": 0.1}}
    return {**config, "engine": "sequential", "ranks": {"by_client": [2, 1]}, "train": train, **changes}


@pytest.mark.parametrize("method", DEPLOYABLE)
def test_a_cell_on_nodes_equals_the_simulated_one_to_the_bit(cells, plugins, tmp_path, method):
    config = changed(cells["rough", method], "rough", "sequential")
    if method == "hetlora":
        config["train"] = {**config["train"], "regularizer": {"fedprox": 0.1}}
    same(deployed(config, plugins, Here(tmp_path)), simulated(config, plugins))


def test_nodes_change_their_images_as_the_simulation_does(cells, plugins, tmp_path):
    config = changed(cells["rough", "fedra"], "rough", "sequential")
    config["data"] = {**config["data"], "augment": ["crop", "flip"]}
    same(deployed(config, plugins, Here(tmp_path)), simulated(config, plugins))


@pytest.mark.parametrize("frozen", ["resent", "cached"])
@pytest.mark.parametrize("method", DEPLOYABLE)
def test_the_bytes_of_the_tensors_that_cross_are_those_that_are_simulated(cells, plugins, tmp_path, method, frozen):
    config = ranked(cells["plain", method], frozen_weights=frozen)
    real, cell = deployed(config, plugins, Here(tmp_path)), simulated(config, plugins)
    same(real, cell)
    asked = ((real[1], "wire"), (cell[1], "rounds"))
    wire, rounds = ([(row["bytes_down"], row["bytes_up"]) for row in tables[kind]] for tables, kind in asked)
    if frozen == "cached" and method in ("flora", "fedex_lora"):  # charged as factors, sent as the sums they make
        assert wire[:2] == rounds[:2] and [up for _, up in wire] == [up for _, up in rounds]
    else:
        assert wire == rounds


CODED = {
    "int8": {"uploads": {"codec": "int8"}, "downloads": {"codec": "int8"}},
    "topk": {"uploads": {"codec": "topk", "density": 0.25}, "downloads": {"codec": "topk", "density": 0.02}},
    "up": {"uploads": {"codec": "topk", "density": 0.02}, "downloads": None},
    "down": {"uploads": None, "downloads": {"codec": "int8"}},
}


@pytest.mark.parametrize("codecs", CODED)
@pytest.mark.parametrize("method", ["fedra", "depthfl", "hetlora"])
def test_coded_messages_cross_as_they_are_simulated(cells, plugins, tmp_path, method, codecs):
    config = ranked(cells["plain", method])
    config["train"] = {**config["train"], **CODED[codecs]}
    real, cell = deployed(config, plugins, Here(tmp_path)), simulated(config, plugins)
    same(real, cell)
    asked = ((real[1], "wire"), (cell[1], "rounds"))
    wire, rounds = ([(row["bytes_down"], row["bytes_up"]) for row in tables[kind]] for tables, kind in asked)
    assert wire == rounds


@pytest.mark.parametrize("method", ["fedra", "depthfl", "flora"])
def test_clients_with_devices(cells, plugins, tmp_path, method):
    config = changed(cells["dealt", method], "dealt", "sequential")
    same(deployed(config, plugins, Here(tmp_path)), simulated(config, plugins))


TEXTS = """
suite: texts
defaults:
  backbone: micro_bert
  adapter: {name: lora, rank: 2, alpha: 2}
  data: {name: phrases6, classes: 3, train_per_class: 2, test_per_class: 1}
  train: {rounds: 1, max_steps: 1, batch_size: 2}
scenarios: {small: {capacities: [2, 1, 2, 1, 2, 1]}}
methods: [fedra]
"""


NEXT = {"micro_bert": "micro_llama", "{name: phrases6,": "{name: phrases6, task: next_token,"}
NEXT |= {"train: {": "evaluation: {metrics: [nll, choice_accuracy]}\n  train: {"}


@pytest.mark.parametrize("changes", [{}, NEXT], ids=["classes", "next tokens"])
def test_texts_cross_as_images_do(registry, tmp_path, changes):
    text = TEXTS
    for old, new in changes.items():
        text = text.replace(old, new)
    (tmp_path / "texts.yaml").write_text(text)
    (cell,) = load(tmp_path / "texts.yaml", registry).points()
    config = {**cell.config, "engine": "sequential"}
    same(deployed(config, registry, Here(tmp_path, plugins=())), simulated(config, registry))


class Losing(Simulation):
    """A simulation that loses what client 1 sends in its first round."""

    def _receive(self, up, start, plan, cohort, t):
        up.arrived[[n for n, client in enumerate(cohort.ids) if (t, client) == (0, 1)]] = False
        return super()._receive(up, start, plan, cohort, t)


def silent(content):
    """Nothing."""


def nan(content):
    """The answer with numbers that are none."""
    facts, tensors = messages.unpacked(content)
    return messages.packed(facts, {name: value * float("nan") for name, value in tensors.items()})


def misshapen(content):
    """The answer with a tensor of another shape."""
    facts, tensors = messages.unpacked(content)
    return messages.packed(facts, {name: torch.stack([value, value]) for name, value in tensors.items()})


def eight_bits(content):
    """The answer with tensors of a type that torch cannot test for non-finite values."""
    facts, tensors = messages.unpacked(content)
    return messages.packed(facts, {name: value.to(torch.float8_e4m3fn) for name, value in tensors.items()})


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (silent, "it is silent"),
        (nan, NOT_FINITE),
        (misshapen, "malformed"),
        (lambda content: b"x", "malformed"),
        (eight_bits, "malformed: "),
        (lambda content: messages.packed({"lacks": True}, {}), FORGETS),
    ],
)
def test_an_answer_that_is_of_no_use_is_a_lost_one(cells, plugins, tmp_path, spoil, outcome):
    config = {**cells["plain", "fedra"], "engine": "sequential"}
    nodes = Here(tmp_path, lambda t, client, content: spoil(content) if (t, client) == (0, 1) else content)
    real, lossy = deployed(config, plugins, nodes), simulated(config, plugins, Losing)
    assert real[1]["wire"][1]["outcome"].startswith(outcome)
    for tables in (real[1], lossy[1]):
        tables["rounds"][1]["loss"] = None  # which the server never hears
    same(real, lossy)


def test_a_coded_answer_that_no_codec_has_made_is_a_lost_one(cells, plugins, tmp_path):
    config = {**cells["plain", "fedra"], "engine": "sequential"}
    config["train"] = {**config["train"], **CODED["topk"]}
    nodes = Here(tmp_path, lambda t, client, content: misshapen(content) if (t, client) == (0, 1) else content)
    real, lossy = deployed(config, plugins, nodes), simulated(config, plugins, Losing)
    assert real[1]["wire"][1]["outcome"].startswith("malformed")
    for tables in (real[1], lossy[1]):
        tables["rounds"][1]["loss"] = None  # which the server never hears
    same(real, lossy)


def test_numbers_that_are_none_of_every_node_are_the_methods_own(cells, plugins, tmp_path):
    config = {**cells["plain", "fedra"], "engine": "sequential"}
    with pytest.raises(Diverged, match="training loss of client 0 in round 1 is nan"):
        deployed(config, plugins, Here(tmp_path, lambda t, client, content: nan(content)))


def test_a_node_that_began_again_is_sent_everything_once_more(cells, plugins, tmp_path):
    config = {**cells["plain", "fedra"], "engine": "sequential", "frozen_weights": "cached"}

    def forget(t, client, content):
        if (t, client) == (0, 1):
            nodes.nodes.pop(1)
        return content

    nodes = Here(tmp_path, forget)
    real = deployed(config, plugins, nodes)
    same(real, simulated(config, plugins))
    sizes = [len(content) for t, client, content in nodes.messages if (t, client) == (1, 1)]
    row = real[1]["wire"][3]
    assert (len(sizes), row["round"], row["client"], row["message_down"]) == (2, 2, 1, sum(sizes))
    assert nodes.others == [True]  # the other node of the round had answered


def test_the_answer_of_a_client_that_drops_out_before_its_first_step_is_sound(plugins, tmp_path):
    """Its loss is NaN by definition, and in round 3 the other client's is not."""
    sets = ["engine=sequential", "faults.dropout=0.6", "train.rounds=3"]
    (cell,) = load(write_suite(tmp_path), plugins, sets=sets).points()
    real, simulation = deployed(cell.config, plugins, Here(tmp_path)), simulated(cell.config, plugins)
    same(real, simulation)
    assert [row["steps"] for row in simulation[1]["rounds"][4:]] == [1, 0]
    assert {row["outcome"] for row in real[1]["wire"]} == {"arrived"}


def test_a_node_keeps_the_frozen_weights_of_its_last_cell_alone(cells, plugins, tmp_path):
    config = {**cells["plain", "fedra"], "engine": "sequential", "frozen_weights": "cached"}
    (tmp_path / "0/frozen/older").mkdir(parents=True)
    deployed(config, plugins, Here(tmp_path))
    assert [one.name for one in (tmp_path / "0/frozen").iterdir()] == ["c1"]


def test_a_message_that_comes_twice_is_answered_alike(cells, plugins, tmp_path):
    config, nodes = {**cells["plain", "fedra"], "engine": "sequential"}, Here(tmp_path)
    deployed(config, plugins, nodes)
    answers = [messages.unpacked(nodes.node(0).answer(nodes.messages[0][2]))[1] for _ in range(2)]
    assert all(answers[0][name].equal(value) for name, value in answers[1].items())


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("fedavg", "it trains whole models, by other means than the engine"),
        ("fjord", "it trains whole models, by other means than the engine"),
        ("fedv", "it trains with its server batch by batch"),
        ("fedsa_lora", "its clients keep tensors of their own"),
        ("reefl", "by other means than the engine, or no client by itself"),
        ("pooled", "by other means than the engine, or no client by itself"),
        ("batch_layers", "its clients run other layers in each batch, by a rule that no node can make"),
        ("fedkseed", "its clients train by forward passes alone, by a rule that no node can make"),
    ],
)
def test_a_method_whose_clients_no_node_can_be_is_refused_with_the_reason(cells, plugins, tmp_path, method, why):
    with pytest.raises(UserError, match=f"the method '{method}' cannot be deployed: .*{re.escape(why)}"):
        deployed(changed(cells["plain", method], "plain", "sequential"), plugins, Here(tmp_path))


def test_an_objective_that_is_no_component_is_refused(cells, plugins, tmp_path, monkeypatch):
    monkeypatch.setattr(Deployed, "_train", lambda self, *given: self.references.clear() or train(self, *given))
    with pytest.raises(UserError, match="'fedra' cannot be deployed: its objective is a function of its own"):
        deployed(changed(cells["plain", "fedra"], "plain", "sequential"), plugins, Here(tmp_path))


def test_the_engine_must_be_the_one_that_nodes_have(cells, plugins, tmp_path):
    with pytest.raises(UserError, match="add --engine sequential"):
        deployed({**cells["plain", "fedra"], "engine": "cohort"}, plugins, Here(tmp_path))


def test_a_node_with_other_versions_refuses_the_cell(cells, plugins, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbench.deployment.deployed.versions_of", lambda *given: {"torch": "0.1"})
    with pytest.raises(UserError, match="node of client 0 cannot compute this cell: .*other versions .* torch is "):
        deployed({**cells["plain", "fedra"], "engine": "sequential"}, plugins, Here(tmp_path))


def test_a_node_with_other_examples_than_were_said_refuses_the_cell(cells, plugins, tmp_path):
    config, nodes = {**cells["plain", "fedra"], "engine": "sequential"}, Here(tmp_path)
    nodes.node(1).examples.deal = lambda *given: Examples(tmp_path / "1").deal(given[0], nodes.few(given[1]))
    nodes.few = lambda own: type(own)(own.x[:1], own.y[:1], own.domain[:1])
    with pytest.raises(UserError, match="1 examples, not 4 as it was said"):
        deployed(config, plugins, nodes)
