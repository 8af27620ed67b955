"""Worker groups: how a driver's workers are shared among the operations of a mix.

warp cannot mix operations on objects that exist, so a hybrid load is one closed loop per operation, side by side. By
Little's law a closed loop of w workers makes w / latency requests a second: to get the shares s, the workers must be in
proportion to s x latency. What whole numbers of workers cannot give is paced to its share of the rate to be expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Tuple

from cbt_plugins.models.closed_loop import throughput
from cbt_plugins.plan import Mix

#: a loop that whole workers make faster than its share by more than this is paced
PACE_ABOVE = 1.10


@dataclass(frozen=True)
class WorkerGroup:
    """Workers of one driver that do one operation: a closed loop of a hybrid load by warp."""

    op: str
    role: str  # read | stat | put-keep | put-drop | delete
    share: float  # percent of all requests
    workers: int
    rate_limit: float = 0.0


def groups_of(mix: Mix) -> List[Tuple[str, str, float]]:
    """Return (operation, role, percent) of the loops that a mix needs.

    What is deleted must never be what is read. So as many PUTs as there are DELETEs go under a prefix of their own,
    from which the DELETEs take; all other PUTs stay, and only what stays is read.
    """
    put, delete = mix.get("PUT", 0.0), mix.get("DELETE", 0.0)
    groups = [
        ("GET", "read", mix.get("GET", 0.0)),
        ("STAT", "stat", mix.get("STAT", 0.0)),
        ("PUT", "put-keep", put - delete),
        ("PUT", "put-drop", delete),
        ("DELETE", "delete", delete),
    ]
    return [group for group in groups if group[2] > 1e-9]


def by_share(mix: Mix, workers: int) -> List[WorkerGroup]:
    """Return workers in proportion to the shares: the first guess, and what a calibration runs with."""
    return _allot([(op, role, share, share) for op, role, share in groups_of(mix)], workers)


def by_latency(mix: Mix, workers: int, latency: Mapping[str, float]) -> List[WorkerGroup]:
    """Return workers in proportion to share x latency (seconds per request of each operation, all > 0).

    The expected total rate is workers / sum(share x latency); loops that get more than their due are paced to their
    share of it.
    """
    wanted = [(op, role, share, share * latency[op]) for op, role, share in groups_of(mix)]
    expected = throughput(workers, sum(weight for _, _, _, weight in wanted) / 100.0)
    groups = []
    for group in _allot(wanted, workers):
        due = expected * group.share / 100.0
        makes = throughput(group.workers, latency[group.op])
        if makes > due * PACE_ABOVE:
            # one worker more: a slow request must not make a paced loop miss its beat
            group = WorkerGroup(group.op, group.role, group.share, group.workers + 1, round(due, 3))
        groups.append(group)
    return groups


def fixed(mix: Mix, workers: Mapping[str, int]) -> List[WorkerGroup]:
    """Return workers per operation as the YAML gives them; PUT's are divided between the two kinds of PUT."""
    groups = []
    for op in ("GET", "STAT", "PUT", "DELETE"):
        mine = [(o, role, share, share) for o, role, share in groups_of(mix) if o == op]
        groups += _allot(mine, workers[op]) if mine else []
    return groups


def _allot(wanted: List[Tuple[str, str, float, float]], workers: int) -> List[WorkerGroup]:
    """Return whole numbers by largest remainder; every loop has at least one worker, even if that makes more in all."""
    total = sum(weight for _, _, _, weight in wanted)
    exact = [workers * weight / total for _, _, _, weight in wanted]
    counts = [max(1, int(x)) for x in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: exact[i] - counts[i], reverse=True)
    for i in by_rest:
        if sum(counts) >= workers:
            break
        counts[i] += 1
    return [WorkerGroup(op, role, share, n) for (op, role, share, _), n in zip(wanted, counts)]


def latencies(counted: Mapping[str, Tuple[int, int]]) -> Dict[str, float]:
    """Return the mean seconds per request from {operation: (requests, sum of their ns)}; empty ones are left out."""
    return {op: ns / n / 1e9 for op, (n, ns) in counted.items() if n and ns}
