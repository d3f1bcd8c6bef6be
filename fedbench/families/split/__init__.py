"""Split learning: clients hold the first part of a model, and the last or none, and the server what is left."""

from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.split.adapters import split_adapters
from fedbench.families.split.algorithm import split
from fedbench.families.split.server import ClientOptimizer, ServerOptimizer

__all__ = ["PLAIN_MEAN", "ClientOptimizer", "ServerOptimizer", "split", "split_adapters"]
