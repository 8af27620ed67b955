"""A ladder: the load is raised step by step, then narrowed down, to the highest one that meets an objective.

The run asks for the next load here, and the report for the answer, so that both judge by the same numbers of a summary.
A load is requests/s of all drivers (open loop: latency counts from the scheduled time) or workers of each driver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.formatting import percent
from cbt_plugins.metrics import ACCEPTABLE, TOTAL, Direction, Metric, number_at, read
from cbt_plugins.models.closed_loop import PRODUCTION
from cbt_plugins.plan import Ladder

#: bounds nearer than this are one: what is left of the steps repeats them. A step near the border meets or misses by
#: chance; so far beyond the bounds the highest load is in 1 of 20 ladders at most (tests/perf/ladder.py)
CLOSE = 1.05
#: share of the due requests that an open loop may leave unstarted; more is a load that nobody has made
UNSTARTED = 0.01
#: a rate is too low where so many standard deviations of its chance, and UNSTARTED, do not explain it
_SURE = 4.0


@dataclass(frozen=True)
class LadderStep:
    """One load and what came of it."""

    phase: str
    load: float
    values: Mapping[str, Optional[float]]  # by the keys of the objective, in the metrics' units
    missed: Tuple[str, ...]  # what of the objective it missed, in words; empty: met


@dataclass(frozen=True)
class LadderAnswer:
    """The highest load that met the objective lies between `low` and `high`; None: no load did, or none missed it."""

    low: Optional[float]
    high: Optional[float]
    text: str


def metric_of(key: str) -> Tuple[str, Metric]:
    """Return operation and metric of a key of an objective: "GET/p99_ms", "success_rate"."""
    op, _, name = key.rpartition("/")
    return op or TOTAL, ACCEPTABLE[name]


def objective_text(ladder: Ladder) -> str:
    """Return the objective in words: "GET p99 at most 50 ms, success rate at least 0.999"."""
    return ", ".join(_limit(key, limit) for key, limit in ladder.objective.items())


def _limit(key: str, limit: float) -> str:
    op, metric = metric_of(key)
    least = "at least" if metric.direction is Direction.HIGHER else "at most"
    return f"{op + ' ' if op != TOTAL else ''}{metric.title} {least} {limit:g}{_unit(metric)}"


def _unit(metric: Metric) -> str:
    return f" {metric.unit}" if metric.unit else ""


def load_text(ladder: Ladder, load: float) -> str:
    """Return a load in words: "437/s", "12 workers per driver"."""
    if ladder.unit == "rate":
        return f"{load:g}/s"
    return f"{load:g} worker{'' if load == 1 else 's'} per driver"


def step_result(ladder: Ladder, load: float, summary: Mapping[str, Any], phase: Mapping[str, Any]) -> LadderStep:
    """Return the step of a ladder by its phase in a summary; a number that is missing misses the objective."""
    values: Dict[str, Optional[float]] = {}
    missed: List[str] = []
    for key, limit in ladder.objective.items():
        op, metric = metric_of(key)
        value = values[key] = read(metric, summary, phase, op)
        name = f"{op + ' ' if op != TOTAL else ''}{metric.title}"
        if value is None:
            done = (phase["ops"].get(op) or {} if op != TOTAL else phase["total"]).get("requests") or 0
            missed.append(f"{name} unknown: {done} requests succeeded")
        elif value < limit if metric.direction is Direction.HIGHER else value > limit:
            missed.append(f"{name} {value:.4g}{_unit(metric)}")
    missed += _not_made(phase)
    return LadderStep(phase["name"], load, values, tuple(missed))


def _not_made(phase: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why the load of an open loop was not made.

    A request that starts late counts in the latency from the time at which it was due.
    """
    left = number_at(phase, ("rate", "unstarted"))
    if left is not None and left > UNSTARTED:
        yield f"{percent(left, '.3g')} of the requests never started: all workers waited"
        return
    off = number_at(phase, ("rate", "deviation"))
    chance = number_at(phase, ("rate", "chance"))
    if off is not None and chance is not None and -off > max(UNSTARTED, _SURE * chance):
        yield f"{percent(-off, '.3g')} of the requests were not issued, more than chance explains"


def _bounds(steps: Sequence[LadderStep]) -> Tuple[Optional[float], Optional[float]]:
    """Return the highest load below all that missed, and the lowest that missed; a load has what most of its steps had.

    As many steps that met as that missed: missed.
    """
    loads = {step.load for step in steps}
    missed = {load for load in loads if 2 * _times(steps, load, met=True) <= _times(steps, load)}
    high = min(missed, default=None)
    low = max((load for load in loads - missed if high is None or load < high), default=None)
    return low, high


def _times(steps: Sequence[LadderStep], load: float, met: Optional[bool] = None) -> int:
    """Return the number of steps that had this load, or of those that met (or missed) the objective."""
    return sum(step.load == load and met in (None, not step.missed) for step in steps)


def next_load(ladder: Ladder, steps: Sequence[LadderStep]) -> float:
    """Return the load of the next step, from `lowest` to `highest`.

    Loads grow at least twofold, so fast that the steps reach `highest`. After a miss the geometric mean of the bounds
    follows. When they are close, or there is one only, what was tried less often is repeated: one disturbance shall not
    decide.
    """
    if not steps:
        return ladder.lowest
    low, high = _bounds(steps)
    growth = max(2.0, (ladder.highest / ladder.lowest) ** (1 / max(1, ladder.steps - 1)))
    if high is None:
        assert low is not None
        return _rounded(ladder, min(ladder.highest, low * growth))
    if low is None:
        return high
    between = _rounded(ladder, math.sqrt(low * high))
    if low < between < high and high / low > CLOSE:
        return between
    return low if _times(steps, low) < _times(steps, high) else high


def _rounded(ladder: Ladder, load: float) -> float:
    return max(1.0, float(round(load))) if ladder.unit == "workers" else float(f"{load:.4g}")


def _often(ladder: Ladder, steps: Sequence[LadderStep], load: float, met: bool) -> str:
    number = _times(steps, load)
    return load_text(ladder, load) + (f" in {_times(steps, load, met)} of {number} steps" if number > 1 else "")


def ladder_of(plan: Mapping[str, Any]) -> Optional[Ladder]:
    """Return the ladder of a phase of plan.json. Raises ValueError for one that nobody can have planned."""
    planned_ladder = plan.get("ladder")
    if not planned_ladder:
        return None
    objective = {str(key): float(limit) for key, limit in planned_ladder["objective"].items()}
    ladder = Ladder(**{**planned_ladder, "objective": objective})
    if ladder.unit not in ("rate", "workers") or not all(_is_acceptable(key) for key in ladder.objective):
        raise ValueError(f"no ladder: {planned_ladder}")
    return ladder


def _is_acceptable(key: str) -> bool:
    return key.rpartition("/")[2] in ACCEPTABLE


def _range(ladder: Ladder, low: float, high: float) -> str:
    if ladder.unit == "workers":
        low, high = max(1, math.floor(low)), math.ceil(high)
    return f"between {low:.4g} and {load_text(ladder, float(f'{high:.4g}'))}"


def answer_of_ladder(ladder: Ladder, steps: Sequence[LadderStep]) -> LadderAnswer:
    """Return the interval that the answer lies in, and a sentence."""
    low, high = _bounds(steps)
    goal = objective_text(ladder)
    if not steps:
        return LadderAnswer(None, None, f"no step was made ({goal})")
    if high is None:
        assert low is not None
        return LadderAnswer(low, None, f"{goal}: met at {load_text(ladder, low)}, the highest load tried")
    why = next("; ".join(step.missed) for step in steps if step.missed and step.load == high)
    missed = f"missed at {_often(ladder, steps, high, met=False)}"
    if low is None:
        return LadderAnswer(None, high, f"{goal}: {missed}, the lowest load ({why})")
    text = f"{goal}: met at {_often(ladder, steps, low, met=True)}, {missed} ({why})"
    text += f"; the highest is {_range(ladder, low / CLOSE, high * CLOSE)}, as steps near it meet or miss by chance"
    if ladder.unit == "workers":
        text += f"; {percent(PRODUCTION, 'g')} of it: {load_text(ladder, max(1, math.floor(PRODUCTION * low)))}"
    return LadderAnswer(low, high, text)
