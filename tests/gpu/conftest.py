"""Tests of what runs on a GPU: with one, `tox -e gpu` or `pytest -m gpu tests/gpu`, in a minute or two, and the rest by
`pytest -m "gpu and slow" tests/gpu`; elsewhere on a pretended one, a sample of them in the ordinary suite and the rest
by `pytest -m slow tests/gpu`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from device_rules import Gpu, pretended

REAL = torch.cuda.is_available()
# What the ordinary suite runs on the pretended GPU: each rule once, by the cheapest case.
SAMPLE = {
    "test_two_rounds_of_every_method_equal_the_oracle_on_the_cpu[fedra-tiny_vit]",
    "test_a_step_never_waits_for_the_gpu[one has finished-tiny_vit-reference]",
    "test_a_rough_cell_is_as_on_the_cpu_and_goes_on_from_its_checkpoint[fedra-cohort]",
    "test_images_are_sent_without_waiting",
    "test_images_and_labels_are_those_of_the_cpu[False]",
}


@pytest.fixture(autouse=True)
def a_gpu(request) -> Iterator[Gpu | None]:
    """The pretended GPU, where there is no other."""
    if REAL or not request.node.get_closest_marker("gpu"):
        yield None
    else:
        with pretended() as gpu:
            yield gpu


@pytest.hookimpl(tryfirst=True)  # before slow ones are left out
def pytest_collection_modifyitems(config, items):
    for item in items if not REAL else ():
        if item.get_closest_marker("gpu") and item.name not in SAMPLE:
            item.add_marker(pytest.mark.slow)
    if config.option.markexpr == "gpu":  # which stands in place of "not slow"
        config.option.markexpr = "gpu and not slow"
