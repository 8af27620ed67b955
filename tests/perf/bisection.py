"""How often the search for a commit is right, within the default budget: generated histories, seeded.

Each measurement is a log ratio of a commit against the reference in its block, both with the noise. Against it: plain
bisection with repeats, told the true noise and the true change, with as many repeats as keep its error below 5 %.
Usage: ./run bench bisection [SEEDS [quick|effect]], default 100; about half an hour, `effect` alone five minutes
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import List, Sequence, Set, Tuple

import numpy as np
from scipy import special

from cbt_plugins.bisect.commit_search import (
    Belief,
    Evidence,
    Observation,
    SearchAnswer,
    SearchRules,
    belief,
    choose_commit,
    search_answer,
)
from cbt_plugins.config.bisect import BisectBudget

RULES = SearchRules()
#: measurements after which a search is undecided
MOST = BisectBudget().measurements


@dataclass
class History:
    """A generated history: its levels, what cannot be built, and what a measurement of a commit gives."""

    levels: np.ndarray
    broken: Set[int]
    noise: float
    drift: float
    chance: np.random.Generator
    far: float = 0.0  # the part of cycles that give 20 % less
    made: int = 0

    @classmethod
    def drawn(cls, commits: int, changes: Sequence[float], noise: float, seed: int, case: str = "") -> History:
        """Return one with changes at random commits; `case`: "drift", "unbuildable", FAR or none."""
        chance = np.random.default_rng(seed)
        levels = np.zeros(commits + 1)
        for at, change in zip(chance.choice(np.arange(1, commits + 1), len(changes), replace=False), changes):
            levels[at:] += math.log1p(change)
        broken: Set[int] = set()
        if case == "unbuildable":  # one in ten begins a run of broken ones, 4 on average
            for at in np.flatnonzero(chance.random(commits) < 0.1):
                broken |= {int(at), *range(int(at), int(at) + int(chance.geometric(0.25)))}
        broken -= {0} | set(range(commits, commits + 100))
        return cls(levels, broken, noise, 0.3 if case == "drift" else 0.0, chance, 0.1 if case == FAR else 0.0)

    def measure(self, position: int) -> float:
        """Return a log ratio; the level of the cluster falls by `drift` in 100 measurements, the order alternates."""
        self.made += 1
        first = self.drift / 200 * (1 if self.made % 2 else -1)
        off = 0.0
        if self.far:
            good, other = (self.chance.random(2) < self.far).astype(float)
            off = math.log(0.8) * (other - good)
        return float(self.levels[position] + first + off + self.chance.normal(0, self.noise * math.sqrt(2)))


def search(history: History, build: float = 0.0) -> Tuple[SearchAnswer, Belief, int]:
    """Return the answer, the belief behind it, and how many measurements it took."""
    evidence = Evidence([1.0] * (len(history.levels) - 1))
    built: Set[int] = set()
    while True:
        held = belief(evidence, RULES)
        answer = search_answer(evidence, RULES, held)
        if answer.culprit or answer.none or answer.noisy or len(evidence.seen) >= MOST:
            return answer, held, len(evidence.seen)
        hours = [1.0 if p in built else 1.0 + build for p in range(1, evidence.last + 1)]
        position = choose_commit(evidence, RULES, held, hours)
        assert position, "nothing left to measure"
        if position in history.broken:
            evidence.unbuildable[position] = None
            continue
        built.add(position)
        evidence.seen.append(Observation(position, history.measure(position)))


def plain(history: History, change: float, sequential: bool) -> Tuple[int, int]:
    """Return the answer of plain bisection and its number of measurements, from the true change and noise.

    Of each commit in the middle as many measurements as decide with an error of 5 % / steps: always the same number,
    or (`sequential`) one after the other until the likelihood ratio decides (Wald).
    """
    low, high, made = 0, len(history.levels) - 1, 0
    error, noise, size = 0.05 / math.ceil(math.log2(high)), history.noise * math.sqrt(2), math.log1p(change)
    repeats = math.ceil((2 * -special.ndtri(error) * noise / size) ** 2)
    while high - low > 1:
        middle, ratio, n = (low + high) // 2, 0.0, 0
        while abs(ratio) < math.log(1 / error - 1) if sequential else n < repeats:
            ratio += (history.measure(middle) - size / 2) * size / noise**2
            n += 1
        made += n
        low, high = (low, middle) if ratio > 0 else (middle, high)
    return high, made


def right(answer: SearchAnswer, history: History) -> bool:
    """Whether it names a commit that changed, with the unbuildable ones before it, or says that none did."""
    changed = {int(at) + 1 for at in np.flatnonzero(np.diff(history.levels) > 0)}
    if answer.culprit is None:
        return answer.none and not changed
    return bool(changed & set(range(answer.culprit.first, answer.culprit.last + 1)))


def line(commits: int, noise: float, changes: Sequence[float], case: str, seeds: int) -> List[object]:
    """A line of the table."""
    found = [(search(h, 2.0 if case == "builds" else 0.0), h) for h in _drawn(commits, noise, changes, case, seeds)]
    told = " and ".join(f"{its:+.0%}" for its in changes) or "none"
    hits = [right(its[0], h) for its, h in found]
    open_ = [not (its[0].culprit or its[0].none) for its, _ in found]
    none = [its[0].none for its, _ in found]
    made: List[object] = [commits, f"{noise:.0%}", ", ".join(filter(None, (told, case)))]
    made += [f"{np.mean(its):.0%}" for its in (hits, none, open_)]
    made.append(f"{np.mean([n for (_, _, n), _ in found]):.0f}")
    made.append("" if not changes else f"{np.mean([held.second > 0.5 for (_, held, _), _ in found]):.0%}")
    for sequential in (False, True) if changes == (0.1,) and case in ("", "builds") else ():
        rivals = [(plain(h, changes[0], sequential), h) for h in _drawn(commits, noise, changes, case, seeds)]
        # it, too, measures the bad commit first
        n = np.mean([n for (_, n), _ in rivals]) + RULES.pairs
        hits = np.mean([h.levels[at] > 0 and h.levels[at - 1] == 0 for (at, _), h in rivals])
        made.append(f"{n:.0f} ({hits:.0%})")
    return made


def _drawn(commits: int, noise: float, changes: Sequence[float], case: str, seeds: int) -> List[History]:
    return [History.drawn(commits, changes, noise, seed, case) for seed in range(seeds)]


#: a case
FAR = "one cycle in ten 20 % off"


def main(seeds: int, part: str = "") -> None:
    """Print the table of docs/BISECT.md."""
    head = ("commits", "noise", "change", "right", "no difference", "undecided", "measurements", "says two")
    head += ("fixed repeats (right)", "sequential")
    print(f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |")
    cases: List[Tuple[Sequence[float], str]] = [((0.1,), "")]
    others: List[Tuple[Sequence[float], str]] = [((), ""), ((0.1, 0.1), ""), ((0.1, -0.05), "")]
    others += [((0.1,), "drift"), ((0.1,), "unbuildable"), ((0.1,), "builds")]
    lines = [(n, noise, *its) for n in (64, 1024) for noise in (0.02, 0.05, 0.1) for its in cases + others]
    at_effect: List[Tuple[Sequence[float], str]] = [((change,), case) for case in ("", FAR) for change in (0.03, 0.1)]
    effect = [(64, 0.02, *its) for its in (*at_effect, ((), ""), ((), FAR), ((0.1, -0.05), ""))]
    wanted = {"quick": [its for its in lines if its[2:] == cases[0]], "effect": effect}.get(part, effect + lines)
    for commits, noise, changes, case in wanted:
        few = seeds if noise < 0.1 else max(seeds // 2, 1)
        cells = [str(cell) for cell in line(commits, noise, changes, case, few)]
        print(f"| {' | '.join(cells + [''] * (len(head) - len(cells)))} |", flush=True)
    print(
        f"\n{seeds} seeds a line, half of them at a noise of 10 %: a share of 95 % is known by "
        f"±{196 * math.sqrt(0.05 * 0.95 / seeds):.0f} points, one of 50 % by ±{98 / math.sqrt(seeds):.0f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else "")
