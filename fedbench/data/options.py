"""What the options take that data sets of files have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from fedbench.options import Text

Root = Annotated[str, Text("a folder")]
Interpolation = Literal["bicubic", "bilinear", "lanczos", "nearest"]
OnUnreadable = Literal["fail", "skip"]
Resize = Literal["antialiased", "reference"]
