"""Student's t on logarithms: for runs too few for exact ranks, and where the scatter of runs is known otherwise.

It assumes that the logarithms are normal, and says so.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.assumption import FEWEST, RunAssumption, Shift, TwoSides, no_scatter
from cbt_plugins.compare.statistics.verdicts import Estimate, StatisticsWarning

#: a smaller standard error, as a part of the values, is rounding
DIGITS = 1e-12
#: the method of runs too few to show their scatter, where it is known otherwise
KNOWN_SCATTER = "t with a known scatter"


def student_shift(value: float, error: float, freedom: float, alpha: float, method: str) -> Shift:
    """Return the shift by Student's t; without any scatter equal values have p = 1, and others no p."""
    if error <= DIGITS:
        equal = abs(value) <= DIGITS
        return Shift(value, (0.0, 0.0), (0.0, 0.0), 1.0, method) if equal else Shift(value, None, None, None, method)
    p = 2 * float(special.stdtr(freedom, -abs(value) / error))
    wide, narrow = (float(special.stdtrit(freedom, 1 - part)) * error for part in (alpha / 2, alpha))
    return Shift(value, (value - wide, value + wide), (value - narrow, value + narrow), p, method)


def _normal(counts: Sequence[int]) -> StatisticsWarning:
    sizes = " and ".join(map(str, counts))
    return StatisticsWarning(
        "assumes-normal", f"{sizes} runs: valid only if the logarithms of runs are about normally distributed"
    )


class Student(RunAssumption):
    """Runs whose logarithms are about normal: Student's t."""

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        n = len(values)
        if n < FEWEST:
            return None
        logarithms = bool(np.all(values > 0))
        x = np.log(values) if logarithms else values
        reach = float(special.stdtrit(n - 1, (1 + confidence) / 2)) * float(x.std(ddof=1)) / math.sqrt(n)
        ends = (float(x.mean()) - reach, float(x.mean()) + reach)
        low, high = map(math.exp, ends) if logarithms else ends
        middle = float(np.median(values))
        return Estimate(middle, min(low, middle), max(high, middle), n, confidence, (_normal([n]),))

    def warnings(self, shift: Shift, sides: TwoSides) -> List[StatisticsWarning]:
        return no_scatter(shift, sides) or [_normal(sides.counts)]


class PairedT(Student):
    """Pairs: the t of their differences."""

    def applies(self, data: TwoSides) -> bool:
        return data.pairs is not None and len(data.pairs) >= FEWEST

    def shift(self, sides: TwoSides) -> Shift:
        pairs = sides.pairs
        assert pairs is not None
        n = len(pairs)
        error = max(float(pairs.std(ddof=1)), math.sqrt(2) * sides.least) / math.sqrt(n)
        return student_shift(float(pairs.mean()), error, n - 1, sides.alpha, "paired t")


class WelchT(Student):
    """Runs of two sides, each with a scatter of its own (Welch)."""

    def applies(self, data: TwoSides) -> bool:
        return data.pairs is None and data.fewer >= FEWEST

    def shift(self, sides: TwoSides) -> Shift:
        x, y = sides.x, sides.y
        n, m = len(x), len(y)
        parts = tuple(max(float(side.var(ddof=1)), sides.least**2) / len(side) for side in (x, y))
        error, freedom = math.sqrt(sum(parts)), 0.0
        if error > DIGITS:
            freedom = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / (m - 1))
        return student_shift(float(y.mean() - x.mean()), error, freedom, sides.alpha, "Welch's t")


class KnownScatter(Student):
    """A side of runs too few to show how they scatter, where that is known otherwise.

    Many runs of the other side do not tell how this one scatters.
    """

    def applies(self, data: TwoSides) -> bool:
        return data.pairs is None and data.fewer < FEWEST and data.scatter is not None and data.logarithms

    def shift(self, sides: TwoSides) -> Shift:
        assert sides.scatter is not None
        x, y = sides.x, sides.y
        reach = sides.scatter.value * math.sqrt(1 / len(x) + 1 / len(y))
        value = float(y.mean() - x.mean())
        return student_shift(value, reach, sides.scatter.freedom, sides.alpha, KNOWN_SCATTER)
