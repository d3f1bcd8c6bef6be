"""Student's t in closed form: a leaderboard needs it, and scipy.stats takes longer to import than to print one."""

from __future__ import annotations

import math
from functools import cache


def two_sided(t: float, df: int) -> float:
    """P(|T| > |t|) for Student's T with a whole number of degrees of freedom df, to 15 decimals.

    With a = atan(|t| / sqrt(df)), P(|T| < |t|) is a finite sum in cos(a) (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.3 for odd and 26.7.4 for even df).
    """
    return max(0.0, 1 - _within(math.atan2(abs(t), df**0.5), df))


@cache
def quantile(confidence: float, df: int) -> float:
    """The t with P(|T| < t) = confidence, by halving the angle a of `two_sided`."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < confidence else (low, middle)
    return df**0.5 * math.tan(low)


def _within(angle: float, df: int) -> float:
    """P(|T| < sqrt(df) tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + odd, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
