"""Independent runs, one number each: the estimate of their level, and the comparison of two groups of them.

Changes are relative, so everything is done on logarithms; where a value is not above 0, on the values themselves,
relative to the base's level. An exact test decides where its smallest p is at most half of what is asked for (at 95 %:
from 5 and 5 runs on, or 7 pairs). With fewer runs, but 3 at least, it is Student's t.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from cbt_plugins.compare.statistics.assumption import (
    FEWEST,
    RunAssumption,
    TooFew,
    TwoSides,
    assumption_of,
    first_summary,
)
from cbt_plugins.compare.statistics.exact import ExactBlocks, ExactPairs, ExactRanks
from cbt_plugins.compare.statistics.ranks import COUNTED
from cbt_plugins.compare.statistics.run_order import Block, blocks, blocks_floor
from cbt_plugins.compare.statistics.student import DIGITS, KnownScatter, PairedT, WelchT
from cbt_plugins.compare.statistics.verdicts import Comparison, Estimate, Scatter, StatisticsWarning

Numbers = Union[Sequence[float], np.ndarray]
Times = Tuple[Sequence[float], Sequence[float]]
#: in the order in which they are tried
ASSUMPTIONS: Sequence[RunAssumption] = (
    ExactPairs(),
    ExactBlocks(),
    ExactRanks(),
    PairedT(),
    WelchT(),
    KnownScatter(),
    TooFew(),
)


def estimate(values: Numbers, confidence: float = 0.95) -> Estimate:
    """Estimate the median of independent runs, in their unit.

    The interval is that of order statistics (of 6 runs at least, at 95 %), which holds for every distribution; of 3 to
    5 runs it is Student's t on logarithms. Values that are not finite are left out. ValueError without any value.
    """
    runs = np.asarray(values, dtype=float)
    kept = runs[np.isfinite(runs)]
    if not len(kept):
        raise ValueError("no run has a value")
    lost = len(runs) - len(kept)
    missing = [StatisticsWarning("missing", f"{lost} of {len(runs)} runs have no value")] if lost else []
    summary = first_summary(ASSUMPTIONS, kept, confidence)
    return replace(summary, warnings=(*missing, *summary.warnings))


def pooled_scatter(groups: Iterable[Numbers], in_unit: bool = False) -> Optional[Scatter]:
    """Return the scatter from run to run, learnt from groups of repeated runs; each group may have a level of its own.

    The pooled variance of the logarithms: the sums of squares in the groups / their degrees of freedom (Student's two
    sample test has it for two groups). None where they are less than `FEWEST` - 1, a value is not above 0, or nothing
    differs. `in_unit`: of the values themselves, in their unit.
    """
    squares, freedom = 0.0, 0
    for group in groups:
        values = np.asarray(group, dtype=float)
        values = values[np.isfinite(values)]
        if len(values) and values.min() <= 0 and not in_unit:
            return None
        if len(values) > 1:
            squares += float((values if in_unit else np.log(values)).var()) * len(values)
            freedom += len(values) - 1
    if freedom < FEWEST - 1 or squares / freedom <= DIGITS**2:
        return None
    return Scatter(math.sqrt(squares / freedom), freedom)


def compare_runs(
    base: Numbers,
    new: Numbers,
    paired: bool = False,
    confidence: float = 0.95,
    scatter: Optional[Scatter] = None,
    times: Optional[Times] = None,
) -> Comparison:
    """Compare the new runs with the base's, both in the order in which they were made.

    `paired`: base[i] and new[i] were measured one after the other (interleaved), so that what drifts slowly hits both
    alike. `scatter`: that from run to run, for a side with so few runs that they do not show it. `times`: when the runs
    of both sides were made, nan where it is not known; runs that were interleaved are compared in blocks (see `order`),
    those that were not are looked at for drift. ValueError when a side has no value at all, or pairs are not of one
    length.
    """
    return _compared(base, new, paired, confidence, (scatter, times))


def compare_differences(
    base: Numbers,
    new: Numbers,
    paired: bool = False,
    confidence: float = 0.95,
    times: Optional[Times] = None,
    least: float = 0.0,
) -> Comparison:
    """Compare runs of values that may be 0, as counts are: `change` and its intervals are new - base, in their unit.

    `least`: tests by Student's t take the scatter of the runs of a side as so much at least, because equal counts do
    not show that nothing scatters. Otherwise as `compare_runs`.
    """
    return _compared(base, new, paired, confidence, (None, times), least)


def _compared(
    base: Numbers,
    new: Numbers,
    paired: bool,
    confidence: float,
    about: Tuple[Optional[Scatter], Optional[Times]],
    least: Optional[float] = None,
) -> Comparison:
    """Return the comparison; with the least scatter of differences they are compared, and not ratios."""
    (scatter, times), in_unit = about, least is not None
    if paired and len(base) != len(new):
        raise ValueError(f"pairs of {len(base)} and {len(new)} runs")
    estimates = estimate(base, confidence), estimate(new, confidence)
    missing = {warning.code: warning for side in estimates for warning in side.warnings if warning.code == "missing"}
    first, second, when = _finite_runs(base, new, paired, times)
    logarithms = bool(not in_unit and np.all(first > 0) and np.all(second > 0))
    level, alpha = 1.0 if in_unit else abs(float(np.median(first))), 1 - confidence
    sides = TwoSides(
        *(*estimates, first, second, logarithms, level, alpha, scatter, paired, when),
        run_blocks=_run_blocks((len(first), len(second)), None if paired else when, alpha),
        warnings=(*missing.values(), *(() if in_unit else _of_scale(logarithms, level))),
        in_unit=in_unit,
        least=least or 0.0,
    )
    return assumption_of(ASSUMPTIONS, sides).compare(sides)


def _of_scale(logarithms: bool, level: float) -> Iterator[StatisticsWarning]:
    """Yield warnings of values that have no logarithms."""
    if not logarithms:
        text = "some values are not above 0: differences are compared, relative to the base"
        yield StatisticsWarning("not-positive", text)
        if not level:
            yield StatisticsWarning("no-base", "the base is 0: no relative change")


def _run_blocks(
    counts: Tuple[int, int], when: Optional[Tuple[np.ndarray, np.ndarray]], alpha: float
) -> List[Block]:
    """Return the blocks of runs that were interleaved, if there are enough of them for a test; else []."""
    if when is None or not np.isfinite(np.concatenate(when)).all():
        return []
    run_blocks = blocks(*when)
    enough = min(counts) >= FEWEST and sum(counts) <= COUNTED
    return run_blocks if len(run_blocks) > 1 and enough and blocks_floor(run_blocks) <= alpha / 2 else []


def _finite_runs(
    base: Numbers, new: Numbers, paired: bool, times: Optional[Times]
) -> Tuple[np.ndarray, np.ndarray, Optional[Tuple[np.ndarray, np.ndarray]]]:
    """Return both sides without what is not finite (of pairs: both), and their times."""
    first, second = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
    keep = np.isfinite(first), np.isfinite(second)
    if paired:
        keep = (keep[0] & keep[1],) * 2
        if not keep[0].any():
            raise ValueError("no pair has both values")
    when = tuple(np.asarray(side_times, dtype=float)[kept] for side_times, kept in zip(times, keep)) if times else ()
    return first[keep[0]], second[keep[1]], (when[0], when[1]) if when else None
