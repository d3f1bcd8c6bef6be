"""The contract kit for authors of plugins: call `check_...` from your own tests, or `fedbench plugins check NAME`.

    from fedbench.testing import check_allocation
    from mine import strided

    def test_strided_keeps_the_contract():
        check_allocation(strided)

Every check raises AssertionError with what the contract says (`fedbench/hookspecs.py`) and what was found.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.testing.components import (
        check_adapter,
        check_aggregator,
        check_allocation,
        check_backbone,
        check_dataset,
        check_metric,
        check_objective,
        check_partition,
    )
    from fedbench.testing.methods import check_method, check_state
    from fedbench.testing.whole import check_component
    from fedbench.testing.world import cohort_of, setup_of, tiny_mixer, tiny_vit

_LAZY = {  # torch takes seconds to import, and the process that has others check needs none of it
    **dict.fromkeys(("check_method", "check_state"), "methods"),
    "check_component": "whole",
    **dict.fromkeys(("cohort_of", "setup_of", "tiny_mixer", "tiny_vit"), "world"),
}

__all__ = [
    "check_adapter",
    "check_aggregator",
    "check_allocation",
    "check_backbone",
    "check_component",
    "check_dataset",
    "check_method",
    "check_metric",
    "check_objective",
    "check_partition",
    "check_state",
    "cohort_of",
    "setup_of",
    "tiny_mixer",
    "tiny_vit",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"fedbench.testing.{_LAZY.get(name, 'components')}"), name)
