"""Whether a cell came out as it was told: equal, within seed noise, or different."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedbench.report.measures import is_fraction
from fedbench.reproduction.noise import Noise
from fedbench.reproduction.told import Told
from fedbench.results.choice import without_noise
from fedbench.results.said import Said

EQUAL, WITHIN, DIFFERENT, NOT_RUN = "equal", "within noise", "different", "not run"
ORDER = (DIFFERENT, NOT_RUN, WITHIN, EQUAL)


@dataclass(frozen=True)
class Verdict:
    """One cell: what it is called, its numbers there and here, and what to say of it.

    metric: the one that is shown, that which is farthest apart in bounds · bound: the largest difference within noise,
    None where that is not known · reason: of what is different or was not run.
    """

    cell: Told
    called: str
    here: Said | None = None
    metric: str = ""
    bound: float | None = None
    reason: str = ""

    @property
    def there_value(self) -> float | None:
        """The score that was told."""
        return self.cell.said.scores.get(self.metric)

    @property
    def here_value(self) -> float | None:
        """The score of the run here."""
        return self.here.scores.get(self.metric) if self.here else None

    @property
    def difference(self) -> float | None:
        """Here minus there."""
        there, here = self.there_value, self.here_value
        return None if there is None or here is None else here - there


def verdicts(
    cells: Sequence[Told],
    here: Mapping[int, Said | str],
    noise_of: Sequence[Told],
    equivalent: float = 0.0,
) -> list[Verdict]:
    """A verdict for each cell, what is different first.

    here: by place in cells what the run says, or why there is none · noise_of: the cells whose seeds tell the noise ·
    equivalent: a difference of scores that may pass in any case, in percent where those are.
    """
    apart = {i: one for i, one in here.items() if isinstance(one, Said) and one != cells[i].said}
    noise = Noise(noise_of, sum(len(one.scores) for one in apart.values()))
    found = []
    for i, cell in enumerate(cells):
        one = here[i]
        if isinstance(one, str):
            found.append(Verdict(cell, NOT_RUN, reason=one))
        elif i in apart:
            found.append(_judged(cell, one, noise, equivalent))
        else:
            found.append(Verdict(cell, EQUAL, one, _first(cell)))
    return sorted(found, key=lambda verdict: ORDER.index(verdict.called))


def _first(cell: Told) -> str:
    """The metric that is shown where all are the same."""
    scores = cell.said.scores
    return "accuracy" if "accuracy" in scores else min(scores, default="")


def _judged(cell: Told, here: Said, noise: Noise, equivalent: float) -> Verdict:
    """Of a cell that is not equal to the bit. Bytes and FLOPs come from shapes: seeds have no part in them."""
    there = cell.said
    odd = [what for what in ("bytes", "flops") if getattr(there, what) != getattr(here, what)]
    if there.scores.keys() != here.scores.keys():
        odd.append("metrics")
    farthest, worst, bound = _first(cell), -1.0, noise.bound(cell, _first(cell))
    beyond = False
    for metric in there.scores.keys() & here.scores.keys():
        limit = noise.bound(cell, metric)
        most = max(limit or 0.0, equivalent / 100 if is_fraction(metric) else equivalent)
        difference = abs(here.scores[metric] - there.scores[metric])
        beyond = beyond or not without_noise(difference) <= without_noise(most)
        share = difference / most if most else difference
        if share > worst:
            farthest, worst, bound = metric, share, limit
    if odd:
        return Verdict(cell, DIFFERENT, here, farthest, bound, f"other {' and '.join(odd)}")
    if beyond:
        why = "" if bound is not None else "one seed each: no noise is known"
        return Verdict(cell, DIFFERENT, here, farthest, bound, why)
    return Verdict(cell, WITHIN, here, farthest, bound)
