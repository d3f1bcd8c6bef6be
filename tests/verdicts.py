"""Verdicts of `fedbench plugins check`, given in this process: a test of many plugins starts none for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

from fedbench.registry.registry import Registry
from fedbench.testing.component_check import Verdict, found, judged


def verdicts(file: Path | str, **options: Any) -> list[Verdict]:
    """One for each component of a plugin's file, and one where it registers none.

    The command calls `found` and `judged` in child processes, which import the file; so what it registers is read here
    too, and no further process is started to read it once more.
    """
    with patch.object(Registry, "registrations", Registry.registrations_here):
        made = found({"name": str(file), "plugins": []})
        asked = {"options": options, "plugins": [str(file)]}
        components = ({key: one[key] for key in ("kind", "name", "plugin")} for one in made["components"])
        return [*made["verdicts"], *(judged({**asked, **one}) for one in components)]
