"""What campaigns say, simulated with seeds: verdicts on a true change, and false ones where trials resemble others.

Prints the tables of docs/CAMPAIGN.md as Markdown, through the very code that decides a campaign; four minutes.
Usage: ./run bench campaigns [TABLE ...], of those that it names when one is unknown
"""

from __future__ import annotations

import math
import sys
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np
from inputs.chance import print_tables, share, show
from scipy.signal import lfilter

from cbt_plugins.campaigns.schedule import block_order
from cbt_plugins.compare.statistics.sequential import Decision, Design, decide
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.metrics import Direction

#: key rows of a campaign, of which the first one changes
ROWS = 3
FOUND = (Verdict.BETTER, Verdict.WORSE)
CHANGES = (0.0, -0.03, -0.05, -0.1, -0.2)
SCATTERS = (0.01, 0.02, 0.04)


def decided(rows: np.ndarray) -> Dict[int, Decision]:
    """Return the decisions of the default plan on rows of log ratios."""
    return decide(dict(enumerate(rows.tolist())), dict.fromkeys(range(len(rows)), Direction.HIGHER), Design())


def first_rows(change: float, scatter: float, campaigns: int) -> List[Decision]:
    """Return the decisions on the changed row of campaigns; half of the noise of a block is that of all its rows."""
    chance, made = np.random.default_rng(0), []
    levels = np.asarray([math.log1p(change)] + [0.0] * (ROWS - 1))[:, None]
    for _ in range(campaigns):
        noise = (chance.standard_normal((ROWS, Design().most)) + chance.standard_normal(Design().most)) / math.sqrt(2)
        rows = scatter * noise + levels
        at = [its.decided_at or Design().most for its in decided(rows).values()]
        made.append(decided(rows[:, : max(at)])[0])  # it ends when all rows are decided
    return made


def verdicts(campaigns: int = 300) -> None:
    """What campaigns of at most 20 blocks say of a true change, and the blocks after which 80 % have a true verdict."""
    lines: List[List[object]] = []
    for scatter in SCATTERS:
        for change in CHANGES:
            made = first_rows(change, scatter, campaigns)
            both = np.mean([its.verdict is Verdict.EQUIVALENT and bool(its.differs) for its in made])
            parts = [
                np.mean([its.verdict in kinds for its in made]) for kinds in (FOUND, (Verdict.EQUIVALENT,), (None,))
            ]
            lines.append(
                [
                    f"{scatter:.0%}",
                    f"{change:.0%}",
                    *map(share, (parts[0], parts[1], both, parts[2])),
                    blocks(made, change),
                ]
            )
    head = (
        "scatter of a block",
        "true change",
        "worse (or better)",
        "equivalent",
        "of these (worse)",
        "inconclusive",
        "blocks",
    )
    show(head, lines)
    print(f"{campaigns} campaigns a line: a share of .50 is known by ±{196 * math.sqrt(0.25 / campaigns):.0f} points\n")


def blocks(made: Sequence[Decision], change: float) -> str:
    """Return the blocks after which 80 % of campaigns have a true verdict."""
    true = (FOUND if change else ()) + ((Verdict.EQUIVALENT,) if abs(change) < Design().margin else ())
    at = sorted(its.decided_at or 99 for its in made if its.verdict in true)
    number = math.ceil(0.8 * len(made))
    return str(at[number - 1]) if len(at) >= number else f"> {Design().most}"


def arms(campaigns: int = 1000) -> None:
    """Any false "better" or "worse" of one row of each arm; trials resemble those before them (AR), or drift."""
    kinds: Sequence[Tuple[str, float, float]] = (
        ("independent", 0.0, 0.0),
        ("AR .5", 0.5, 0.0),
        ("AR .8", 0.8, 0.0),
        ("AR .5, drift of 6 %", 0.5, 0.06),
    )
    lines = [[str(n), *(share(false(n, lag, drift, campaigns)) for _, lag, drift in kinds)] for n in (2, 3, 4)]
    show(("arms", *(name for name, _, _ in kinds)), lines)
    known = 196 * math.sqrt(0.05 * 0.95 / campaigns)
    print(f"{campaigns} campaigns a cell: a share of .05 is known by ±{known:.1f} points\n")


def false(number: int, lag: float, drift: float, campaigns: int, scatter: float = 0.02) -> float:
    """Return the part of campaigns of so many equal arms that find one better or worse; no margin ends them."""
    chance, found = np.random.default_rng(number), 0
    names = [str(its) for its in range(number)]
    design = Design(margin=0.0001)
    for seed in range(campaigns):
        order = [arm for block in range(1, design.most + 1) for arm in block_order(names, block, seed)]
        noise = lfilter([1], [1, -lag], chance.standard_normal(len(order) + 100))[100:] * math.sqrt(1 - lag**2)
        values = scatter * noise + np.linspace(0, drift, len(order))
        each = np.asarray(order).reshape(design.most, -1)
        means = {
            arm: (values.reshape(each.shape) * (each == arm)).sum(axis=1) / (each == arm).sum(axis=1) for arm in names
        }
        rows = {arm: list(means[arm] - means[names[0]]) for arm in names[1:]}
        made = decide(rows, dict.fromkeys(rows, Direction.HIGHER), design)
        found += any(its.differs for its in made.values())
    return found / campaigns


#: bad seconds of a trial -> values with this mean
COUNTS: Mapping[str, Callable[[np.random.Generator, float, Tuple[int, ...]], np.ndarray]] = {
    "normal, scatter 1 s": lambda chance, mean, shape: mean + chance.standard_normal(shape),
    "Poisson, mean 0.3": lambda chance, mean, shape: chance.poisson(0.3 + mean, shape),
    "Poisson, mean 5": lambda chance, mean, shape: chance.poisson(5 + mean, shape),
    "geometric, mean 4": lambda chance, mean, shape: chance.geometric(1 / (5 + mean), shape) - 1,
    "20 s in 10 % of trials": lambda chance, mean, shape: 20.0 * (chance.random(shape) < 0.1 + mean / 20),
}


def differences(campaigns: int = 400) -> None:
    """Verdicts on one row of bad seconds, whose margin is 1 s; the mean of the new arm is higher by so much."""
    lines = []
    for name, draw in COUNTS.items():
        cells: List[object] = [name]
        for rise, kinds in ((0.0, FOUND), (0.0, (Verdict.EQUIVALENT,)), (1.0, (Verdict.EQUIVALENT,)), (4.0, FOUND)):
            chance, made = np.random.default_rng(1), []
            for _ in range(campaigns):
                old, new = (draw(chance, mean, (Design().most, 2)).mean(axis=1) for mean in (0.0, rise))
                rows = {0: list((new - old).astype(float))}
                made.append(decide(rows, {0: Direction.LOWER}, Design(), {0: 1.0}, {0: "s"})[0])
            cells.append(share(float(np.mean([decision.verdict in kinds for decision in made]))))
            if rise > 1:
                cells.append(blocks(made, -rise))
        lines.append(cells)
    shares = ("equal: better or worse", "equal: equivalent", "+1 s: equivalent", "+4 s: worse")
    show(("bad seconds of a trial", *shares, "blocks"), lines)
    points = 196 * math.sqrt(0.05 * 0.95 / campaigns)
    print(f"{campaigns} campaigns a cell: a share of .05 is known by ±{points:.1f} points\n")


PARTS = (verdicts, arms, differences)


if __name__ == "__main__":
    sys.exit(print_tables(PARTS, sys.argv[1:]))
