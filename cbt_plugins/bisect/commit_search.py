"""Which commit changed a metric: a Bayesian search over an ordered history. Knows numbers only.

A measurement is a log ratio of a commit against the reference (the good commit), both made in one block, so that a
drift cancels; above 0 is worse. Position 0 is the reference, 1..N the commits after it, N the bad one. Hypotheses:
nothing changed; the level rises at one commit; or at one commit to a share of the whole change, and at a later one to
all of it. Size of the change and noise are unknown: both are summed over a grid.

The likelihood is a mixture with long tails: mostly Student's t with the noise, and for one measurement in ten Cauchy's
distribution, several times as wide. So one run in ten that is far off does not decide, and does not count as noise.

That nothing changed is said only if the data speak against each size that counts, also against the smallest: its
likelihood ratio to the size that fits best. By the average over all sizes a change of the smallest one, which few other
sizes are near, would be denied too easily.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

#: degrees of freedom of the noise; the part of measurements that are far off, and how many times as wide they are
_FREEDOM, _FAR, _FAR_WIDTH = 5.0, 0.1, 6.0
#: before the data: nothing changed, one change, two of them
_NO_CHANGE, _ONE_CHANGE, _TWO_CHANGES = 0.45, 0.45, 0.1
#: the level between two changes, as a share of the whole: above 1 is a change that is partly taken back later
_SHARES = (-0.5, 0.25, 0.5, 0.75, 1.5)
_LEVELS = np.asarray((0.0, *_SHARES, 1.0))
#: the search goes on until the chance of an error is this much smaller than asked for: what is measured most often is
#: where chance has misled it, and noise may have another form (tests/perf/bisection.py)
_CAUTION = 3.0
#: the search begins once "nothing changed" is as unlikely as this
_CHANGED = 0.03
#: the prior of the noise of one log ratio: lognormal, its middle and the factor of one standard deviation
_NOISE, _NOISE_FACTOR = 0.04, 3.0
#: the largest change of the prior, as a log ratio, unless the bad commit shows a larger one
_LARGEST = 1.5


@dataclass(frozen=True)
class SearchRules:
    """What is searched for, and how sure the answer must be."""

    effect: float = 0.03  # the smallest change that counts, as a log ratio
    posterior: float = 0.95
    pairs: int = 3  # measurements of the bad commit before the search
    most_pairs: int = 100  # of them without an answer to whether anything changed: there is too much noise

    @property
    def needed(self) -> float:
        """The posterior at which the search ends."""
        return 1 - (1 - self.posterior) / _CAUTION


class Observation(NamedTuple):
    """One block: the log ratio of a commit against the reference."""

    position: int
    ratio: float


@dataclass
class Evidence:
    """What is known of a history: its prior, the measurements so far, the commits that cannot be built."""

    weights: Sequence[float]  # of the positions 1..N
    seen: List[Observation] = field(default_factory=list)
    unbuildable: Dict[int, None] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The position of the bad commit."""
        return len(self.weights)


class Suspects(NamedTuple):
    """Positions `first`..`last` that the measurements so far do not tell apart, and how likely it changed there."""

    first: int
    last: int
    posterior: float


@dataclass(frozen=True)
class Belief:
    """What the evidence says."""

    none: float  # nothing changed
    denied: float  # nothing changed, where the size that fits best was as likely before
    suspects: Tuple[Suspects, ...]  # the posterior of a change for the worse in each; two changes are in two of them
    levels: np.ndarray  # position 1.. -> the probability of each of _LEVELS
    size: float  # of the whole change, a log ratio
    size_error: float
    noise: float  # of one log ratio
    second: float  # there are two changes, if any
    second_suspects: Tuple[Suspects, ...]  # where the other one of two is, given the most likely first

    @property
    def best(self) -> Suspects:
        """The most likely ones, of as likely ones the fewest."""
        return _best(self.suspects)

    def credible(self, share: float) -> Suspects:
        """Return the shortest run of neighbouring suspects that holds a share of the posterior of a change."""
        total = sum(stretch.posterior for stretch in self.suspects) / (
            1 - min(self.none, 1 - 1e-9)
        )  # two changes count twice
        mass = [stretch.posterior / total for stretch in self.suspects]
        sums = np.concatenate([[0.0], np.cumsum(mass)])
        runs = []
        for low, stretch in enumerate(self.suspects):
            high = int(np.searchsorted(sums, sums[low] + share * sums[-1] - 1e-12))
            if high <= len(mass):
                runs.append(Suspects(stretch.first, self.suspects[high - 1].last, float(sums[high] - sums[low])))
        return min(runs, key=lambda stretch: (stretch.last - stretch.first, -stretch.posterior))


def belief(evidence: Evidence, rules: SearchRules) -> Belief:
    """Return the posterior; the bad commit needs one measurement at least."""
    knots = sorted({evidence.last, *(observation.position for observation in evidence.seen if observation.position)})
    grid = _coarse(
        [observation.ratio for observation in evidence.seen if observation.position == evidence.last], rules.effect
    )
    grid = _fine(_sums(evidence, knots, grid, _LEVELS[[0, -1]]), grid, rules.effect)
    sums, cells = _sums(evidence, knots, grid, _LEVELS), grid.prior
    weights = np.asarray(evidence.weights, dtype=float) / math.fsum(evidence.weights)
    total = np.concatenate([[0.0], np.cumsum(weights)])
    mass = np.diff(total[[0, *knots]])  # of each stretch between knots
    before, after = sums[0], sums[-1]
    ones = before[:-1] + after[-1] - after[:-1] + cells
    low, high = np.triu_indices(len(knots))
    twice = np.log(mass[low] * mass[high] * np.where(low == high, 1, 2) * _TWO_CHANGES / len(_SHARES) + 1e-300)
    start = before[low] + cells + after[-1] - after[high]
    parts = [start + between[high] - between[low] for between in sums[1:-1]]
    logs = [
        np.asarray([math.log(_NO_CHANGE) + _added(before[-1] + cells)]),
        np.log(mass * _ONE_CHANGE + 1e-300) + _added(ones),
        *(twice + _added(part) for part in parts),
    ]
    top = max(float(log.max()) for log in logs)
    none, single, *doubles = (np.exp(log - top) for log in logs)
    normalizer = float(none.sum() + single.sum() + sum(double.sum() for double in doubles))
    pairs = np.zeros((len(_SHARES), len(knots), len(knots)))
    for share, double in enumerate(doubles):
        pairs[share, low, high] = double / normalizer
    single = single / normalizer
    size, error, noise, _ = _moments(ones + np.log(mass * _ONE_CHANGE + 1e-300)[:, None, None], grid)
    changed = max(1 - float(none[0]) / normalizer, 1e-12)
    suspects = _suspects(knots, _included(single, pairs))
    return Belief(
        none=float(none[0]) / normalizer,
        denied=_denied(before[-1], ones + np.log(mass + 1e-300)[:, None, None], grid),
        suspects=suspects,
        levels=_levels(knots, total, single, pairs),
        size=size,
        size_error=error,
        noise=noise,
        second=float(pairs.sum()) / changed,
        second_suspects=_suspects(knots, _second_change(pairs, suspects.index(_best(suspects)))),
    )


def _denied(unchanged: np.ndarray, changed: np.ndarray, grid: _Grid) -> float:
    """Return the posterior of "nothing changed" against the size that fits best; of log likelihoods by size, noise."""
    of_noises = grid.prior - grid.prior[:, :1]  # without the prior of sizes
    none = _added((unchanged + of_noises)[:1])
    sizes = _added(np.moveaxis(changed - grid.prior[:, :1], 1, 0))
    return 1 / (1 + math.exp(min(float(sizes.max()) - float(none), 700.0)))


class _Grid(NamedTuple):
    """Sizes of the change and noises that are summed over, and the log of the prior of each pair."""

    sizes: np.ndarray
    noises: np.ndarray
    prior: np.ndarray


def _grid(sizes: np.ndarray, noises: np.ndarray, effect: float) -> _Grid:
    """Return a grid with the prior: a size is uniform in its logarithm, a noise lognormal."""
    step, scale = math.log(noises[1] / noises[0]), math.log(_NOISE_FACTOR)
    of_sizes = np.log((sizes[1] - sizes[0]) / sizes / math.log(max(_LARGEST, sizes[-1]) / effect))
    of_noises = -0.5 * (np.log(noises / _NOISE) / scale) ** 2 + math.log(step / scale / math.sqrt(2 * math.pi))
    return _Grid(sizes, noises, of_sizes[:, None] + of_noises[None, :])


def _coarse(bad: Sequence[float], effect: float) -> _Grid:
    """Return sizes around what the bad commit shows, and all noises."""
    middle = float(np.median(bad)) if bad else effect
    spread = max(float(np.std(bad, ddof=1)) if len(bad) > 1 else 0.0, 0.02 if len(bad) < 3 else 0.001)
    error = 6 * spread / math.sqrt(max(len(bad), 1))
    low = max(effect, middle - error)
    high = max(middle + error, 1.5 * low, low + error)
    return _grid(np.linspace(low, high, 25), np.geomspace(0.0008, 0.8, 24), effect)


def _fine(sums: np.ndarray, grid: _Grid, effect: float) -> _Grid:
    """Return a grid around where the weight is, with one change or none; a little further to small noises."""
    before, after = sums
    cells = np.concatenate([before[:-1] + after[-1] - after[:-1], before[-1:]]) + grid.prior
    size, size_error, noise, noise_error = _moments(cells, grid)
    reach, wide = 5 * max(size_error, 0.01 * size), max(noise_error, 0.12)
    low = max(effect, size - reach)
    sizes = np.linspace(low, max(size + reach, 1.2 * low), 15)
    return _grid(sizes, np.geomspace(noise * math.exp(-6 * wide), noise * math.exp(4 * wide), 15), effect)


def _sums(evidence: Evidence, knots: Sequence[int], grid: _Grid, levels: np.ndarray) -> np.ndarray:
    """Return the log likelihood of the first n knots at each level: level, n, size, noise."""
    at = {position: index for index, position in enumerate(knots)}
    table = np.zeros((len(levels), len(knots) + 1, *grid.prior.shape))
    means = levels[:, None, None] * grid.sizes[None, :, None]
    for position, ratio in evidence.seen:
        if position:  # the reference against itself
            z = (ratio - means) / grid.noises
            table[:, at[position] + 1] += np.log(_density(z) / grid.noises)
    return np.asarray(table.cumsum(axis=1))


def _density(z: np.ndarray) -> np.ndarray:
    """Return the density of a measurement, z times the noise from its level."""
    near = _NEAR_FACTOR * (1 + z * z / _FREEDOM) ** (-(_FREEDOM + 1) / 2)
    far = 1 / (math.pi * _FAR_WIDTH * (1 + (z / _FAR_WIDTH) ** 2))
    return np.asarray((1 - _FAR) * near + _FAR * far)


#: makes Student's t a density
_NEAR_FACTOR = math.gamma((_FREEDOM + 1) / 2) / math.gamma(_FREEDOM / 2) / math.sqrt(_FREEDOM * math.pi)


def _added(cells: np.ndarray) -> np.ndarray:
    """Return the log of the sum over the last two axes."""
    flat = cells.reshape(*cells.shape[:-2], -1)
    top = flat.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(flat - top).sum(axis=-1)) + top[..., 0])


def _moments(cells: np.ndarray, grid: _Grid) -> Tuple[float, float, float, float]:
    """Return mean and standard deviation of the change's size, and of the noise in its logarithm."""
    weights = np.exp(cells - cells.max()).sum(axis=0)
    weights /= weights.sum()
    of_sizes, of_noises, logs = weights.sum(axis=1), weights.sum(axis=0), np.log(grid.noises)
    size, noise = float((of_sizes * grid.sizes).sum()), float((of_noises * logs).sum())
    errors = [
        math.sqrt(max(float((w * (x - middle) ** 2).sum()), 0.0))
        for w, x, middle in ((of_sizes, grid.sizes, size), (of_noises, logs, noise))
    ]
    return size, errors[0], math.exp(noise), errors[1]


def _included(single: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the probability of a change for the worse in each stretch."""
    probability = single.copy()
    for share, table in zip(_SHARES, pairs):
        both = np.diag(table)
        if share > 0:
            probability += table.sum(axis=1)
        if share < 1:
            probability += table.sum(axis=0) - (both if share > 0 else 0)
    return probability


def _second_change(pairs: np.ndarray, best: int) -> np.ndarray:
    """Return the probability of the other one of two changes in each stretch when one is in the stretch `best`."""
    both = pairs.sum(axis=0)
    probability = both[best, :] + both[:, best]
    probability[best] = 0.0  # two changes in one stretch are not told apart from one
    return np.asarray(probability)


def _suspects(knots: Sequence[int], posterior: np.ndarray) -> Tuple[Suspects, ...]:
    firsts = [1, *(knot + 1 for knot in knots[:-1])]
    return tuple(Suspects(first, last, float(p)) for first, last, p in zip(firsts, knots, posterior))


def _best(suspects: Sequence[Suspects]) -> Suspects:
    return max(suspects, key=lambda stretch: (round(stretch.posterior, 2), stretch.first - stretch.last))


def _levels(knots: Sequence[int], total: np.ndarray, single: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the probability of each level at each position 1..N."""
    positions = np.arange(1, len(total))
    at = np.searchsorted(knots, positions)
    low = total[np.asarray([0, *knots[:-1]])][at]
    mass = np.maximum(total[np.asarray(knots)][at] - low, 1e-300)
    part = (total[1:] - low) / mass  # of the stretch's prior up to this position
    levels = np.zeros((len(positions), len(_LEVELS)))
    levels[:, -1] = (np.cumsum(single) - single)[at] + part * single[at]
    for index, table in enumerate(pairs):
        both, starts, ends = np.diag(table), table.sum(axis=1), table.sum(axis=0)
        done = (np.cumsum(ends) - ends)[at] + part * (ends - both)[at] + part**2 * both[at]
        begun = (np.cumsum(starts) - starts)[at] + part * (starts - both)[at] + (1 - (1 - part) ** 2) * both[at]
        levels[:, -1] += done
        levels[:, 1 + index] = begun - done
    levels[:, 0] = 1 - levels[:, 1:].sum(axis=1)
    return np.clip(levels, 0.0, 1.0)


def information(held: Belief) -> np.ndarray:
    """Return the bits that a measurement of each position 1..N is expected to tell."""
    ratio = min(held.size / held.noise, 12.0)
    y = np.arange(_LEVELS.min() * ratio - 8, _LEVELS.max() * ratio + 8, 0.25)
    z = y - _LEVELS[:, None] * ratio
    density = _density(z)
    density /= density.sum(axis=1, keepdims=True)
    each = -(density * np.log2(density)).sum(axis=1)
    mixed = held.levels @ density
    bits = -(mixed * np.log2(mixed + 1e-300)).sum(axis=1) - held.levels @ each
    return np.maximum(bits, 0.0)


def buildable(evidence: Evidence) -> np.ndarray:
    """Return the probability that each position 1..N can be built: near one that cannot, others cannot either."""
    chance = np.ones(evidence.last)
    positions = np.arange(1, evidence.last + 1)
    built = {observation.position for observation in evidence.seen}
    broken = sorted(evidence.unbuildable)
    for position in broken:
        near = sum(
            not any(min(broken_position, position) < b < max(broken_position, position) for b in built)
            for broken_position in broken
        )
        away = np.abs(positions - position)
        chance = np.minimum(chance, away / (away + near))
    chance[[position - 1 for position in built if position]] = 1.0
    return chance


def choose_commit(evidence: Evidence, rules: SearchRules, held: Belief, hours: Sequence[float]) -> Optional[int]:
    """Return the position to measure next, the one that tells most for each hour; None when nothing tells more.

    `hours`: what a measurement of each position 1..N costs, with its build where there is none yet.
    """
    pairs = sum(observation.position == evidence.last for observation in evidence.seen)
    if pairs < rules.pairs or held.none > _CHANGED:
        return evidence.last
    rate = information(held) * buildable(evidence) / np.asarray(hours, dtype=float)
    rate[[position - 1 for position in evidence.unbuildable]] = 0.0
    return int(np.argmax(rate)) + 1 if rate.max() > 0 else None


@dataclass(frozen=True)
class SearchAnswer:
    """What the search can say now: `culprit`, `none` (the two commits do not differ), `noisy`, or nothing yet."""

    culprit: Optional[Suspects] = None
    none: bool = False
    noisy: bool = False  # so many measurements do not tell whether they differ


def search_answer(evidence: Evidence, rules: SearchRules, held: Belief) -> SearchAnswer:
    """Return the answer, if there is one. A stretch has several commits where those before its last cannot be built."""
    pairs = sum(observation.position == evidence.last for observation in evidence.seen)
    if pairs < rules.pairs:
        return SearchAnswer()
    if held.none > _CHANGED and held.denied >= rules.needed:
        return SearchAnswer(none=True)
    if pairs >= rules.most_pairs and held.none > _CHANGED:
        return SearchAnswer(noisy=True)
    candidates = [
        stretch
        for stretch in held.suspects
        if stretch.posterior >= rules.needed
        and all(at in evidence.unbuildable for at in range(stretch.first, stretch.last))
    ]
    if candidates and held.none <= _CHANGED:
        return SearchAnswer(culprit=max(candidates, key=lambda stretch: stretch.posterior))
    return SearchAnswer()


def bits_left(held: Belief) -> float:
    """Return the entropy of where the change is, in bits."""
    p = np.asarray([stretch.posterior for stretch in held.suspects])
    wide = np.asarray([stretch.last - stretch.first + 1 for stretch in held.suspects])
    p = p / max(float(p.sum()), 1e-12)
    p, wide = p[p > 0], wide[p > 0]
    return float((p * (np.log2(wide) - np.log2(p))).sum())


def chances_of(evidence: Evidence, position: int, rules: SearchRules) -> Tuple[float, float]:
    """Return the likelihoods that one commit is good and bad, of its own measurements and those of the bad commit only.

    Bad: at least half of the change. Both are small when the bad commit does not differ from the reference.
    """
    positions: FrozenSet[int] = frozenset((position, evidence.last))
    part = Evidence(
        evidence.weights, [observation for observation in evidence.seen if observation.position in positions]
    )
    held = belief(part, rules)
    levels = held.levels[position - 1]
    bad = float(levels[_LEVELS >= 0.5].sum())
    return 1 - bad - held.none, bad
