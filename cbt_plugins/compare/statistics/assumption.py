"""What is taken for granted about runs, and what follows from it: an estimate of one side, a comparison of two.

An assumption is a class with three methods, as in benchstat's benchmath: `applies`, `summary`, `compare`. The first of
a list that applies is the one that counts: no function that compares has a case of its own for any of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

import numpy as np

from cbt_plugins.compare.statistics.run_order import Block, order_warnings, seen_drift, trend_warnings
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, Scatter, StatisticsWarning
from cbt_plugins.formatting import signed_percent

Interval = Optional[Tuple[float, float]]
Data = TypeVar("Data")
#: fewer runs (or pairs) give no Student's t
FEWEST = 3


class Assumption(ABC, Generic[Data]):
    """What is taken for granted about the data of two sides."""

    @abstractmethod
    def applies(self, data: Data) -> bool:
        """Return whether the data can be compared by it."""

    @abstractmethod
    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        """Return the level of one side; None where the values are too few for it."""

    @abstractmethod
    def compare(self, data: Data) -> Comparison:
        """Return the change from the base to the new side, without a verdict."""


def assumption_of(assumptions: Sequence[Assumption[Data]], data: Data) -> Assumption[Data]:
    """Return the first one that applies to both sides."""
    return next(assumption for assumption in assumptions if assumption.applies(data))


def first_summary(assumptions: Sequence[Assumption[Data]], values: np.ndarray, confidence: float) -> Estimate:
    """Return the level of one side by the first one that the values are enough for."""
    summaries = (assumption.summary(values, confidence) for assumption in assumptions)
    return next(summary for summary in summaries if summary is not None)


class Shift(NamedTuple):
    """A shift on the scale of the test, its intervals at 1 - alpha and 1 - 2 alpha, and the p of "there is none"."""

    value: float
    interval: Interval
    narrower: Interval
    p: Optional[float]
    method: str
    second: Optional[float] = None
    floor: float = 0.0
    exact: Optional[float] = None  # the exact test's own p, where the other test had to agree


@dataclass(frozen=True)
class TwoSides:
    """The runs of two sides, without those that have no value, in the order in which they were made."""

    base: Estimate
    new: Estimate
    first: np.ndarray  # values of the base
    second: np.ndarray
    logarithms: bool  # whether all are above 0: else values are compared, relative to the base
    level: float  # of the base; 1 where differences are compared in the unit of the values
    alpha: float
    scatter: Optional[Scatter]  # from run to run; None: not known
    paired: bool
    when: Optional[Tuple[np.ndarray, np.ndarray]]
    run_blocks: List[Block]  # of interleaved runs, enough of them for a test; else []
    warnings: Tuple[StatisticsWarning, ...]
    in_unit: bool = False  # differences are compared, in the unit of the values
    least: float = 0.0  # scatter of the runs of a side, for Student's t

    @cached_property
    def x(self) -> np.ndarray:
        """The base on the scale of the test."""
        return self._scaled(self.first)

    @cached_property
    def y(self) -> np.ndarray:
        """The new side on the scale of the test."""
        return self._scaled(self.second)

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        return np.log(values) if self.logarithms else values / (self.level or float(np.abs(self.second).max()) or 1.0)

    @cached_property
    def pairs(self) -> Optional[np.ndarray]:
        """The differences of runs that belong together, new - base; None: no pairs."""
        x, y = self.x, self.y
        if self.paired:
            return np.asarray(y - x)
        if self.run_blocks and all(len(a) == len(b) == 1 for a, b in self.run_blocks):
            return np.asarray([y[b[0]] - x[a[0]] for a, b in self.run_blocks])
        return None

    @property
    def fewer(self) -> int:
        """The number of runs of the side with fewer ones."""
        return min(len(self.first), len(self.second))

    @property
    def in_turns(self) -> int:
        """The number of pairs or blocks that runs are compared in; 0: without their order."""
        return len(self.run_blocks) or (len(self.first) if self.paired else 0)

    @property
    def counts(self) -> Tuple[int, ...]:
        """The numbers of runs that a warning names."""
        return (len(self.first),) if self.paired else (len(self.first), len(self.second))

    def relative(self, value: float) -> Optional[float]:
        """Return a shift as a relative change; None: the base is 0."""
        return math.expm1(value) if self.logarithms else value if self.level else None


    def shown(self, value: float) -> str:
        """Return a shift as people read it."""
        change = self.relative(value)
        return "-" if change is None else f"{change:+.3g}" if self.in_unit else signed_percent(change)


class RunAssumption(Assumption[TwoSides]):
    """An assumption about independent runs, one number each."""

    @abstractmethod
    def shift(self, sides: TwoSides) -> Shift:
        """Return the shift between the sides."""

    @abstractmethod
    def warnings(self, shift: Shift, sides: TwoSides) -> List[StatisticsWarning]:
        """Return the limits to the trust in the shift."""

    def compare(self, data: TwoSides) -> Comparison:
        shift = self.shift(data)
        warnings = [*data.warnings, *self.warnings(shift, data)]
        if not data.in_turns:
            warnings += trend_warnings(data.first, data.second)
        if data.when:
            shift = _with_drift(shift, data, data.when)
            warnings += order_warnings((data.x, data.y), data.when, data.alpha, data.run_blocks, data.shown)
        low, high = map(data.relative, shift.interval) if shift.interval else (None, None)
        inner_low, inner_high = map(data.relative, shift.narrower) if shift.narrower else (None, None)
        change = data.relative(shift.value)
        return Comparison(
            *(data.base, data.new, change, low, high, shift.p, shift.method, None, tuple(warnings)),
            second=shift.second,
            floor=shift.floor,
            inner_low=inner_low,
            inner_high=inner_high,
            blocks=data.in_turns,
        )


def hull(first: Interval, second: Interval) -> Interval:
    """Return the interval that holds both; None if one of them is None."""
    return (min(first[0], second[0]), max(first[1], second[1])) if first and second else None


def _with_drift(shift: Shift, sides: TwoSides, when: Tuple[np.ndarray, np.ndarray]) -> Shift:
    """Return the shift with intervals that also hold the change without a drift that is seen.

    A drift can hide a change as well as look like one. If the change without the drift may be 0, a warning forbids the
    verdict, and the intervals stay as they are.
    """
    drift = seen_drift((sides.x, sides.y), when, sides.run_blocks)
    if drift is None or drift.change_p >= sides.alpha:
        return shift
    wide, narrow = (drift.interval(alpha) for alpha in (sides.alpha, 2 * sides.alpha))
    return shift._replace(interval=hull(shift.interval, wide), narrower=hull(shift.narrower, narrow))


def no_scatter(shift: Shift, sides: TwoSides) -> List[StatisticsWarning]:
    """Return the warning about runs whose differences between the sides are all the same, if they are so."""
    same = all(len(set(values.tolist())) == 1 for values in (sides.first, sides.second))
    equal_pairs = sides.pairs is not None and not sides.pairs.any()
    if shift.p is None or (shift.p == 1 and (same or equal_pairs)):
        return [StatisticsWarning("no-scatter", "the difference of the sides has no scatter: the noise is unknown")]
    return []


class TooFew(RunAssumption):
    """Runs too few to tell a change from noise: a level without an interval, a change without a test."""

    def applies(self, data: TwoSides) -> bool:
        return True

    def summary(self, values: np.ndarray, confidence: float) -> Optional[Estimate]:
        warning = StatisticsWarning("too-few-runs", f"fewer than {FEWEST} runs: no interval")
        return Estimate(float(np.median(values)), None, None, len(values), confidence, (warning,))

    def shift(self, sides: TwoSides) -> Shift:
        pairs = sides.pairs
        value = float(sides.y.mean() - sides.x.mean()) if pairs is None else float(pairs.mean())
        return Shift(value, None, None, None, "none")

    def warnings(self, shift: Shift, sides: TwoSides) -> List[StatisticsWarning]:
        counts = f"{len(sides.first)} pairs" if sides.paired else f"{len(sides.first)} and {len(sides.second)} runs"
        text = f"{counts} are too few to tell a change from noise; make at least {FEWEST} of each"
        return [StatisticsWarning("too-few-runs", text)]
