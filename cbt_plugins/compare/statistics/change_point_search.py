"""Change points: where the level of many runs in a row changed, one number per run, and whether it came back.

The sequence is cut where a stretch of runs differs most from the others: at one end (a change that stayed) or between
two cuts (a dip). That is circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler, 2004); what is found is
cut again. A stretch counts when few random orders of the same runs have one that differs as much: single wild runs,
which may stand side by side by chance, do so in the random orders too. A p far below `GUARD` would need more orders
than runs have: where less is asked for, Student's t of the stretch and the others, times the number of stretches
(Bonferroni), must be below it too. Equal values have few orders, which bound this p from below; of counts of what is
rare, most of which are 0, the random orders alone must show a p below alpha, because Student's t is too sure of them.

Runs further from the median than `CLIP` times the noise are moved there first (winsorized). The noise is that of the
steps from run to run: neither single runs that went wrong nor changes of the level are in it.

Runs that resemble their neighbours, with an autocorrelation r, are worth (1 - r) / (1 + r) of their number, and random
orders are those of blocks of runs (Kuensch, 1989). r is the smaller one of two: of what the stretch leaves, and of the
steps, which other changes of the level hardly touch: those over two runs have 1 + r times the variance of those over
one. In the end each change point must hold in
an exact rank sum test of the runs between its neighbours (as in Hunter's second step).

More than `WINDOW` runs are looked at in windows: the next one begins at the last change point that is not near the end
of its window, or half a window later. So a new run moves no change point of long ago, and costs no more than a window.
"""

from __future__ import annotations

import hashlib
import math
from typing import List, MutableMapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from scipy import special

from cbt_plugins.compare.statistics.ranks import rank_sum_p
from cbt_plugins.compare.statistics.verdicts import ChangePoint

#: runs that a level has at least
SHORTEST = 3
#: a run is at most so many standard deviations of the noise from the median
CLIP = 3.0
#: runs that are looked at together
WINDOW = 250
#: the smallest part of the random orders that is looked at, and how many orders there are
GUARD, _ORDERS = 0.01, 499
#: stretches of random orders that are looked at for counts, about 2 s of one core
_WORK = 40_000_000
#: a p of Student's t that needs no random orders: winsorized runs have no tails that could explain it
_SURE = 1e-10
#: p of the rank sum test in which a change point must hold between its neighbours
HOLDS = 0.05
#: median of the absolute value of normal noise, in standard deviations
_MEDIAN = 0.6745
#: smaller differences, as a part of the values, are rounding
_DIGITS = 1e-12


class _Stretch(NamedTuple):
    start: int
    end: int
    between: float  # sum of squares between the stretch and the others


class _Rules(NamedTuple):
    alpha: float
    steps: float  # autocorrelation of the runs, by their steps
    chance: np.random.Generator
    resemblance: float = 0.0  # ... of a part of them


def alpha_of_budget(alarms: float, looks: float) -> float:
    """Return the alpha of one look, of so many in a year, that gives at most so many false alarms a year on average.

    The chances of all looks are added (Bonferroni), because looks at the same runs are not independent.
    """
    return min(0.05, alarms / looks)


#: the cuts of a window, each with its p
_Cuts = List[Tuple[int, float]]
#: digest of a window -> its cuts: what a later look at the same runs need not work out again
Settled = MutableMapping[str, _Cuts]


def change_points(
    values: Union[Sequence[float], np.ndarray], alpha: float = 0.01, seed: int = 0, settled: Optional[Settled] = None
) -> List[ChangePoint]:
    """Return the change points of a sequence of runs, in order. Values that are not finite are passed over.

    `alpha` is the chance of finding any in a window that has none. What `settled` has of an earlier look is used, and
    what it lacks is added. ValueError when alpha is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha}")
    runs = np.asarray(values, dtype=float)
    places = np.flatnonzero(np.isfinite(runs))
    finite_runs = runs[places]
    cuts: _Cuts = []
    start, end = 0, 0
    while end < len(finite_runs):
        end = min(start + WINDOW, len(finite_runs))
        own_cuts = _settled_cuts(finite_runs[start:end], alpha, seed, {} if settled is None else settled)
        firm = [(start + cut, p) for cut, p in own_cuts if end == len(finite_runs) or 4 * cut <= 3 * WINDOW]
        cuts += firm
        start = firm[-1][0] if firm else start + WINDOW // 2
    edges = [0, *(cut for cut, _ in cuts), len(finite_runs)]
    levels = [float(np.median(finite_runs[start:end])) for start, end in zip(edges, edges[1:]) if end > start]
    return [ChangePoint(int(places[cut]), p, levels[i], levels[i + 1]) for i, (cut, p) in enumerate(cuts)]


def _settled_cuts(runs: np.ndarray, alpha: float, seed: int, settled: Settled) -> _Cuts:
    digest = hashlib.sha256(f"{alpha!r} {seed} ".encode() + runs.tobytes()).hexdigest()
    if digest not in settled:
        settled[digest] = cuts_of_window(runs, alpha, seed)
    return settled[digest]


def cuts_of_window(runs: np.ndarray, alpha: float, seed: int) -> _Cuts:
    """Return the cuts of a window that hold between their neighbours."""
    scores = _scores(runs)
    steps = _resemblance(scores) if len(runs) >= 2 * SHORTEST else 0.0
    cuts = sorted(_cuts(scores, runs, (0, len(runs)), _Rules(alpha, steps, np.random.default_rng(seed))))
    while cuts:
        edges = [0, *(cut for cut, _ in cuts), len(runs)]
        weak = [
            rank_sum_p(runs[edges[i] : edges[i + 1]], runs[edges[i + 1] : edges[i + 2]]) for i in range(len(cuts))
        ]
        worst = int(np.argmax(weak))
        if weak[worst] < HOLDS:
            break
        del cuts[worst]
    return cuts


def _scores(runs: np.ndarray) -> np.ndarray:
    """Return the runs, winsorized."""
    if len(runs) < 2 * SHORTEST:
        return runs
    middle, noise = float(np.median(runs)), noise_of(runs)
    return np.asarray(np.clip(runs, middle - CLIP * noise, middle + CLIP * noise))


def noise_of(runs: np.ndarray) -> float:
    """Return the standard deviation of two runs or more without the changes of their level: that of their steps."""
    return float(np.median(np.abs(np.diff(runs)))) / _MEDIAN / math.sqrt(2) or float(np.std(runs))


def _cuts(scores: np.ndarray, runs: np.ndarray, between: Tuple[int, int], rules: _Rules) -> List[Tuple[int, float]]:
    """Return the cuts between two places, each with its p."""
    start, end = between
    if end - start < 2 * SHORTEST:
        return []
    part = scores[start:end] - scores[start:end].mean()
    if float(part @ part) <= len(part) * (_DIGITS * float(np.abs(scores[start:end]).max())) ** 2:
        return []
    stretch = _largest(part[None, :])[0]
    rules = rules._replace(resemblance=min(rules.steps, _left(part, stretch)))
    p = 0.0
    if rules.alpha < GUARD:
        p = max(_p(part, stretch, rules.resemblance), _least_p(runs[start:end], stretch))
    if p >= rules.alpha:
        return []
    if not 0 < p < _SURE:
        counts = rules.alpha < GUARD and _are_counts(runs[start:end])
        by_orders = _p_of_orders(part, stretch, rules, counts)
        if by_orders is None:
            return []
        p = max(p, by_orders) if counts else p or by_orders
    edges = [start, *(start + cut for cut in stretch[:2] if 0 < cut < end - start), end]
    places = [_placed(runs, *around) for around in zip(edges, edges[1:], edges[2:])]
    edges = sorted({start, *places, end})
    inside = [cut for pair in zip(edges, edges[1:]) for cut in _cuts(scores, runs, pair, rules)]
    return [*((place, p) for place in places), *inside]


def _stretches(n: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of all stretches: levels of `SHORTEST` runs at least, inside and on both sides."""
    ends = np.asarray([0, *range(SHORTEST, n - SHORTEST + 1), n])
    start, end = (bounds.ravel() for bounds in np.meshgrid(ends, ends, indexing="ij"))
    keep = (end - start >= SHORTEST) & (end - start <= n - SHORTEST) & (start + n > end) & ~((start == 0) & (end < n))
    return start[keep], end[keep]  # from the first run on: the others are the stretch


def _largest(rows: np.ndarray) -> List[_Stretch]:
    """Return for each sequence, whose mean is 0, the stretch that differs most from the rest."""
    n = rows.shape[1]
    start, end = _stretches(n)
    sums = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(rows, axis=1)], axis=1)
    size = end - start
    between = (sums[:, end] - sums[:, start]) ** 2 * (n / (size * (n - size)))
    best = np.argmax(between, axis=1)
    return [_Stretch(int(start[at]), int(end[at]), float(between[row, at])) for row, at in enumerate(best)]


def _resemblance(scores: np.ndarray) -> float:
    """Return the autocorrelation of runs, by their steps.

    Of an AR(1) process the step over k runs has the variance 2 s^2 (1 - r^k). Steps of a change of the level are
    clipped.
    """
    variances = []
    for over in (1, 2):
        steps = scores[over:] - scores[:-over]
        reach = 3 * float(np.median(np.abs(steps))) / _MEDIAN
        variances.append(float((np.clip(steps, -reach, reach) ** 2).mean()) if len(steps) else 0.0)
    r = variances[1] / variances[0] - 1 if variances[0] else 0.0
    return min(max(r, 0.0), 0.9)


def _left(part: np.ndarray, stretch: _Stretch) -> float:
    """Return the autocorrelation of the runs less the level of the stretch, or of the others.

    It is corrected for its bias in short sequences, (2 + 4 r) / n.
    """
    inside = np.zeros(len(part), dtype=bool)
    inside[stretch.start : stretch.end] = True
    left = np.where(inside, part - part[inside].mean(), part - part[~inside].mean())
    total = float(left @ left)
    r = float(left[1:] @ left[:-1]) / total if total else 0.0
    return max(r + (2 + 4 * r) / len(part), 0.0)


def _p(part: np.ndarray, stretch: _Stretch, resemblance: float) -> float:
    """Return the p of the stretch by Student's t, times the number of stretches."""
    n = len(part)
    worth = (1 - resemblance) / (1 + resemblance)
    freedom = max(1.0, n * worth - 2)
    within = max(float(part @ part) - stretch.between, 0.0) / (n - 2)
    if not within:
        return 5e-324
    t = math.sqrt(stretch.between * worth / within)
    return min(1.0, max(5e-324, 2 * float(special.stdtr(freedom, -t)) * len(_stretches(n)[0])))


def _least_p(runs: np.ndarray, stretch: _Stretch) -> float:
    """Return a p that equal values cannot go below: the places of such a stretch / the number of orders that differ.

    Student's t does not know how few orders there are: three ones among zeros stand side by side by chance.
    """
    start, end = _stretches(len(runs))
    size = stretch.end - stretch.start
    places = int(np.isin(end - start, (size, len(runs) - size)).sum())
    counts = np.unique(runs, return_counts=True)[1]
    orders = special.gammaln(len(runs) + 1) - special.gammaln(counts + 1).sum()
    return min(1.0, math.exp(math.log(places) - float(orders)))


def _are_counts(runs: np.ndarray) -> bool:
    """Return whether more than a third of the runs have one value, as counts of what is rare have: most are 0."""
    return bool(3 * np.unique(runs, return_counts=True)[1].max() > len(runs))


def _p_of_orders(part: np.ndarray, stretch: _Stretch, rules: _Rules, exact: bool) -> Optional[float]:
    """Return the part of random orders that have a stretch that differs so much; None: more than may.

    The orders are those of single runs, or of blocks of correlated ones. `exact`: they are so many that their part
    alone can be below alpha, as far as `_WORK` allows.
    """
    n, orders, beyond = len(part), _ORDERS, 0
    if exact:
        orders = max(_ORDERS, min(math.ceil(2 / rules.alpha) - 1, _WORK // len(_stretches(n)[0])))
    allowed = max(rules.alpha if exact else GUARD, rules.alpha, 1 / (orders + 1)) * (orders + 1) - 1
    correlated = rules.resemblance > 1.645 / math.sqrt(n)  # beyond chance
    length = math.ceil((1 + rules.resemblance) / (1 - rules.resemblance)) if correlated else 1
    done, batch = 0, max(1, min(100, 2_000_000 // n**2))
    while done < orders:
        count = min(batch, orders - done)
        rows = np.stack([part[_order(n, length, rules.chance)] for _ in range(count)])
        beyond += sum(random_stretch.between >= stretch.between * (1 - 1e-9) for random_stretch in _largest(rows))
        done += count
        if beyond > allowed:
            return None
    return (beyond + 1) / (orders + 1)


def _order(n: int, length: int, chance: np.random.Generator) -> np.ndarray:
    """Return a random order of blocks of neighbours; the first one may be shorter."""
    if length == 1:
        return chance.permutation(n)
    edges = np.arange(int(chance.integers(1, length + 1)), n, length)
    blocks = np.split(np.arange(n), edges)
    return np.concatenate([blocks[i] for i in chance.permutation(len(blocks))])


def _placed(runs: np.ndarray, start: int, cut: int, end: int) -> int:
    """Return the cut, or one near it where values are nearest to the medians of both sides."""

    def misfit(place: int) -> float:
        return sum(float(np.abs(part - np.median(part)).sum()) for part in (runs[start:place], runs[place:end]))

    low, high = max(start + SHORTEST, cut - SHORTEST), min(end - SHORTEST, cut + SHORTEST)
    near: Optional[range] = range(low, high + 1) if low <= high else None
    return min(near, key=misfit) if near else cut
