"""Figures that benchmarks leave behind: a table on the terminal, and JSON with what made them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedbench import machine
from fedbench.machine import package_version

PACKAGES = ("torch", "timm", "flwr", "ray", "pfl", "peft")


class Figures:
    """What benchmarks have measured."""

    def __init__(self) -> None:
        self.measured: dict[str, Any] = {}
        self.lines: list[str] = []

    def add(self, name: str, facts: dict[str, Any], lines: list[str]) -> None:
        self.measured[name] = facts
        self.lines += ["", *lines]

    def write(self, path: Path) -> None:
        """With machine, versions and date; written whole or not at all."""
        versions = {name: version for name in PACKAGES if (version := package_version(name))}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        facts = {"date": now, "machine": machine.describe("cpu"), "versions": versions, "measured": self.measured}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(facts, indent=1) + "\n")
        os.replace(partial, path)
