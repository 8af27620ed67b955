"""Decisions that are looked at after every block, with the chance of any false one bounded (group-sequential plans).

An observation is the logarithm of new / base of one block. After n of them t = mean / (sd / sqrt(n)) is compared with
a critical value c[n]. The values spend the false alarm rate alpha over the looks (Lan and DeMets, 1983), by Pocock's or
by O'Brien and Fleming's spending function of n / most. Their usual tables know the variance. Here it is estimated from
few blocks, so they are calibrated on the t statistics themselves: without a change the sequence t[2], t[3], ... of
normal observations has one distribution, whatever the scatter, and c[n] are its quantiles (simulated, seeded).

Several rows share alpha by Holm's rule at each look, which holds for spending functions that grow with alpha (Maurer
and Bretz, 2013). "Equivalent" needs the interval of both one-sided plans of alpha (c for 2 alpha) within the margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Hashable, List, Mapping, Optional, Sequence, Tuple, TypeVar

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.verdicts import Scatter, Verdict
from cbt_plugins.metrics import Direction

POCOCK, OBRIEN_FLEMING = "pocock", "obrien-fleming"
SPENDING = (POCOCK, OBRIEN_FLEMING)
#: blocks before the first look: three hide the scatter of what jumps between two levels
FIRST = 4
#: simulated campaigns; a look that fewer than `_RESOLVED` of them may end is left out, and its alpha kept for the next
_CAMPAIGNS, _RESOLVED = 200_000, 20
#: a smaller standard error is rounding
_DIGITS = 1e-12


@dataclass(frozen=True)
class Design:
    """The rules of a sequential decision."""

    most: int = 20  # blocks
    alpha: float = 0.05  # chance of any false "better" or "worse" in all rows
    margin: float = 0.05
    spending: str = POCOCK


@dataclass(frozen=True)
class Decision:
    """What is known of one row. `change` and its ends are relative; the interval holds at every look together."""

    n: int  # observations
    change: Optional[float]
    low: Optional[float]
    high: Optional[float]
    scatter: Optional[float]  # standard deviation of the observations
    verdict: Optional[Verdict]  # None: not decided
    decided_at: Optional[int] = None  # observations


def spent(alpha: float, share: float, spending: str) -> float:
    """Return the part of alpha that may be used when a share of the blocks has been made."""
    if spending == OBRIEN_FLEMING:
        return 2 * float(special.ndtr(special.ndtri(alpha / 2) / math.sqrt(share)))
    return alpha * math.log1p((math.e - 1) * share)


@lru_cache(maxsize=256)
def critical(alpha: float, most: int, spending: str = POCOCK) -> Tuple[float, ...]:
    """Return c[n] of |t| for n = 0 ... most; infinity where there is no look."""
    alive = np.ones(_CAMPAIGNS, dtype=bool)
    values, used = [math.inf], 0
    for n, t in enumerate(_without_change(most), 1):
        number = round(spent(alpha, n / most, spending) * _CAMPAIGNS) - used
        if n < FIRST or number < _RESOLVED:
            values.append(math.inf)
            continue
        values.append(float(np.partition(t[alive], -number)[-number]))
        crossed = alive & (t >= values[-1])
        used += int(crossed.sum())
        alive &= ~crossed
    return tuple(values)


@lru_cache(maxsize=2)
def _without_change(most: int) -> np.ndarray:
    """Return |t| after 1 ... most blocks of each simulated campaign."""
    chance = np.random.default_rng(most)
    sums, squares = np.zeros(_CAMPAIGNS), np.zeros(_CAMPAIGNS)
    made = np.empty((most, _CAMPAIGNS), dtype=np.float32)
    for n in range(1, most + 1):
        step = chance.standard_normal(_CAMPAIGNS)
        sums += step
        squares += step * step
        error = np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 1e-300) / max(n - 1, 1))
        made[n - 1] = np.abs(sums / n) / error if n > 1 else 0.0
    return made


def interval(observations: Sequence[float], alpha: float, design: Design) -> Optional[Tuple[float, float]]:
    """Return the interval of the mean, on the logarithm; None where there is no look.

    Observations without scatter that are all 0 have the interval (0, 0), as in a comparison of runs; others have none.
    """
    n = len(observations)
    bound = critical(alpha, design.most, design.spending)[n] if n <= design.most else math.inf
    if n < FIRST or math.isinf(bound):
        return None
    values = np.asarray(observations, dtype=float)
    error = float(values.std(ddof=1)) / math.sqrt(n)
    middle = float(values.mean())
    if error <= _DIGITS:
        return (0.0, 0.0) if abs(middle) <= _DIGITS else None
    return middle - bound * error, middle + bound * error


Key = TypeVar("Key", bound=Hashable)
Rows = Mapping[Key, Sequence[Optional[float]]]  # for each block the log ratio; None: that block says nothing of the row
_FOUND = (Verdict.BETTER, Verdict.WORSE)


def decide(
    rows: Rows[Key],
    directions: Mapping[Key, Direction],
    design: Design,
    margins: Optional[Mapping[Key, float]] = None,
) -> Dict[Key, Decision]:
    """Return what is known of each row after all blocks. What was decided at an earlier look stays decided.

    `margins`: of rows that have another than the design's.
    """
    verdicts: Dict[Key, Tuple[Verdict, int]] = {}
    for block in range(1, max(map(len, rows.values()), default=0) + 1):
        new = [key for key, its in rows.items() if len(its) >= block and its[block - 1] is not None]
        seen = {key: _there(rows[key][:block]) for key in new}
        _look(seen, verdicts, directions, (len(rows), design), margins or {})
    found = sum(verdict in _FOUND for verdict, _ in verdicts.values())
    made = {}
    for key, its in rows.items():
        own = key in verdicts and verdicts[key][0] in _FOUND
        made[key] = _decision(_there(its), verdicts.get(key), len(rows) - found + own, design)
    return made


def _there(values: Sequence[Optional[float]]) -> List[float]:
    return [value for value in values if value is not None]


def _look(
    seen: Mapping[Key, List[float]],
    verdicts: Dict[Key, Tuple[Verdict, int]],
    directions: Mapping[Key, Direction],
    rules: Tuple[int, Design],
    margins: Mapping[Key, float],
) -> None:
    """Add the verdicts of one look; each change that is found leaves its part of alpha to the others."""
    family, design = rules
    for key, values in seen.items():
        ends = interval(values, 2 * design.alpha, design)
        if key not in verdicts and ends and _within(ends, margins.get(key, design.margin)):
            verdicts[key] = Verdict.EQUIVALENT, len(values)
    last = -1
    while last != (last := sum(verdict in _FOUND for verdict, _ in verdicts.values())):
        for key in [key for key in seen if key not in verdicts and directions[key] is not Direction.NONE]:
            ends = interval(seen[key], design.alpha / (family - last), design)
            if ends and (ends[0] > 0 or ends[1] < 0):
                good = (ends[0] > 0) == (directions[key] is Direction.HIGHER)
                verdicts[key] = (Verdict.BETTER if good else Verdict.WORSE), len(seen[key])


def _within(ends: Tuple[float, float], margin: float) -> bool:
    return math.log1p(-margin) < ends[0] and ends[1] < math.log1p(margin)


def _decision(values: List[float], verdict: Optional[Tuple[Verdict, int]], parts: int, design: Design) -> Decision:
    ends = interval(values, design.alpha / parts, design)
    low, high = map(math.expm1, ends) if ends else (None, None)
    return Decision(
        len(values),
        math.expm1(float(np.mean(values))) if values else None,
        low,
        high,
        float(np.std(values, ddof=1)) if len(values) > 1 else None,
        *(verdict or (None, None)),
    )


@dataclass(frozen=True)
class Outlook:
    """What a plan needs for one effect: blocks after which it is found in 80 % of campaigns (None: more than planned),
    and the chance of finding it at all."""

    effect: float
    blocks: Optional[int]
    chance: float


def outlook(effect: float, scatter: Scatter, rows: int, design: Design, wanted: float = 0.8) -> Outlook:
    """Return what it takes to find an effect (0.03: 3 %) in one of so many rows.

    `scatter`: of the observations of blocks; how little of it is known is simulated, too. An effect of 0: what it takes
    to call it equivalent.
    """
    share = np.cumsum(_ends(effect, scatter, rows, design))
    enough = np.flatnonzero(share >= wanted)
    return Outlook(effect, int(enough[0]) if len(enough) else None, float(share[-1]))


def _ends(effect: float, scatter: Scatter, rows: int, design: Design, campaigns: int = 4000) -> np.ndarray:
    """Return the share of campaigns that end with a finding after 0, 1, ... blocks."""
    chance = np.random.default_rng(1)
    freedom = max(1.0, min(scatter.freedom, 1e6))
    deviation = scatter.value * np.sqrt(freedom / chance.chisquare(freedom, campaigns))
    bounds = critical(2 * design.alpha if not effect else design.alpha / rows, design.most, design.spending)
    values = chance.standard_normal((campaigns, design.most)) * deviation[:, None] + math.log1p(effect)
    counts = np.arange(1, design.most + 1)
    means = values.cumsum(axis=1) / counts
    spread = (values * values).cumsum(axis=1) / counts - means * means
    errors = np.sqrt(np.maximum(spread, 1e-300) / np.maximum(counts - 1, 1))
    reach = errors * np.asarray(bounds[1:])
    if effect:
        found = np.abs(means) > reach
    else:
        found = (means - reach > math.log1p(-design.margin)) & (means + reach < math.log1p(design.margin))
    found &= np.isfinite(reach)
    first = np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)
    share = np.bincount(first, minlength=design.most + 1) / campaigns
    share[0] = 0.0
    return np.asarray(share)
