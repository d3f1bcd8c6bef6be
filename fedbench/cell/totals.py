"""What cells will cost, known before they run: computed from shapes once, then read from disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.disk import remembered
from fedbench.errors import NotApplicable, UserError, told
from fedbench.registry.assets import Assets


def totals_of(assets: Assets, cell_id: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell will cost, see `Ledger.totals`; or the reason why not, under `not_applicable`, or under `unknown`
    where a plugin broke. Raises UserError."""

    def compute() -> dict[str, Any]:
        import torch  # `fedbench plan` starts without it, and does without it where the answer is kept

        from fedbench.cell.trial import Trial

        source = assets.source(config["backbone"])
        dataset = assets.dataset(config["data"], source.image_size)
        try:
            with torch.device("meta"):
                trial = Trial(config, assets.registry, "meta", source, dataset)
            return trial.ledger.totals(trial.method, trial.evaluation)
        except NotApplicable as reason:
            return {"not_applicable": str(reason)}

    try:
        return remembered("totals", [cell_id, assets.stamp("method", config["method"])], compute)
    except UserError:
        raise
    except Exception as error:  # of a plugin; the other cells' costs are wanted all the same
        return {"unknown": told(error)}
