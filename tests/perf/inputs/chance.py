"""Random numbers with a seed, and tables of what was found in them: of chance.py and history.py."""

from __future__ import annotations

import math
import sys
from typing import Callable, Dict, Sequence

import numpy as np
from scipy.signal import lfilter
from scipy.stats import beta

#: sequences or tables of rows of which a part is counted
TABLES = 100
Noise = Callable[[np.random.Generator, int], np.ndarray]

#: runs: what is random about a level of 100
RUNS: Dict[str, Noise] = {
    "normal, 2 %": lambda chance, n: 100 + 2 * chance.normal(size=n),
    "lognormal, 30 %": lambda chance, n: 100 * np.exp(0.3 * chance.normal(size=n)),
    "2 %, one run in ten 20 % lower": lambda chance, n: (
        (100 + 2 * chance.normal(size=n)) * np.where(chance.random(n) < 0.1, 0.8, 1)
    ),
    "two levels, 10 % apart": lambda chance, n: (
        (100 + 0.2 * chance.normal(size=n)) * np.where(chance.random(n) < 0.5, 0.9, 1)
    ),
}


def series(chance: np.random.Generator, n: int, lag: float, scatter: float = 0.05, drift: float = 0.0) -> np.ndarray:
    """A level of 100 with AR(1) noise; `drift` is the standard deviation of what it rises or falls until the end."""
    noise = lfilter([1], [1, -lag], chance.normal(size=n + 300))[300:] * math.sqrt(1 - lag**2)
    return np.asarray(100 * (1 + scatter * noise + drift * chance.normal() * np.arange(n) / n))


def share(value: float) -> str:
    """Return ".05" of 0.05, "1.00" of 1."""
    return f"{max(value, 0.0):.2f}".removeprefix("0")


def share_with_bounds(count: int, rounds: int) -> str:
    """Return "0.020 (8 of 400; 0.009 to 0.039)": a share with its exact bounds of 95 % (Clopper and Pearson)."""
    low = beta.ppf(0.025, count, rounds - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, rounds - count) if count < rounds else 1.0
    return f"{count / rounds:.3f} ({count} of {rounds}; {low:.3f} to {high:.3f})"


def show(head: Sequence[object], lines: Sequence[Sequence[object]]) -> None:
    """A Markdown table."""
    print(f"| {' | '.join(map(str, head))} |")
    print(f"| {' | '.join('---' for _ in head)} |")
    for line in lines:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line)
        print(f"| {' | '.join(cells)} |", flush=True)
    print()


def print_tables(parts: Sequence[Callable[[], None]], names: Sequence[str]) -> int:
    """Print the tables of these names, or all; exit status 2 when one is unknown."""
    known = {part.__name__: part for part in parts}
    wanted = names or list(known)
    if not set(wanted) <= set(known):
        print(f"tables: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in wanted:
        print(f"{name}: {known[name].__doc__}\n", flush=True)
        known[name]()
    return 0
