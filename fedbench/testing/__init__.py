"""The contract kit for authors of plugins: call `check_...` from your own tests, or `fedbench plugins check NAME`.

    from fedbench.testing import check_allocation
    from mine import strided

    def test_strided_keeps_the_contract():
        check_allocation(strided)

Every check raises AssertionError with what the contract says (`fedbench/hookspecs.py`) and what was found.
"""

from __future__ import annotations

from fedbench.testing.adapter_check import check_adapter
from fedbench.testing.aggregator_check import check_aggregator
from fedbench.testing.backbone_check import check_backbone
from fedbench.testing.component_check import check_component
from fedbench.testing.dataset_check import check_dataset
from fedbench.testing.function_check import check_allocation, check_metric, check_objective, check_partition
from fedbench.testing.ignores_check import check_ignores
from fedbench.testing.method_check import check_method
from fedbench.testing.setups import check_state, cohort_of, setup_of, tiny_mixer, tiny_vit

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
