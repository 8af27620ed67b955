"""Work as a number that no machine changes: how many functions were called."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable, List, Sequence


def calls_of(action: Callable[[], Any]) -> int:
    """Return how many functions of Python and of C, and steps of generators, an action calls in this thread."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return calls


def growth(action_of: Callable[[int], Callable[[], Any]], sizes: Sequence[int]) -> float:
    """Return by what the work is multiplied from the first to the last size, over what the size is: 1 where linear."""
    counts: List[int] = [calls_of(action_of(size)) for size in sizes]
    return counts[-1] / counts[0] / (sizes[-1] / sizes[0])
