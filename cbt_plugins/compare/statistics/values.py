"""What the statistics say: numbers with an interval, a p-value, a verdict, and the warnings about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Tuple


class Verdict(Enum):
    """What may be said of a change; docs/STATISTICS.md has the rules."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class StatisticsWarning:
    """A limit to the trust in a number. `code` is one of docs/STATISTICS.md, `text` one sentence for a person."""

    code: str
    text: str


@dataclass(frozen=True)
class Estimate:
    """A value in the unit of what was measured, and the interval that holds the true one at `confidence`.

    `low` and `high` are None where no interval can be computed. `n` is the number of runs, or the effective number of
    samples of one run's series (not a whole number).
    """

    value: float
    low: Optional[float]
    high: Optional[float]
    n: float
    confidence: float
    warnings: Tuple[StatisticsWarning, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What changed between base and new; `verdict` is None until `judge` has seen the whole table.

    `change` and its interval `change_low` to `change_high` are relative: new / base - 1. `p` is of the two-sided test
    that `method` names. None: cannot be computed.
    """

    base: Estimate
    new: Estimate
    change: Optional[float]
    change_low: Optional[float]
    change_high: Optional[float]
    p: Optional[float]
    method: str
    verdict: Optional[Verdict] = None
    warnings: Tuple[StatisticsWarning, ...] = ()
    #: p of Welch's test beside an exact one
    second: Optional[float] = None
    #: the smallest p that the exact test can give with so few runs; 0 for the other tests
    floor: float = 0.0
    #: the smallest margin m for which "the change is within -m and m" can be claimed
    within: Optional[float] = None
    #: of the judge: p after Holm's correction over the table, and the margin that "equivalent" means
    adjusted: Optional[float] = None
    margin: Optional[float] = None


@dataclass(frozen=True)
class ChangePoint:
    """The level of a sequence of runs changes before the run `index` (0 is the first).

    `before` and `after` are the medians of the runs between this change point and its neighbours, `p` is of the
    permutation test that found it.
    """

    index: int
    p: float
    before: float
    after: float
