"""Waiting for a condition: it ends with the condition, or when nothing moves any more."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Callable

PAUSE = 0.05


def wait_for(
    condition: Callable[[], Any],
    what: str = "a condition",
    limit: float = 120.0,
    moving: Callable[[], Any] = lambda: None,
) -> Any:
    """Return the first true value of `condition`; AssertionError naming `what` when nothing has moved for `limit` s.

    `moving` returns something that changes while there is progress. Seconds are those of a machine that has nothing
    else to do: at a load of six for each core, one of them takes six.
    """
    spent, last, seen = 0.0, time.monotonic(), moving()
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        spent, last = spent + (now - last) / busy(), now
        changed = moving()
        if changed != seen:
            spent, seen = 0.0, changed
        if spent > limit:
            raise AssertionError(f"nothing has moved for {limit:.0f} s: {what}")
        time.sleep(PAUSE)


def busy() -> float:
    """How many times as long as on an idle machine something may take now."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def end_of(
    process: subprocess.Popen[Any], limit: float = 120.0, moving: Callable[[], Any] = lambda: None
) -> int:
    """Wait for the end of a process; its exit status."""
    wait_for(lambda: process.poll() is not None, f"the end of {process.args!s:.500}", limit, moving)
    return int(process.returncode)
