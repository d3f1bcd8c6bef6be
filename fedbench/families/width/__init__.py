"""Unequal width: clients train slices of a whole model's tensors, and the server counts by coordinate."""

from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.width.cuts import RATES, Cuts, Part, Rates, offered
from fedbench.families.width.method import averaged_slices, widthwise
from fedbench.families.width.narrow import narrowed
from fedbench.families.width.units import count, first

__all__ = [
    "PLAIN_MEAN",
    "RATES",
    "Cuts",
    "Part",
    "Rates",
    "averaged_slices",
    "count",
    "first",
    "narrowed",
    "offered",
    "widthwise",
]
