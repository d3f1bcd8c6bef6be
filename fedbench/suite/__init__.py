"""YAML -> validated suite -> resolved cells; without torch.

From the text to the cell: `source` reads, `structure` compares with `model`, `layers` lays settings on each
other, `components` and `methods` complete what is named, `limits` asks the backbone and the data, `resolve`
leads, and `cells` is what comes out.
"""

from fedbench.suite.cells import Cell, Suite
from fedbench.suite.jsonschema import json_schema
from fedbench.suite.limits import Facts
from fedbench.suite.resolve import load

__all__ = ["Cell", "Facts", "Suite", "json_schema", "load"]
