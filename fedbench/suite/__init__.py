"""YAML -> validated suite -> its points; without torch.

From the text to the point: `yaml` reads, `validate` compares with `keys`, `overlay` lays settings on each
other, `references` and `methods` complete what is named, `limits` asks the backbone and the data, `resolve`
leads, and `points` is what comes out.
"""

from fedbench.suite.jsonschema import json_schema
from fedbench.suite.limits import Facts
from fedbench.suite.points import Point, Suite
from fedbench.suite.references import reference
from fedbench.suite.resolve import load

__all__ = ["Facts", "Point", "Suite", "json_schema", "load", "reference"]
