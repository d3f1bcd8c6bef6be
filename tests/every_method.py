"""A tiny cell of every method: in a plain scenario, in one in which most that can happen does, and on devices."""

from __future__ import annotations

from command import write_suite

from fedbench.runner.runner import load

ROUNDS = 3
SCENARIOS = """
scenarios:
  plain: {}
  rough:
    capacities: {uniform: [1, 2]}
    data: {name: dots, per_class: 5, partition: {name: iid, clients: 5}}
    participation: {count: 3}
    train: {max_steps: 3, regularizer: {feddyn: 0.1}, optimizer: {name: sgd, lr: 0.05, momentum: 0.9}}
    evaluation: {by: client, validation: 0.25}
    faults: {dropout: 0.3, stragglers: {probability: 0.5, slowdown: [1, 6], deadline: 1.2, late: partial}}
  dealt:
    data: {name: dots, per_class: 5, partition: {name: iid, clients: 5}}
    devices: {server_gpu: 1, raspberry_pi_5: 1, raspberry_pi_4: 1}
    device_scale: {memory: 3.0e-6}
    device_jitter: 0.2
    wait_for: 2
    evaluation: {sizes: true}
    faults: {dropout: 0.2, stragglers: {probability: 0.5, slowdown: [1, 6], deadline: 1.2, late: partial}}
"""
METHODS = [
    "alllarge",
    "allsmall",
    "batch_layers",
    "block_stages",
    "depthfl",
    "ditto",
    "exclusive",
    "exit_probe",
    "fed_hello",
    "fed_plora",
    "fedavg",
    "fedex_lora",
    "fedit",
    "fedkseed",
    "fedra",
    "fedrod",
    "fedrolex",
    "fedsa_lora",
    "fedv",
    "fedvz",
    "festa",
    "flasc",
    "ffa_lora",
    "fjord",
    "flexlora",
    "flora",
    "fslora",
    "fwdllm",
    "head_only",
    "heterofl",
    "hetlora",
    "inclusivefl",
    "legend",
    "local_only",
    "lora_fair",
    "majority",
    "ova_lp",
    "pooled",
    "pooled_probe",
    "raflora",
    "reefl",
    "rolora",
    "splitlora",
    "spry",
    "zero_round",
]
# What stands in FedDyn's place where a method has no use for it.
NO_FEDDYN = (
    *("ditto", "fedavg", "fedrod", "fedrolex", "fjord", "heterofl"),
    *("fedex_lora", "fedsa_lora", "flexlora", "flora", "fslora", "lora_fair", "raflora"),
)
# What takes no regulariser at all.
NO_PULL = ("fedkseed", "fedv", "fedvz", "festa", "fwdllm", "splitlora", "spry")
PULL = {**dict.fromkeys(NO_FEDDYN, {"fedprox": 0.1}), **dict.fromkeys(NO_PULL)}


def tiny_cells(folder, plugins):
    """The configurations of these cells, by scenario and method."""
    changes = {"scenarios:\n  small: {}\n": SCENARIOS, "rounds: 2": f"rounds: {ROUNDS}", "dropout: 0.0": "dropout: 0.1"}
    path = write_suite(folder, ", ".join(METHODS), changes)
    return {(cell.scenario, cell.method): cell.config for cell in load(path, plugins).points()}


def changed(config, scenario, engine):
    """A configuration of these with that engine, and with what its method asks for."""
    config, method = {**config, "engine": engine}, config["method"]["name"]
    if method in PULL and scenario == "rough":
        config["train"] = {**config["train"], "regularizer": PULL[method]}
    if method == "zero_round":
        config["data"] = {**config["data"], "proxy": {"images": 6}}
    if method == "fedsa_lora":
        config["evaluation"] = {**config["evaluation"], "by": "client"}
    return config
