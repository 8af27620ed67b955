"""Wait for a condition: the only loop of its kind, with the clock that tests replace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class Clock:
    """The time of a wait. `sleep` may raise: that ends the wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait_until(
    condition: Callable[[], T],
    limit: float,
    every: float,
    on_late: Optional[Callable[[T], Union[T, Exception]]] = None,
    met: Callable[[T], Any] = bool,
    clock: Optional[Clock] = None,
) -> T:
    """Return the first value of `condition` that is `met`; by default the first that is true.

    The condition is asked at once, and again after each pause of `every` seconds. After `limit` seconds (math.inf: the
    condition ends by itself), `on_late` gets the last value, and returns the error to raise, which says what was waited
    for and what was seen last, or the value to return. By default that is the last value. Errors of the condition and
    of the pause pass through.
    """
    clock = clock or Clock()
    end = clock.now() + limit
    while True:
        seen = condition()
        if met(seen):
            return seen
        if clock.now() >= end:
            late = on_late(seen) if on_late else seen
            if isinstance(late, Exception):
                raise late
            return late
        clock.sleep(every)
