"""The values of both sides of one row of a comparison, and how they are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan
from typing import List, Optional, Tuple

import numpy as np

from cbt_plugins.compare.sides import Case
from cbt_plugins.compare.statistics import compare_differences, compare_runs, compare_series
from cbt_plugins.compare.statistics.runs import Times
from cbt_plugins.compare.statistics.sequential import least_scatter
from cbt_plugins.compare.statistics.verdicts import Comparison, Scatter, widened
from cbt_plugins.metrics import METRICS, Direction, Metric
from cbt_plugins.results.run_record import Measurement, open_ends

Values = List[Optional[Measurement]]  # one for each run; [] if no run has the measurement
#: how many times the last value is one that no run has
_FAR = 1e6


@dataclass(frozen=True)
class RowValues:
    """What both sides have for one row."""

    metric: Metric
    base: List[Measurement]
    new: List[Measurement]
    times: Optional[Times]  # when the runs were made, nan where it is not known; None: not known of any
    paired: bool
    confidence: float
    without: Tuple[int, int]  # runs of the base, of the new side, that have no number
    scatter: Optional[Scatter] = None

    @property
    def single(self) -> bool:
        return len(self.base) == len(self.new) == 1

    @property
    def repeated(self) -> bool:
        """Whether repetitions in one run each are compared, and not their medians by a known scatter of runs."""
        if not self.single or self.paired or not (self.base[0].repeats and self.new[0].repeats):
            return False
        medians = [measurement.value or 0.0 for measurement in (*self.base, *self.new)]
        return self.scatter is None or self.metric.additive or min(medians) <= 0

    @property
    def counts(self) -> Tuple[int, int]:
        """The values of the base and of the new side: of runs, or of repetitions."""
        a, b = self._values
        return len(a), len(b)

    @property
    def seconds(self) -> bool:
        """Whether there is one run each, with a series."""
        return self.single and bool(self.base[0].series and self.new[0].series)

    def compared(self, allowed: float = 0.0, share: float = 0.0) -> Comparison:
        """Return the comparison of the new side with the base's, or with one that is so much worse; `share`: of an
        additive metric, by this share."""
        if self.metric.direction is not Direction.LOWER:
            allowed, share = -allowed, -share
        if self.metric.additive:
            a, b = self._values
            least = least_scatter(self.metric.margin)
            a = a * (1 + share) if share else a + allowed
            comparison = compare_differences(a, b, self.paired, self.confidence, self._times, least)
            return replace(comparison, unit=self.metric.unit)
        limit = 1.0 + allowed
        if self.seconds:
            a, b = (np.asarray(side[0].series, dtype=float) for side in (self.base, self.new))
            comparison = compare_series(a * limit, b, self.confidence, self.scatter)
        else:
            a, b = self._values
            comparison = compare_runs(a * limit, b, self.paired, self.confidence, self.scatter, self._times)
        below, above = open_ends(self.base)
        ends = (below * limit, above * limit), open_ends(self.new)
        return widened(comparison, *ends) if any(map(any, ends)) else comparison

    @property
    def _values(self) -> Tuple[np.ndarray, np.ndarray]:
        if self.repeated:
            return np.asarray(self.base[0].repeats, dtype=float), np.asarray(self.new[0].repeats, dtype=float)
        a, b = (np.asarray([measurement.value for measurement in side], dtype=float) for side in (self.base, self.new))
        return a, b

    @property
    def _times(self) -> Optional[Times]:
        return None if self.repeated else self.times

    @property
    def new_range(self) -> Tuple[float, float]:
        """The lowest and the highest that the values of the new side may be."""
        (_, b), (below, above) = self._values, open_ends(self.new)
        return float(b.min()) - below, float(b.max()) + above

    def way(self, comparison: Comparison) -> str:
        if self.seconds:
            return "seconds"
        if self.repeated:
            return "repetitions"
        if comparison.blocks and not (comparison.blocks == len(self.base) == len(self.new)):
            return "blocks"
        return "pairs" if comparison.blocks else "values" if self.single else "runs"


def row_values(
    metric: str, case: Case, values: Tuple[Values, Values], rules: Tuple[bool, float], scatter: Optional[Scatter]
) -> RowValues:
    """Return the values of both sides of a case; `rules`: whether runs are paired, and the confidence."""
    (base_values, new_values), (paired, confidence) = values, rules
    base, new = _both(base_values, new_values) if paired else (present(base_values), present(new_values))
    first, second = (
        [nan if run.started is None else run.started for run, value in zip(runs, values) if value is not None]
        for runs, values in ((case.base, base_values), (case.new, new_values))
    )
    has_times = not paired and not all(map(isnan, (*first, *second)))
    times, without = (first, second) if has_times else None, (base_values.count(None), new_values.count(None))
    return RowValues(METRICS[metric], base, new, times, paired, confidence, without, scatter)


def with_lost_numbers(
    metric: str, values: Tuple[Values, Values], higher: bool, exact: bool
) -> Tuple[Values, Values]:
    """Return the values of both sides with numbers in place of those that are lost: the new side looks higher, or
    lower, than it may be.

    A lost number of the new side is far beyond all others, because a run without a number is often a bad run. It is no
    good run, so it stays lost where the new side would look better. One of the base is as far as the last value of both
    sides. If no exact test compares them, it is as far as one of the new side if it is bad: one such value of few makes
    no t test sure.
    """
    base, new = map(present, values)
    numbers, about = [measurement.value or 0.0 for measurement in (*base, *new)], METRICS[metric]
    better, worse = (Direction.HIGHER, Direction.LOWER) if higher else (Direction.LOWER, Direction.HIGHER)
    ends = _far(about, min(numbers), False), min(numbers), max(numbers), _far(about, max(numbers), True)
    far_base, base_end, _, far_new = ends if higher else ends[::-1]
    of_base = _filled(values[0], base[0], base_end if exact or about.direction is worse else far_base)
    return of_base, values[1] if about.direction is better else _filled(values[1], new[0], far_new)


def _far(metric: Metric, value: float, higher: bool) -> float:
    """Return a value that no run has, much higher or lower than the last one."""
    if metric.additive:
        return value + (_FAR if higher else -_FAR) * (abs(value) + metric.margin)
    return value * _FAR if higher else value / _FAR


def _filled(values: Values, like: Measurement, number: float) -> Values:
    lost = replace(like, value=number, series=None, bin=0.0, repeats=None)
    return [measurement or lost for measurement in values]


def present(values: Values) -> List[Measurement]:
    """Return the measurements of the runs that have one."""
    return [measurement for measurement in values if measurement is not None]


def _both(base_values: Values, new_values: Values) -> Tuple[List[Measurement], List[Measurement]]:
    pairs = [(a, b) for a, b in zip(base_values, new_values) if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]
