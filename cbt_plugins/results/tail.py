"""Which quantiles show the tail of a distribution: even steps of the logarithm of 1 / (1 - q)."""

from __future__ import annotations

import math
from typing import List

#: points for each nine: 90 % is the 10th, 99 % the 20th, 99.9 % the 30th
PER_NINE = 10
NINES = 7


def quantiles(n: int) -> List[float]:
    """From 0 (the minimum) up to 1 - 1/n at most: a quantile that has at least one of n samples above or at it.

    The k-th is 1 - 10 ** (-k / PER_NINE), so that curves of different lengths have their points at the same places.
    """
    if n < 1:
        return []
    last = min(NINES * PER_NINE, math.floor(PER_NINE * math.log10(n) + 1e-9))
    return [1 - 10 ** (-k / PER_NINE) for k in range(last + 1)]
