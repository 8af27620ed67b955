"""Verdicts of a table of comparisons: Holm's correction over all rows, and equivalence within a margin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Dict, Hashable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from cbt_plugins.metrics import Direction
from cbt_plugins.warning_kinds import caps, forbids_verdict


class Verdict(Enum):
    """The verdict on a change; docs/STATISTICS.md has the rules."""

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

    @property
    def forbidden_by(self) -> Optional[StatisticsWarning]:
        """The first warning that forbids a verdict on the value; None: none does."""
        return next((its for its in self.warnings if forbids_verdict(its.code)), None)

    @property
    def capped_by(self) -> Optional[StatisticsWarning]:
        """The first warning that something held the value down; None: none does."""
        return next((its for its in self.warnings if caps(its.code)), None)


@dataclass(frozen=True)
class Comparison:
    """A change between base and new; `verdict` is None until `judge` has seen the table.

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
    #: p of Welch's test in addition to an exact one
    second: Optional[float] = None
    #: the smallest p that the exact test can give with so few runs; 0 for the other tests
    floor: float = 0.0
    #: the smallest margin m for which "the change is within -m and m" can be claimed
    within: Optional[float] = None
    #: of the judge: p after Holm's correction over the table, and the margin that "equivalent" means
    adjusted: Optional[float] = None
    margin: Optional[float] = None

    @property
    def forbidden_by(self) -> Optional[StatisticsWarning]:
        """The first warning that forbids a verdict whatever the numbers say; None: none does."""
        mine = next((its for its in self.warnings if forbids_verdict(its.code)), None)
        return self.base.forbidden_by or self.new.forbidden_by or mine

    @property
    def capped_by(self) -> Optional[StatisticsWarning]:
        """The first warning that forbids "better" and "equivalent"; None: none does."""
        return self.base.capped_by or self.new.capped_by


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


Key = TypeVar("Key", bound=Hashable)
_HELPED = "{} rows and few runs: valid only if the logarithms of runs are about normally distributed"


def holm(p_values: Sequence[float]) -> List[float]:
    """Adjusted p-values (Holm, 1979), each to be compared with alpha: that is the chance of any false one, then."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def judge(
    comparisons: Mapping[Key, Comparison],
    directions: Mapping[Key, Direction],
    margin: Union[float, Mapping[Key, float]],
    alpha: float = 0.05,
    least: float = 0.0,
) -> Dict[Key, Comparison]:
    """Return the comparisons with their verdicts, in the same order.

    `margin`: the relative change (0.03: 3 %) within which two values are equivalent. `least`: a smaller change is
    neither better nor worse, however significant it is. ValueError when the comparisons' confidence is not 1 - alpha,
    or a margin is not above 0.
    """
    rows = [key for key, comparison in comparisons.items() if comparison.p is not None and not comparison.forbidden_by]
    helped = {key for key in rows if comparisons[key].second is not None and comparisons[key].floor * len(rows) > alpha}
    p_values = [_helped(comparisons[key], alpha) if key in helped else comparisons[key].p or 0.0 for key in rows]
    adjusted = dict(zip(rows, holm(p_values)))
    judged = {}
    for key, comparison in comparisons.items():
        width = margin[key] if isinstance(margin, Mapping) else margin
        if width <= 0:
            raise ValueError(f"a margin of {width}")
        if abs(1 - comparison.base.confidence - alpha) > 1e-9:
            raise ValueError(f"intervals at {comparison.base.confidence:g} for verdicts at {1 - alpha:g}")
        verdict, warnings = _verdict(comparison, directions[key], width, least, adjusted.get(key, 1.0) < alpha)
        if comparison.capped_by and verdict in (Verdict.BETTER, Verdict.EQUIVALENT):
            verdict = Verdict.INCONCLUSIVE
        if key in helped and verdict in (Verdict.BETTER, Verdict.WORSE):
            warnings.append(StatisticsWarning("assumes-normal", _HELPED.format(len(rows))))
        judged[key] = replace(
            comparison,
            verdict=verdict,
            warnings=(*comparison.warnings, *warnings),
            adjusted=adjusted.get(key),
            margin=width,
        )
    return judged


def _helped(comparison: Comparison, alpha: float) -> float:
    """The p of few runs in a table so long that the exact test could not give one as small as it would need.

    It is that of the t test on the same runs, if the exact test alone says yes.
    """
    exact, second = comparison.p, comparison.second
    assert exact is not None and second is not None
    return second if exact < alpha else max(exact, second)


def _verdict(
    comparison: Comparison, direction: Direction, margin: float, least: float, significant: bool
) -> Tuple[Verdict, List[StatisticsWarning]]:
    change, low, high = comparison.change, comparison.change_low, comparison.change_high
    if comparison.forbidden_by:
        return Verdict.INCONCLUSIVE, []
    differs = significant and low is not None and high is not None and (low > 0 or high < 0)
    if comparison.within is not None and comparison.within < margin:
        text = f"significant, but within the margin of {margin:.3g}"
        return Verdict.EQUIVALENT, [StatisticsWarning("small-difference", text)] if differs else []
    if not differs or change is None:
        return Verdict.INCONCLUSIVE, []
    if direction is Direction.NONE:
        return Verdict.INCONCLUSIVE, [
            StatisticsWarning("no-direction", "significant, but the metric has no better direction")
        ]
    if abs(change) < least:
        return Verdict.INCONCLUSIVE, [StatisticsWarning("below-least", f"significant, but smaller than {least:.3g}")]
    return (Verdict.BETTER if (change > 0) == (direction is Direction.HIGHER) else Verdict.WORSE), []
