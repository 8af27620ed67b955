"""Verdicts of a table of comparisons: two families of rows, and equivalence within a margin.

The few key rows share the chance of any false verdict (Holm, 1979); of the verdicts on all others a part is allowed to
be false (Benjamini and Hochberg, 1995), which costs less where there are many. The margin is that of the metric
(`cbt_plugins/metrics.py`), unless the user gives one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Collection, Dict, Hashable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from cbt_plugins.formatting import in_percent, percent
from cbt_plugins.metrics import ALPHA, Direction
from cbt_plugins.warning_kinds import caps, flatters, forbids_verdict, hides_worse


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
class Scatter:
    """The standard deviation from run to run, relative, and how well it is known."""

    value: float
    freedom: float = 1e9  # degrees of freedom: of the repeated runs it was learnt from; as many as this: it was given

    @property
    def words(self) -> str:
        """How it is known."""
        source = "given" if self.freedom >= 1e9 else f"of {self.freedom:.0f} degrees of freedom"
        return f"a scatter of {percent(self.value, '.2f')} from run to run ({source})"


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
        return next((warning for warning in self.warnings if forbids_verdict(warning.code)), None)

    @property
    def capped_by(self) -> Optional[StatisticsWarning]:
        """The first warning that something held the value down; None: none does."""
        return next((warning for warning in self.warnings if caps(warning.code)), None)

    @property
    def flattered_by(self) -> Optional[StatisticsWarning]:
        """The first warning that the value looks better than it is; None: it does not."""
        return next((warning for warning in self.warnings if flatters(warning.code)), None)


#: method -> a warning of the sides that says nothing about the change by it
_IDLE_WARNINGS = {
    **dict.fromkeys(("exact rank sum", "exact signed ranks"), "assumes-normal"),
    "t with a known scatter": "too-few-runs",
}


@dataclass(frozen=True)
class Comparison:
    """A change between base and new; `verdict` is None until `decide_verdicts` has seen the table.

    `change` and its interval `change_low` to `change_high` are relative: new / base - 1; with a `unit` they are new -
    base in it, and so is the margin. `p` is of the two-sided test
    that `method` names. The inner interval has the confidence 1 - 2 alpha, each of its ends alone 1 - alpha:
    it decides "equivalent". None: cannot be computed.
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
    inner_low: Optional[float] = None
    inner_high: Optional[float] = None
    #: pairs, or blocks of interleaved runs, that were compared; 0: runs of both sides without their order
    blocks: int = 0
    #: of `decide_verdicts`: p corrected over its family, the margin that "equivalent" means, its family, and the way
    #: in which it surely differs from 0: better, worse, or higher, lower without a better direction; "": not surely
    adjusted: Optional[float] = None
    margin: Optional[float] = None
    key: bool = True
    differs: str = ""
    unit: str = ""

    @property
    def all_warnings(self) -> Tuple[StatisticsWarning, ...]:
        """The warnings about the sides and about their comparison, each once.

        That the intervals of the sides assume normal logarithms says nothing about a test and an interval of ranks.
        That a side has too few runs for an interval of its own says nothing about an interval by a known scatter.
        """
        idle = _IDLE_WARNINGS.get(self.method)
        of_sides = [warning for warning in (*self.base.warnings, *self.new.warnings) if warning.code != idle]
        return tuple(dict.fromkeys((*of_sides, *self.warnings)))

    @property
    def within(self) -> Optional[float]:
        """The smallest margin m for which "the change is within -m and m" can be claimed."""
        if self.inner_low is None or self.inner_high is None:
            return None
        return max(abs(self.inner_low), abs(self.inner_high))

    @property
    def deciding(self) -> Tuple[Optional[float], Optional[float]]:
        """The interval that the verdict is of: the inner one where it is "equivalent"."""
        if self.verdict is Verdict.EQUIVALENT:
            return self.inner_low, self.inner_high
        return self.change_low, self.change_high

    @property
    def deciding_confidence(self) -> float:
        """The confidence of the interval that the verdict is of."""
        outer = self.base.confidence
        return round(2 * outer - 1, 9) if self.verdict is Verdict.EQUIVALENT else outer

    @property
    def forbidden_by(self) -> Optional[StatisticsWarning]:
        """The first warning that forbids a verdict whatever the numbers say; None: none does."""
        mine = next((warning for warning in self.warnings if forbids_verdict(warning.code)), None)
        return self.base.forbidden_by or self.new.forbidden_by or mine

    @property
    def capped_by(self) -> Optional[StatisticsWarning]:
        """The first warning that forbids "better" and "equivalent"; None: none does."""
        mine = next((warning for warning in self.warnings if caps(warning.code)), None)
        return self.base.capped_by or self.new.capped_by or mine

    def hides_worse(self, direction: Direction) -> bool:
        """Return whether the limits that capped the load of a side may also be the reason for the verdict "worse"."""
        base, new = ([w.code for w in side.warnings if caps(w.code)] for side in (self.base, self.new))
        return hides_worse(base, new, direction is Direction.LOWER)


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
_BY_T_TEST = "{} rows and few runs: valid only if the logarithms of runs are about normally distributed"


def holm(p_values: Sequence[float]) -> List[float]:
    """Adjust p-values (Holm, 1979): each is compared with alpha, which then is the chance of any false one."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def false_discovery(p_values: Sequence[float]) -> List[float]:
    """Adjust p-values (Benjamini and Hochberg, 1995): each is compared with q.

    Of the rows below q, on average a part q at most is false, for rows that are independent or move together
    (Benjamini and Yekutieli, 2001).
    """
    adjusted, lowest = [1.0] * len(p_values), 1.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in reversed(list(enumerate(order, 1))):
        lowest = min(lowest, p_values[index] * len(p_values) / rank)
        adjusted[index] = lowest
    return adjusted


def widened(comparison: Comparison, base: Tuple[float, float], new: Tuple[float, float]) -> Comparison:
    """Return a comparison of values that are known up to so much (below, above) on the base's and the new side.

    It is in the unit of the values: half a bin, or a step of a ladder. All intervals grow by it; where that of the
    change then contains 0 there is no verdict. The true ratio is lowest if the new value is as far below and the base
    as far above as they may be, and highest the other way round; a base that may be 0 leaves it without an upper end.
    """
    base_side, new_side = (
        replace(side, low=_less(side.low, below), high=_less(side.high, -above))
        for side, (below, above) in zip(_sides(comparison), (base, new))
    )
    levels = comparison.base.value, comparison.new.value
    if comparison.change is None or min(levels) <= 0:
        return replace(comparison, base=base_side, new=new_side)
    lowest = max(0.0, 1 - new[0] / levels[1]) / (1 + base[1] / levels[0])
    highest = (1 + new[1] / levels[1]) / (1 - base[0] / levels[0]) if base[0] < levels[0] else math.inf
    upper = f"and {percent(highest - 1)} higher" if math.isfinite(highest) else "and has no end: the base may be 0"
    text = f"values are in bins, or steps: the interval ends {percent(1 - lowest)} lower {upper}"
    low, inner_low = (
        None if end is None else (1 + end) * lowest - 1 for end in (comparison.change_low, comparison.inner_low)
    )
    high, inner_high = (
        None if end is None else (1 + end) * highest - 1 for end in (comparison.change_high, comparison.inner_high)
    )
    return replace(
        comparison,
        base=base_side,
        new=new_side,
        change_low=low,
        change_high=high,
        inner_low=inner_low,
        inner_high=inner_high,
        warnings=(*comparison.warnings, StatisticsWarning("in-bins", text)),
    )


def _sides(comparison: Comparison) -> Tuple[Estimate, Estimate]:
    return comparison.base, comparison.new


def _less(end: Optional[float], by: float) -> Optional[float]:
    return None if end is None else end - by


def decide_verdicts(
    comparisons: Mapping[Key, Comparison],
    directions: Mapping[Key, Direction],
    margin: Union[float, Mapping[Key, float]],
    alpha: float = ALPHA,
    keys: Optional[Collection[Key]] = None,
) -> Dict[Key, Comparison]:
    """Return the comparisons with their verdicts, in the same order.

    `keys`: the key rows, which are decided first and with the whole of alpha (Holm); all others are decided with a
    false discovery rate of alpha. None: all are key rows. Rows without p, or with a warning that forbids a verdict,
    are in neither family. `margin`: the smallest relative change that matters (0.03: 3 %); two values are equivalent
    where the change is surely smaller. ValueError when the comparisons' confidence is not 1 - alpha, or a margin is not
    above 0.
    """
    rows = [key for key, comparison in comparisons.items() if comparison.p is not None and not comparison.forbidden_by]
    adjusted: Dict[Key, float] = {}
    by_t_test: Dict[Key, int] = {}
    first = [key for key in rows if keys is None or key in keys]
    for family, correct in ((first, holm), ([key for key in rows if key not in first], false_discovery)):
        size = len(family)
        of_family = [(key, comparisons[key]) for key in family]
        by_t_test.update({key: size for key in family if _too_few(comparisons[key], alpha / size)})
        p_values = (_p_of_t_test(c, alpha) if key in by_t_test else c.p or 0.0 for key, c in of_family)
        adjusted.update(zip(family, correct(list(p_values))))
    judged = {}
    for key, comparison in comparisons.items():
        width = margin[key] if isinstance(margin, Mapping) else margin
        if width <= 0:
            raise ValueError(f"a margin of {width}")
        if abs(1 - comparison.base.confidence - alpha) > 1e-9:
            raise ValueError(f"intervals at {comparison.base.confidence:g} for verdicts at {1 - alpha:g}")
        differs = _differs(comparison, directions[key]) if adjusted.get(key, 1.0) < alpha else ""
        verdict, warnings = _verdict(comparison, width, differs)
        if comparison.capped_by and (verdict is not Verdict.WORSE or comparison.hides_worse(directions[key])):
            verdict = Verdict.INCONCLUSIVE
        if key in by_t_test and verdict in (Verdict.BETTER, Verdict.WORSE):
            warnings.append(StatisticsWarning("assumes-normal", _BY_T_TEST.format(by_t_test[key])))
        judged[key] = replace(
            comparison,
            verdict=verdict,
            warnings=(*comparison.warnings, *warnings),
            adjusted=adjusted.get(key),
            margin=width,
            key=keys is None or key in keys,
            differs=differs,
        )
    return judged


def _too_few(comparison: Comparison, wanted: float) -> bool:
    """Return whether the exact test of so few runs can give no p as small as is wanted."""
    return comparison.second is not None and comparison.floor > wanted


def _p_of_t_test(comparison: Comparison, alpha: float) -> float:
    """Return the p of a comparison with too few runs for the exact test to give a p as small as its table needs.

    It is the p of the t test on the same runs. If the p of the exact test is not below `alpha`, it is the larger of
    both.
    """
    exact, second = comparison.p, comparison.second
    assert exact is not None and second is not None
    return second if exact < alpha else max(exact, second)


def _differs(comparison: Comparison, direction: Direction) -> str:
    """Return in which way the change is not 0, by its interval; "" where that contains 0."""
    low, high = comparison.change_low, comparison.change_high
    if comparison.forbidden_by or low is None or high is None or low <= 0 <= high:
        return ""
    if direction is Direction.NONE:
        return "higher" if low > 0 else "lower"
    return (Verdict.BETTER if (low > 0) == (direction is Direction.HIGHER) else Verdict.WORSE).value


def _verdict(comparison: Comparison, margin: float, differs: str) -> Tuple[Verdict, List[StatisticsWarning]]:
    if comparison.forbidden_by:
        return Verdict.INCONCLUSIVE, []
    low, high = comparison.inner_low, comparison.inner_high
    if low is not None and high is not None and -margin < low and high < margin:
        text = small_difference(differs, (low, high), margin, comparison.unit)
        return Verdict.EQUIVALENT, [StatisticsWarning("small-difference", text)] if differs else []
    if differs in ("higher", "lower"):
        text = f"surely {differs}, but the metric has no better direction"
        return Verdict.INCONCLUSIVE, [StatisticsWarning("no-direction", text)]
    return Verdict(differs) if differs else Verdict.INCONCLUSIVE, []


def small_difference(differs: str, ends: Tuple[float, float], margin: float, unit: str = "") -> str:
    """Return both that are known of a change: "worse by 2.1 to 3.9 %, within 5 %"."""
    near, far = sorted(map(abs, ends))
    if unit:
        return f"{differs} by {near:.3g} to {far:.3g} {unit}, within {margin:.3g} {unit}"
    return f"{differs} by {in_percent(near)} to {percent(far)}, within {percent(margin, '.3g')}"
