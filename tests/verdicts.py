"""Verdicts of `fedbench plugins check`, given in this process: a test of many plugins starts none for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedbench.testing.component_check import Verdict, found, judged


def verdicts(file: Path | str, **options: Any) -> list[Verdict]:
    """One for each component of a plugin's file, and one where it registers none."""
    made = found({"name": str(file), "plugins": []})
    asked = {"options": options, "plugins": [str(file)]}
    components = ({key: one[key] for key in ("kind", "name", "plugin")} for one in made["components"])
    return [*made["verdicts"], *(judged({**asked, **one}) for one in components)]
