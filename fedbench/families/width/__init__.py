"""Unequal width: clients train slices of a whole model's tensors, and the server counts by coordinate."""

from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.width.narrow import RATES, Cuts, NarrowModel, Rates, narrowed, offered
from fedbench.families.width.units import count, first
from fedbench.families.width.widthwise import averaged_slices, widthwise

__all__ = [
    "PLAIN_MEAN",
    "RATES",
    "Cuts",
    "NarrowModel",
    "Rates",
    "averaged_slices",
    "count",
    "first",
    "narrowed",
    "offered",
    "widthwise",
]
