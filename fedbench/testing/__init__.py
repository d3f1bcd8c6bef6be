"""The contract kit for authors of plugins: call `check_...` from your own tests, or `fedbench plugins check NAME`.

    from fedbench.testing import check_allocation
    from mine import strided

    def test_strided_keeps_the_contract():
        check_allocation(strided)

Every check raises AssertionError with what the contract says (`fedbench/hookspecs.py`) and what was found.
"""

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
