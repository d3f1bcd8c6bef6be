"""A cell as a stranger tells of it: what it was computed from, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedbench.results.said import Said


@dataclass(frozen=True)
class Told:
    """A finished cell under one of its names. origin: what its manifest says of `versions`, `fingerprints`, `machine`
    and `git` · root: of a results folder, where its data were if its configuration has a relative root, or ""; None on
    a page, which does not tell."""

    suite: str
    scenario: str
    variant: str
    method: str
    seed: int
    id: str
    config: Mapping[str, Any] = field(repr=False)
    origin: Mapping[str, Any] = field(repr=False)
    said: Said
    root: str | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What a suite calls it."""
        return self.suite, self.scenario, self.variant, self.method, self.seed

    @property
    def group(self) -> tuple[str, str, str, str]:
        """The name without its seed."""
        return self.suite, self.scenario, self.variant, self.method

    @property
    def title(self) -> str:
        """What a person calls it."""
        variant = f" [{self.variant}]" if self.variant else ""
        return f"{self.suite} · {self.scenario} · {self.method}{variant} · seed {self.seed}"
