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
    from fedbench.testing.adapters import check_adapter
    from fedbench.testing.aggregators import check_aggregator
    from fedbench.testing.allocations import check_allocation
    from fedbench.testing.assets import check_backbone, check_dataset
    from fedbench.testing.components import check_metric, check_objective, check_partition
    from fedbench.testing.ignoring import check_ignores
    from fedbench.testing.methods import check_method, check_state
    from fedbench.testing.whole import check_component
    from fedbench.testing.world import cohort_of, setup_of, tiny_mixer, tiny_vit

_LAZY = {  # torch takes seconds to import, and the process that has others check needs none of it
    "adapters": ("check_adapter",),
    "aggregators": ("check_aggregator",),
    "allocations": ("check_allocation",),
    "assets": ("check_backbone", "check_dataset"),
    "components": ("check_metric", "check_objective", "check_partition"),
    "ignoring": ("check_ignores",),
    "methods": ("check_method", "check_state"),
    "whole": ("check_component",),
    "world": ("cohort_of", "setup_of", "tiny_mixer", "tiny_vit"),
}

__all__ = [
    "check_adapter",
    "check_aggregator",
    "check_allocation",
    "check_backbone",
    "check_component",
    "check_dataset",
    "check_ignores",
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
    for file, names in _LAZY.items():
        if name in names:
            return getattr(import_module(f"fedbench.testing.{file}"), name)
    raise AttributeError(f"module 'fedbench.testing' has no attribute {name!r}")
