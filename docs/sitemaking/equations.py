"""Equations as MathML, which browsers show by themselves: no script, no font and no request."""

from __future__ import annotations

import html
import re

from docutils.utils.math.latex2mathml import tex2mathml

# What pymdownx.arithmatex makes of $...$ and $$...$$ in a page, code left alone.
_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def shown(page: str) -> str:
    """A page of HTML with its equations as MathML. Raises ValueError for one that is no LaTeX that is known."""
    return _MARKED.sub(lambda found: _mathml(html.unescape(found[3]).strip(), found[2] == "["), page)


def _mathml(tex: str, is_block: bool) -> str:
    try:
        made = tex2mathml(tex, as_block=is_block)
    except Exception as error:  # docutils has an exception of its own for this, elsewhere in each version
        raise ValueError(f"this equation cannot be shown: {tex}: {error}") from error
    return f'<div class="equation">{made}</div>' if is_block else made
