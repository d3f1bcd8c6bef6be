"""The suites in `suites/tuned/`: those of the same name beside them, with an equal budget of tuning for every method."""

from __future__ import annotations

import functools
from copy import deepcopy

import pytest
from test_shipped import SHIPPED

from fedbench.registry.registry import Registry
from fedbench.suite import Suite, load

# The board `images` has the hash of tuned/field, which so keeps the methods that it had: these came later to field.
LATER = {"block_stages", "batch_layers", "flasc", "fedkseed", "spry", "fwdllm", "splitlora"}
ONE_SCENARIO = ("real", "definitions")  # tests in test_real.py and test_generation.py
TUNED = sorted(path for path in (SHIPPED / "tuned").glob("*.yaml") if path.stem not in ONE_SCENARIO)


@pytest.fixture(scope="module")
def read():
    """read(path) -> Suite, with the components that are shipped."""
    catalogue = Registry().catalogue

    @functools.cache
    def suite(path) -> Suite:
        return load(path, catalogue)

    return suite


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_a_tuned_suite_is_its_namesake_with_validation_images(path, read):
    tuned, plain = read(path), read(SHIPPED / path.name)
    assert path.read_text().splitlines()[0] == f"# fedbench run suites/tuned/{path.name}"
    assert tuned.name == f"{plain.name}_tuned"
    assert len(tuned.groups) == len(plain.groups)
    for one, other in zip(tuned.groups, plain.groups, strict=True):
        settings, theirs = deepcopy(one.settings), deepcopy(other.settings)
        assert settings["evaluation"].pop("validation") == 0.1 and one.assign == "rotate"
        every = [part["evaluation"].pop("every", None) or part["train"]["rounds"] for part in (settings, theirs)]
        assert every[0] <= every[1]  # to halve, one has to look
        later = LATER & other.methods.keys() - one.methods.keys() if path.stem == "field" else set()
        methods = {name: method for name, method in other.methods.items() if name not in later}
        assert (one.scenario, one.variant, one.methods, settings) == (other.scenario, other.variant, methods, theirs)


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_every_method_tries_eight_rates_and_reports_ten_seeds(path, read):
    suite = read(path)
    assert suite.tuning.trials == 8 and len(suite.seeds) == 10
    rates = {values["train.optimizer.lr"] for values in suite.tuning.candidates[:8]}
    assert len(rates) == 8 and min(rates) < 0.05 < max(rates)  # on both sides of what was set beforehand
