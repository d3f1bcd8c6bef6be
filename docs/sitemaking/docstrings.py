"""Parameters of docstrings, `:param name: what it is` line by line, as lists."""

from __future__ import annotations

import re

_LINES = re.compile(r"<p>(:param .*?)</p>", re.DOTALL)
_ONE = re.compile(r":param (\w+): *(.*?)(?=\s*:param |\Z)", re.DOTALL)


def listed(page: str) -> str:
    """A page of HTML with each paragraph of parameters as a list."""
    return _LINES.sub(lambda found: f"<ul>{_ONE.sub(_item, found[1])}</ul>", page)


def _item(found: re.Match) -> str:
    return f"<li><code>{found[1]}</code>: {found[2].strip()}</li>"
