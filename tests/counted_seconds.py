"""Bad seconds counted request by request, by the rules of docs/RECOVERY.md; nothing is shared with the program."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Dict, Iterator, List, Mapping, Sequence, Set

from aggregates_writer import NS, Request


def bad(requests: Sequence[Request], limit: Mapping[str, float], usual_per_s: float, window: range) -> Set[int]:
    """Return the bad seconds among those of a window (epoch seconds); `usual_per_s` is the rate of the baseline."""
    latencies: Dict[int, List[int]] = defaultdict(list)
    failed: Dict[int, int] = defaultdict(int)
    for request in requests:
        second = request.end // NS
        if second not in window:
            continue
        if request.error:
            failed[second] += 1
        else:
            latencies[second].append(request.duration)
    found = {
        second
        for second, its in latencies.items()
        if sorted(its)[math.ceil(0.99 * len(its) - 1e-9) - 1] >= limit["p99_ms"] * 1e6
    }
    share = limit["success_rate"]
    found |= {second for second, n in failed.items() if len(latencies[second]) < share * (len(latencies[second]) + n)}
    for silence in _silences([second for second in window if not latencies[second]]):
        if len(silence) * usual_per_s >= 10 + math.log(len(window)):
            found |= set(silence)
    return found


def _silences(seconds: Sequence[int]) -> Iterator[List[int]]:
    silence: List[int] = []
    for second in seconds:
        if silence and second != silence[-1] + 1:
            yield silence
            silence = []
        silence.append(second)
    if silence:
        yield silence
