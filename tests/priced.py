"""What one cell will cost, found in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.errors import UserError
from fedbench.registry.facts import CachedFacts
from fedbench.runner.estimate import Costs, answer_each


def totals_of(facts: CachedFacts, cell_id: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """See `cost_estimates`. Raises UserError for what is refused or broke."""
    here = CachedFacts(facts.registry, facts.base, in_place=True)
    events: list[dict[str, Any]] = []
    answer_each([(cell_id, config)], facts.registry, lambda id, config: Costs(here).totals(config), events.append)
    (event,) = events
    if refused := event["found"].get("refused", event["found"].get("broke")):
        raise UserError(refused)
    return event["found"]
