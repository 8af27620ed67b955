"""How full a range of keys gets, and when, that PUTs and DELETEs hit without looking, as COSBench does.

K keys; each request writes with probability w and deletes with probability d, any key as likely as any other. A PUT of
a key that is there changes nothing, and so does a DELETE of one that is not.
"""

from __future__ import annotations

import math
from typing import Mapping


def steady_occupancy(write: float, delete: float) -> float:
    """Share of the keys (0..1) that are there in the long run: w / (w + d), however full the range was before.

    `write` and `delete` in any unit: percent of the requests, requests/s.
    """
    if write < 0 or delete < 0 or not write + delete:
        raise ValueError("something must be written or deleted")
    return write / (write + delete)


def occupancy(start: float, keys: float, writes: float, deletes: float) -> float:
    """Share of the keys (0..1) that are expected to be there after so many PUTs and DELETEs, mixed evenly.

    o(n) = o* + (o(0) - o*) (1 - 1/K)^n with n = writes + deletes; other requests do not count.
    """
    n = writes + deletes
    if not n:
        return start
    if keys < 1:
        raise ValueError("a range has 1 key or more")
    end = steady_occupancy(writes, deletes)
    left = (1 - 1 / keys) ** n if keys > 1 else 0.0
    return end + (start - end) * left


def requests_until(start: float, goal: float, keys: float, write: float, delete: float) -> float:
    """PUTs and DELETEs together until the occupancy is `goal`; inf when it never is.

    `write` and `delete` in any unit, as for steady_occupancy.
    """
    end = steady_occupancy(write, delete)
    if start == goal:
        return 0.0
    if start == end or not 0 < (goal - end) / (start - end) < 1:
        return math.inf
    if keys <= 1:
        return 1.0
    return math.log((goal - end) / (start - end)) / math.log(1 - 1 / keys)


def growth(mix: Mapping[str, float]) -> float:
    """Objects that 100 requests add where each PUT makes a new object and each DELETE removes one that is there."""
    return mix.get("PUT", 0.0) + mix.get("MULTIPART", 0.0) - mix.get("DELETE", 0.0)
