"""Wait for a condition, and try an action again: the only loops of their kind, with the clock that tests replace."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple, Type, TypeVar, Union

log = logging.getLogger(__name__)

T = TypeVar("T")

#: how often an action is tried whose connection may be lost, and seconds in between
TRIES, TRY_AGAIN = 3, 5.0


@dataclass(frozen=True)
class Clock:
    """The time of a wait. `sleep` may raise: that ends the wait."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Any] = time.sleep


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


def insist(
    action: Callable[[], T],
    passing: Type[Exception],
    clear: Tuple[Type[Exception], ...] = (),
    every: Optional[float] = None,
    pause: Callable[[float], Any] = time.sleep,
    limit: float = 0.0,
) -> T:
    """Return the result of an action, which is tried again after an error that may pass.

    Errors that are `clear` are raised at once, and the last one: of TRIES attempts, or after `limit` seconds if these
    are longer. Before another attempt `pause` gets the seconds to wait, `every` or TRY_AGAIN; where it returns True,
    the attempts end with the error.
    """
    until = time.monotonic() + limit
    for number in itertools.count(1):
        try:
            return action()
        except clear:
            raise
        except passing as error:
            if number >= TRIES and time.monotonic() >= until:
                raise
            left = until - time.monotonic()
            log.warning("%s; trying again%s", error, f", for {left:.0f} s at most" if left > 0 else "")
            if pause(TRY_AGAIN if every is None else every):
                raise
    raise AssertionError("the attempts end")
