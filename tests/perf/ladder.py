"""How often a step of a ladder is wrong, and how often the answer holds the true highest load: simulated with seeds.

The cluster is a queue with one server (arrivals of a Poisson process, exponential service, 64 workers), whose highest
rate with p99 at most 50 ms is known: rate - ln(100) / 50 ms. Each step is judged, and the next one chosen, by the real
functions, with the steps and durations of benchmark_configs/ladder.yaml. A step is wrong when it misses at a load below
0.9 of the true one, or meets above 1.1 of it.
Usage: ./run bench ladder [LADDERS], default 200; two minutes
"""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, Tuple

import numpy as np
from inputs.chance import share, show

from cbt_plugins.models.ladder_search import CLOSE, LadderStep, answer_of_ladder, next_load, step_result
from cbt_plugins.plan import Ladder

WORKERS, LIMIT = 64, 0.05
#: service rates of the cluster, per second; seconds of a step
SERVICE, SECONDS = (300.0, 1000.0, 3000.0), (10.0, 60.0)


def phase(rate: float, service: float, seconds: float, chance: np.random.Generator) -> Dict[str, Any]:
    """Return a step as a summary has it, by Lindley's equation; latency counts from when a request was due."""
    warm = 10.0
    due = np.cumsum(chance.exponential(1 / rate, math.ceil(1.2 * rate * (warm + seconds)) + 100))
    due = due[due < warm + seconds]
    work = chance.exponential(1 / service, len(due))
    before = np.concatenate([[0.0], np.cumsum(work)[:-1]])
    ends = before + work + np.maximum.accumulate(due - before)
    starts = np.maximum(due, np.concatenate([np.zeros(WORKERS), ends[:-WORKERS]])[: len(due)])  # a worker is free
    issued, measured = starts < warm + seconds, (ends > warm) & (ends < warm + seconds)
    asked, n = rate * (warm + seconds), int(issued.sum())
    return {
        "name": f"{rate:g}",
        "ops": {"GET": {"latency_ms": {"p99": 1000 * float(np.quantile((ends - due)[measured], 0.99))}}},
        "total": {"requests": n, "success_rate": 1.0},
        "rate": {"deviation": n / asked - 1, "chance": n**-0.5, "unstarted": 1 - n / len(due)},
    }


def climbed(service: float, seconds: float, chance: np.random.Generator) -> Tuple[Ladder, List[LadderStep]]:
    """Return a ladder and the steps that it makes."""
    ladder = Ladder("rates", "rate", 50.0, 5000.0, 10, {"GET/p99_ms": 1000 * LIMIT, "success_rate": 0.999})
    steps: List[LadderStep] = []
    for _ in range(ladder.steps):
        load = next_load(ladder, steps)
        steps.append(step_result(ladder, load, {}, phase(load, service, seconds, chance)))
    return ladder, steps


def line(service: float, seconds: float, ladders: int) -> List[object]:
    """Return a line of the table."""
    chance, true = np.random.default_rng(0), service - math.log(100) / LIMIT
    wrong, steps, inside, near = 0, 0, 0, 0
    for _ in range(ladders):
        ladder, made = climbed(service, seconds, chance)
        wrong += sum(bool(its.missed) if its.load < 0.9 * true else not its.missed for its in made
                     if not 0.9 * true <= its.load <= 1.1 * true)  # fmt: skip
        steps += len(made)
        found = answer_of_ladder(ladder, made)
        low, high = found.low or 0.0, found.high or math.inf
        inside += low <= true <= high
        near += low / CLOSE <= true <= high * CLOSE
    return [f"{true:.0f}/s", f"{seconds:.0f} s", f"{wrong / steps:.4f}", share(inside / ladders), share(near / ladders)]


def main(ladders: int) -> None:
    """Print the table."""
    head = ("true highest rate", "step", "wrong steps", "between met and missed", "within what the answer says")
    show(head, [line(service, seconds, ladders) for service in SERVICE for seconds in SECONDS])
    print(
        f"{ladders} ladders of 10 steps a line: .90 is known by ±{196 * math.sqrt(0.09 / ladders):.0f} points"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
