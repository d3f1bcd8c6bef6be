"""Split learning: client i has a head H_i and a tail T_i, the server the encoder E between them."""

from fedbench.families.aggregation import PLAIN_MEAN
from fedbench.families.split.algorithm import split
from fedbench.families.split.server import ClientOptimizer, ServerOptimizer

__all__ = ["PLAIN_MEAN", "ClientOptimizer", "ServerOptimizer", "split"]
