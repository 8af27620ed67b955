"""Decisions that are looked at after every block, with the chance of any false one bounded (group-sequential plans).

An observation is the logarithm of new / base of one block, or new - base for a row that may be 0. After n of them
t = mean / (sd / sqrt(n)) is compared with a critical value c[n]. The values spend the false alarm rate alpha over the
looks (Lan and DeMets, 1983), by Pocock's or by O'Brien and Fleming's spending function of n / most. Their usual tables
know the variance. Here it is estimated from few blocks, so they are calibrated on the t statistics themselves: without
a change the sequence t[2], t[3], ... of normal observations has one distribution, whatever the scatter, and c[n] are
its quantiles (simulated, seeded).

Several rows share alpha by Holm's rule at each look, which holds for spending functions that grow with alpha (Maurer
and Bretz, 2013). "Equivalent" needs the interval of both one-sided plans of alpha (c for 2 alpha) within the margin.

The verdict of a row is the first of both that it reaches, and stays; the other one may come later, and is said with it.
Since intervals hold at every look together, so does what all looks have in common: that is the interval of a decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Dict, Hashable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict
from cbt_plugins.metrics import ALPHA, MARGIN, Direction

POCOCK, OBRIEN_FLEMING = "pocock", "obrien-fleming"
SPENDING = (POCOCK, OBRIEN_FLEMING)
#: blocks before the first look: three hide the scatter of what jumps between two levels
FIRST_LOOK = 4
#: simulated campaigns; fewer of them than `_RESOLVED` do not tell the critical value of a look
_CAMPAIGNS, _RESOLVED = 200_000, 20
#: a look that may spend less is left out, and its alpha kept for the next
_LEAST = 1e-7
#: a smaller standard error is rounding
_DIGITS = 1e-12
#: more than any log ratio: an early look at rows that scatter without bounds
_LARGE = 700.0


@dataclass(frozen=True)
class Design:
    """The rules of a sequential decision."""

    most: int = 20  # blocks
    alpha: float = ALPHA  # chance of any false "better" or "worse" in all rows
    margin: float = MARGIN  # the smallest change that matters
    spending: str = POCOCK


@dataclass(frozen=True)
class Decision:
    """What is known of one row. `change` and its ends are relative; the interval is what all looks have in common.

    With a `unit` they are new - base in it, and so is the scatter. Of a row that is within the margin it is the
    interval of both one-sided plans, which decides that.
    """

    n: int  # observations
    change: Optional[float]
    low: Optional[float]
    high: Optional[float]
    scatter: Optional[float]  # standard deviation of the observations
    verdict: Optional[Verdict]  # None: not decided
    decided_at: Optional[int] = None  # observations
    differs: str = ""  # better or worse: surely not 0
    within: bool = False  # surely smaller than the margin
    unit: str = ""


def spent(alpha: float, share: float, spending: str) -> float:
    """Return the part of alpha that may be used when a share of the blocks has been made."""
    if spending == OBRIEN_FLEMING:
        return 2 * float(special.ndtr(special.ndtri(alpha / 2) / math.sqrt(share)))
    return alpha * math.log1p((math.e - 1) * share)


@lru_cache(maxsize=256)
def critical(alpha: float, most: int, spending: str = POCOCK) -> Tuple[float, ...]:
    """Return c[n] of |t| for n = 0 ... most; infinity where there is no look.

    A look that too few simulated campaigns may end has the quantile of Student's t for what it may spend, as if no
    campaign had ended before (Bonferroni): such looks together spend at most what they may.
    """
    alive = np.ones(_CAMPAIGNS, dtype=bool)
    values, used, spent_before = [math.inf], 0, 0.0
    for n, t in enumerate(_without_change(most), 1):
        level = spent(alpha, n / most, spending)
        number = round(level * _CAMPAIGNS) - used
        if n < FIRST_LOOK or level - spent_before < _LEAST:
            values.append(math.inf)
            continue
        if number < _RESOLVED:
            values.append(float(special.stdtrit(n - 1, 1 - (level - spent_before) / 2)))
        else:
            values.append(float(np.partition(t[alive], -number)[-number]))
        spent_before = level
        crossed = alive & (t >= values[-1])
        used += int(crossed.sum())
        alive &= ~crossed
    return tuple(values)


def first_look(alpha: float, design: Design) -> int:
    """Return the blocks before which no interval of this alpha is known."""
    values = critical(alpha, design.most, design.spending)
    return next((n for n, value in enumerate(values) if not math.isinf(value)), design.most)


def first_verdict(rows: int, design: Design) -> int:
    """Return the blocks after which one of so many rows can have a verdict at the earliest."""
    return min(first_look(alpha, design) for alpha in (2 * design.alpha, design.alpha / rows))


@lru_cache(maxsize=1)
def _without_change(most: int) -> np.ndarray:
    """Return |t| after 1 ... most blocks of each simulated campaign."""
    chance = np.random.default_rng(most)
    sums, squares = np.zeros(_CAMPAIGNS), np.zeros(_CAMPAIGNS)
    t_values = np.empty((most, _CAMPAIGNS), dtype=np.float32)
    for n in range(1, most + 1):
        step = chance.standard_normal(_CAMPAIGNS)
        sums += step
        squares += step * step
        error = np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 1e-300) / max(n - 1, 1))
        t_values[n - 1] = np.abs(sums / n) / error if n > 1 else 0.0
    return t_values


def least_scatter(margin: float) -> float:
    """Return the least scatter of differences of two means of two values each, rounded to whole margins.

    It is also that of single values.

    Margins are the units that are counted: 1 s, 1 request. Equal differences do not show that nothing scatters.
    """
    return margin / math.sqrt(12)


def interval(
    observations: Sequence[float], alpha: float, design: Design, least: float = 0.0, bin: float = 0.0
) -> Optional[Tuple[float, float]]:
    """Return the interval of the mean, on the logarithm; None where there is no look.

    `least`: the scatter of the observations is taken as so much at least. Observations without scatter that are all 0
    have the interval (0, 0), as in a comparison of runs; others have none. `bin`: what the bins of the values leave
    open, which is added at both ends.
    """
    n = len(observations)
    bound = critical(alpha, design.most, design.spending)[n] if n <= design.most else math.inf
    if n < FIRST_LOOK or math.isinf(bound):
        return None
    values = np.asarray(observations, dtype=float)
    error = max(float(values.std(ddof=1)), least) / math.sqrt(n)
    middle = float(values.mean())
    if error <= _DIGITS:
        return (0.0, 0.0) if abs(middle) <= _DIGITS else None
    half = bound * error + bin
    return middle - half, middle + half


Key = TypeVar("Key", bound=Hashable)
#: for each block the log ratio, or the difference; None: that block says nothing of the row
Rows = Mapping[Key, Sequence[Optional[float]]]
Ends = Tuple[float, float]


class _Scale(NamedTuple):
    """The scale of a row's observations."""

    margin: Ends
    least: float  # scatter
    bin: float = 0.0  # see `interval`


@dataclass
class _Findings:
    """What the looks so far have found: row -> the observations after which."""

    within: Dict[Hashable, int] = field(default_factory=dict)
    differs: Dict[Hashable, Tuple[Verdict, int]] = field(default_factory=dict)

    def verdict(self, key: Hashable) -> Tuple[Optional[Verdict], Optional[int]]:
        """Return the first one of a row, and the observations that it took; of both at one look: equivalent."""
        verdict, at = self.differs.get(key, (None, None))
        if key in self.within and (at is None or self.within[key] <= at):
            return Verdict.EQUIVALENT, self.within[key]
        return verdict, at


def decide(
    rows: Rows[Key],
    directions: Mapping[Key, Direction],
    design: Design,
    margins: Optional[Mapping[Key, float]] = None,
    units: Optional[Mapping[Key, str]] = None,
    bins: Optional[Mapping[Key, float]] = None,
) -> Dict[Key, Decision]:
    """Return the decision about each row after all blocks. A decision of an earlier look stays.

    `margins`: of rows that have another than the design's. `units`: of rows whose observations and margins are
    differences in this unit ("" for shares), and no logarithms of ratios. `bins`: what the bins of values leave open
    of a log ratio; a block of values in equal bins does not prove that nothing scatters.
    """
    findings, family = _Findings(), sharing_rows(rows)
    margin_of = {key: (margins or {}).get(key, design.margin) for key in rows}
    scales = {}
    for key, margin in margin_of.items():
        in_unit, bin = key in (units or {}), (bins or {}).get(key, 0.0)
        scales[key] = _Scale(margin_ends(margin, in_unit), least_scatter(margin if in_unit else bin), bin)
    for block in range(1, max(map(len, rows.values()), default=0) + 1):
        new = [key for key, ratios in rows.items() if len(ratios) >= block and ratios[block - 1] is not None]
        _look({key: _present(rows[key][:block]) for key in new}, findings, directions, (family, design), scales)
    decisions = {}
    for key, ratios in rows.items():
        size = len(family if key in family else rows)
        parts = size - len(findings.differs) + (key in findings.differs)
        verdict, at = findings.verdict(key)
        differs = findings.differs[key][0].value if key in findings.differs else ""
        alpha = 2 * design.alpha if key in findings.within else design.alpha / parts
        values = _present(ratios)
        _, *scale = scales[key]
        looks = [interval(values[:n], alpha, design, *scale) for n in range(FIRST_LOOK, len(values) + 1)]
        seen = _decision(values, [look for look in looks if look], (units or {}).get(key))
        decisions[key] = replace(seen, verdict=verdict, decided_at=at, differs=differs, within=key in findings.within)
    return decisions


def sharing_rows(rows: Rows[Key]) -> Set[Key]:
    """Return the rows that share alpha: those with an observation when the first row has enough for a look.

    A row that appears later has no share and is never better or worse: it would take back verdicts of earlier looks.
    """
    for block in range(1, max(map(len, rows.values()), default=0) + 1):
        numbers = {key: len(_present(ratios[:block])) for key, ratios in rows.items()}
        if max(numbers.values()) >= FIRST_LOOK:
            return {key for key, number in numbers.items() if number}
    return set(rows)


def _present(values: Sequence[Optional[float]]) -> List[float]:
    return [value for value in values if value is not None]


def _look(
    seen: Mapping[Key, List[float]],
    findings: _Findings,
    directions: Mapping[Key, Direction],
    rules: Tuple[Set[Key], Design],
    scales: Mapping[Key, _Scale],
) -> None:
    """Add what one look finds; each change that is found leaves its part of alpha to the others."""
    family, design = rules
    for key, values in seen.items():
        (low, high), *scale = scales[key]
        ends = interval(values, 2 * design.alpha, design, *scale)
        if key not in findings.within and ends and low < ends[0] and ends[1] < high:
            findings.within[key] = len(values)
    last = -1
    while last != (last := len(findings.differs)):
        open_rows = [key for key in seen if key in family and key not in findings.differs]
        for key in (key for key in open_rows if directions[key] is not Direction.NONE):
            _, *scale = scales[key]
            ends = interval(seen[key], design.alpha / (len(family) - last), design, *scale)
            if ends and (ends[0] > 0 or ends[1] < 0):
                good = (ends[0] > 0) == (directions[key] is Direction.HIGHER)
                findings.differs[key] = (Verdict.BETTER if good else Verdict.WORSE), len(seen[key])


def margin_ends(margin: float, in_unit: bool) -> Ends:
    """Return the ends of a margin on the scale of the observations."""
    return (-margin, margin) if in_unit else (math.log1p(-margin), math.log1p(margin))


def _decision(values: List[float], looks: Sequence[Ends], unit: Optional[str]) -> Decision:
    ends = _common(looks)
    mean = float(np.mean(values)) if values else None
    low, high = ends or (None, None)
    change, low, high = (
        end if end is None or unit is not None else math.expm1(min(end, _LARGE)) for end in (mean, low, high)
    )
    scatter = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Decision(len(values), change, low, high, scatter, None, unit=unit or "")


def _common(looks: Sequence[Ends]) -> Optional[Ends]:
    """Return the intersection of the intervals of all looks; the last interval where the intersection is empty."""
    if not looks:
        return None
    low, high = max(low for low, _ in looks), min(high for _, high in looks)
    return (low, high) if low <= high else looks[-1]


@dataclass(frozen=True)
class Outlook:
    """What a plan does with one true change: what campaigns say, and when 80 % of them have a true verdict."""

    effect: float
    blocks: Optional[int]  # None: more than planned
    found: float  # the part of campaigns that says better or worse first
    equivalent: float  # the part that says equivalent first; all others are inconclusive
    chance: float  # the part with a true verdict


def outlook(
    effect: float, scatter: Scatter, rows: int, design: Design, wanted: float = 0.8, in_unit: bool = False
) -> Outlook:
    """Return the verdicts to expect of campaigns for a true change (0.03: 3 %) of one of so many rows.

    A change of the margin or more is truly better or worse, one of 0 equivalent; of one between them both are true.
    `scatter`: of the observations of blocks; how little of it is known is simulated, too. `in_unit`: effect, scatter
    and margin are differences, and not relative.
    """
    differing, equivalent = (np.cumsum(share) for share in _ends(effect, scatter, rows, design, in_unit))
    true = bool(effect) * differing + (abs(effect) < design.margin) * equivalent
    enough = np.flatnonzero(true >= wanted)
    ends = (float(shares[-1]) for shares in (differing, equivalent, true))
    return Outlook(effect, int(enough[0]) if len(enough) else None, *ends)


def detectable(scatter: Scatter, rows: int, design: Design, power: float = 0.9) -> Optional[float]:
    """Return the smallest change of one of so many rows that this share of campaigns says better or worse of.

    It is found as a gain and as a loss, which have different logarithms. To 0.05 points. None: no change below 100 %.
    """

    def is_found(change: float) -> bool:
        return all(outlook(effect, scatter, rows, design).found >= power for effect in (change, -change))

    low, high = 0.0, 0.9995
    if not is_found(high):
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def _ends(
    effect: float, scatter: Scatter, rows: int, design: Design, in_unit: bool, campaigns: int = 4000
) -> Tuple[np.ndarray, np.ndarray]:
    """Return the shares of campaigns that say better or worse, and equivalent, first after 0, 1, ... blocks."""
    chance = np.random.default_rng(1)
    freedom = max(1.0, min(scatter.freedom, 1e6))
    deviation = scatter.value * np.sqrt(freedom / chance.chisquare(freedom, campaigns))
    middle, (low, high) = effect if in_unit else math.log1p(effect), margin_ends(design.margin, in_unit)
    values = chance.standard_normal((campaigns, design.most)) * deviation[:, None] + middle
    counts = np.arange(1, design.most + 1)
    means = values.cumsum(axis=1) / counts
    spread = (values * values).cumsum(axis=1) / counts - means * means
    errors = np.sqrt(np.maximum(spread, 1e-300) / np.maximum(counts - 1, 1))
    errors = np.maximum(errors, (least_scatter(design.margin) if in_unit else 0.0) / np.sqrt(counts))
    wide, narrow = (
        errors * np.asarray(critical(alpha, design.most, design.spending)[1:])
        for alpha in (design.alpha / rows, 2 * design.alpha)
    )
    within = (means - narrow > low) & (means + narrow < high)
    within &= np.isfinite(narrow)
    differs = np.isfinite(wide) & (np.abs(means) > wide) & ~within
    either = differs | within
    first = np.where(either.any(axis=1), either.argmax(axis=1), -1)
    says = np.take_along_axis(within, np.maximum(first, 0)[:, None], axis=1)[:, 0]
    blocks_of_ends = (first[(first >= 0) & kind] + 1 for kind in (~says, says))
    differing, equivalent = (np.bincount(ends, minlength=design.most + 1) / campaigns for ends in blocks_of_ends)
    return differing, equivalent
